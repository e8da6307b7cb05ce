"""Verification that a rewritten model is equivalent to the original, up to the effect of rounding on the original.

test inputs -> runs of the original -> rounding spread -> comparison as a whole -> segmented comparison -> verdict
"""

from layoutopt.verification.cut_candidates import CutCandidates
from layoutopt.verification.data_movement import DataMovement
from layoutopt.verification.gate import EquivalenceGate
from layoutopt.verification.observed_values import ObservedValue
from layoutopt.verification.out_of_core import out_of_core_memory, run_out_of_core
from layoutopt.verification.runnable import MAX_PREPACKED_BYTES, Runnable
from layoutopt.verification.runnable_copies import RunnableCopies, as_runnable
from layoutopt.verification.verdict import Comparison, Verification
from layoutopt.verification.whole_model import verify_models

__all__ = [
    "MAX_PREPACKED_BYTES",
    "Comparison",
    "CutCandidates",
    "DataMovement",
    "EquivalenceGate",
    "ObservedValue",
    "Runnable",
    "RunnableCopies",
    "Verification",
    "as_runnable",
    "out_of_core_memory",
    "run_out_of_core",
    "verify_models",
]
