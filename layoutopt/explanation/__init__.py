"""Explanation of plans: the reasons for conversions, the prices of alternatives, and the changes to a model that save most."""

from layoutopt.explanation.explain_model import explain
from layoutopt.explanation.schema import (
    Alternative,
    ConversionReport,
    Explanation,
    FormatChoice,
    ItemExplanation,
    ModelChange,
    Participant,
)

__all__ = [
    "Alternative",
    "ConversionReport",
    "Explanation",
    "FormatChoice",
    "ItemExplanation",
    "ModelChange",
    "Participant",
    "explain",
]
