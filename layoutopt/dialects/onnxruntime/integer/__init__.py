"""Passes on quantised models after baking: QLinear ops with channels last, and Q/DQ ops around other ops.

The dialect runs them after baking. Every rewrite computes the same integers as the ops that it replaces, for all input
integers; measured costs (`costs.toml`) decide where a rewrite is made.
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
