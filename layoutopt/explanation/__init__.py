"""Explanation of plans: the reasons for conversions, the prices of alternatives, and what would remove a conversion."""

from layoutopt.explanation.explain_model import explain
from layoutopt.explanation.schema import (
    Alternative,
    ConversionReport,
    Explanation,
    ItemExplanation,
    Participant,
    Remedy,
)

__all__ = [
    "Alternative",
    "ConversionReport",
    "Explanation",
    "ItemExplanation",
    "Participant",
    "Remedy",
    "explain",
]
