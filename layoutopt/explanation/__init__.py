"""Explanation of plans: the reasons for conversions, the prices of alternatives, and what would remove a conversion."""

from layoutopt.explanation.explain_model import explain
from layoutopt.explanation.schema import Explanation
