"""Idioms, one per file: what exporters write in several ops, and some runtimes have as one."""

from layoutopt.patterns import (  # noqa: F401  (they register idioms)
    attention,
    gelu,
    group_norm,
    permuted_axes,
    resized_axes,
    silu,
)
from layoutopt.patterns.base import FusionPattern, Match, idiom, idioms, patterns_at

__all__ = ["FusionPattern", "Match", "idiom", "idioms", "patterns_at"]
