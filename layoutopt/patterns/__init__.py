"""Fusion patterns, one per file: several ops that exporters write for one op that some runtimes have."""

from layoutopt.patterns import (  # noqa: F401  (they register fusion_patterns)
    attention,
    batched_transpose,
    gelu,
    group_norm,
    permuted_axes,
    resized_axes,
    rms_norm,
    silu,
)
from layoutopt.patterns.base import FusionPattern, Match, fusion_patterns, patterns_at, register_pattern

__all__ = ["FusionPattern", "Match", "fusion_patterns", "patterns_at", "register_pattern"]
