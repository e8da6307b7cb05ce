"""Raise a group of ops that an exporter wrote to one op that every dialect can expand again.

Or rewrite to a simpler equivalent in standard ONNX.

before: x -> Reshape -> InstanceNormalization -> Reshape -> Mul -> Add -> y       channels come first
after:  x -> layoutopt::GroupNormalization -> y                                   any order of the axes will do
"""

from dataclasses import dataclass

from layoutopt.ops import rules
from layoutopt.passes.base import PassContext
from layoutopt.passes.recompose import Recompose
from layoutopt.patterns import FusionPattern


@dataclass(frozen=True, slots=True)
class Recognize(Recompose):
    """Apply the fusion patterns whose op every dialect can expand; they alone are no reason to rewrite a model."""

    name = "recognize"
    is_reason = False

    def is_wanted(self, pattern: FusionPattern, context: PassContext) -> bool:
        """Whoever has kernels for what."""
        del context
        rule = rules().get(pattern.fused_op)
        return rule is not None and (rule.is_pseudo_op or "::" not in pattern.fused_op)
