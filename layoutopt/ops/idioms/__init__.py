"""Idioms, one per file: what exporters write in several ops, and some runtimes have as one."""

from layoutopt.ops.idioms import attention, gelu, group_norm, resized_axes, silu  # noqa: F401  (they register idioms)
from layoutopt.ops.idioms.base import Idiom, Match, idiom, idioms, idioms_at

__all__ = ["Idiom", "Match", "idiom", "idioms", "idioms_at"]
