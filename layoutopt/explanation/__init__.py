"""Explanation of plans: the reasons for conversions, the prices of alternatives, and the changes to a model that save most."""

from layoutopt.explanation.explain_model import LIMIT, explain
from layoutopt.explanation.schema import (
    Alternative,
    ConversionReport,
    Explanation,
    FormatChoice,
    ItemExplanation,
    ModelChange,
    Participant,
    Remedy,
)

__all__ = [
    "LIMIT",
    "Alternative",
    "ConversionReport",
    "Explanation",
    "FormatChoice",
    "ItemExplanation",
    "ModelChange",
    "Participant",
    "Remedy",
    "explain",
]
