"""Passes on the form that onnxruntime makes of a quantised model: QLinear ops with channels last, and Q/DQ ops around others.

The dialect runs them after baking. Every rewrite here returns the same integers as the ops that it replaces, for all integers
that these may read; measured costs (`costs.toml`) decide where a rewrite is made.
"""

from layoutopt.dialects.onnxruntime.integer.absorb_pads import AbsorbPads
from layoutopt.dialects.onnxruntime.integer.affine_convolutions import AffineConvolutions
from layoutopt.dialects.onnxruntime.integer.matmul_convolutions import MatmulConvolutions
from layoutopt.dialects.onnxruntime.integer.pad_colours import PadColours
from layoutopt.dialects.onnxruntime.integer.split_transposes import SplitTransposes
from layoutopt.dialects.onnxruntime.integer.tabulate import Tabulate
from layoutopt.dialects.onnxruntime.integer.widen_rows import WidenRows
from layoutopt.passes import RemoveDead, ShareConstants
from layoutopt.passes.base import Pass

INTEGER_PASSES: tuple[Pass, ...] = (
    AbsorbPads(),
    AffineConvolutions(),
    Tabulate(),
    MatmulConvolutions(),
    WidenRows(),
    SplitTransposes(),
    PadColours(),
    ShareConstants(),
    RemoveDead(),
)

__all__ = ["INTEGER_PASSES"]
