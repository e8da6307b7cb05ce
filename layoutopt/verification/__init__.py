"""Verification: does a rewritten model compute what the original does, but for what rounding alone does to the original?

test inputs -> runs of the original -> rounding spread -> comparison of the whole -> segmented comparison -> verdict
"""

from layoutopt.verification.gate import Facts, Gate
from layoutopt.verification.observed import Observed
from layoutopt.verification.verdict import Comparison, Verification
from layoutopt.verification.verify import verify_models

__all__ = ["Comparison", "Facts", "Gate", "Observed", "Verification", "verify_models"]
