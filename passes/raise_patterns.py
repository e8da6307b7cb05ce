"""Raise a group of ops that an exporter wrote to one op: a pseudo-op that every dialect can expand, or a standard ONNX op.

before: x -> Reshape -> InstanceNormalization -> Reshape -> Mul -> Add -> y       channels come first
after:  x -> layoutopt::GroupNormalization -> y                                   any order of the axes
"""

from dataclasses import dataclass

from layoutopt.ops import rules
from layoutopt.passes.base import PassContext
from layoutopt.passes.fuse_patterns import FusePatterns
from layoutopt.patterns import FusionPattern


@dataclass(frozen=True, slots=True)
class RaisePatterns(FusePatterns):
    """Apply the fusion patterns whose fused op every dialect can expand; they alone are no reason to rewrite a model."""

    name = "raise-patterns"
    justifies_rewrite = False

    def is_applicable(self, pattern: FusionPattern, context: PassContext) -> bool:
        """Whether every dialect can expand the fused op."""
        del context
        rule = rules().get(pattern.fused_op)
        is_standard = "::" not in pattern.fused_op and not pattern.needs_kernel
        return rule is not None and (rule.is_pseudo_op or is_standard)
