"""Idioms, one per file: what exporters write in several ops, and some runtimes have as one."""

from layoutopt.patterns import (  # noqa: F401  (they register idioms)
    attention,
    gelu,
    group_norm,
    permuted_axes,
    resized_axes,
    silu,
)
from layoutopt.patterns.base import Idiom, Match, idiom, idioms, idioms_at

__all__ = ["Idiom", "Match", "idiom", "idioms", "idioms_at"]
