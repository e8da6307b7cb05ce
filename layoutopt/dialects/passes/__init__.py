"""Passes on lowered graphs that every dialect can run."""

from layoutopt.dialects.passes.equalize_matmul_ranks import EqualizeMatmulRanks
from layoutopt.dialects.passes.fold_transposes import FoldTransposes
from layoutopt.dialects.passes.rematerialize_constants import RematerializeConstants
from layoutopt.dialects.passes.share_transposes import ShareTransposes
from layoutopt.dialects.passes.simplify_reshapes import SimplifyReshapes
from layoutopt.passes import RemoveDead, ShareConstants
from layoutopt.passes.base import Pass

COMPACT: tuple[Pass, ...] = (ShareConstants(), RematerializeConstants(), ShareConstants(), RemoveDead())
"""The last passes of every dialect, which store constants in as few bytes as possible and remove unused values: a lowered op
may compute a shape from its operands that the planned op read."""

__all__ = [
    "COMPACT",
    "EqualizeMatmulRanks",
    "FoldTransposes",
    "RematerializeConstants",
    "ShareTransposes",
    "SimplifyReshapes",
]
