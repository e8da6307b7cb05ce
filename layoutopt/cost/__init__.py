"""Cost models: estimated times of ops and conversions on one target, in seconds.

Layout rules decide which signatures are legal; a cost model only prices them. Its prices are finite: a signature without a
kernel costs as much as its emulation, conversions included.
"""

from layoutopt.cost.epilogues import EpilogueRule, Epilogues, find_epilogues, with_epilogues
from layoutopt.cost.fused_into_convolutions import FusedIntoConvolutions
from layoutopt.cost.inner_conversions import InnerConversions
from layoutopt.cost.measured import MeasuredPrices
from layoutopt.cost.model import CostModel, CostModelWrapper, EmulatingCostModel, emulation_conversions
from layoutopt.cost.multi_target import MultiTargetCostModel
from layoutopt.cost.runtime_blocks import RuntimeBlocks
from layoutopt.cost.sized import SizedCostModel, sized
from layoutopt.cost.standard import Absorbed, StandardOperators

__all__ = [
    "Absorbed",
    "CostModel",
    "CostModelWrapper",
    "EmulatingCostModel",
    "EpilogueRule",
    "Epilogues",
    "FusedIntoConvolutions",
    "InnerConversions",
    "MeasuredPrices",
    "MultiTargetCostModel",
    "RuntimeBlocks",
    "SizedCostModel",
    "StandardOperators",
    "emulation_conversions",
    "find_epilogues",
    "sized",
    "with_epilogues",
]
