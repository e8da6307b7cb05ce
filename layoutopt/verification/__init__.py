"""Verification that a rewritten model is equivalent to the original, up to the effect of rounding on the original.

test inputs -> runs of the original -> rounding spread -> comparison as a whole -> segmented comparison -> verdict
"""

from layoutopt.verification.cuts import CutCandidates, ObservedValue
from layoutopt.verification.gate import verify_models, verify_rewrite
from layoutopt.verification.runnable import MAX_PREPACKED_BYTES, Runnable, RunnableCopies, as_runnable
from layoutopt.verification.verdict import Comparison, Verification
