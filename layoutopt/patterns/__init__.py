"""Fusion patterns: several ops that exporters write for one op that some runtimes have."""

from layoutopt.patterns import activations, attention, norms, views
from layoutopt.patterns.base import FusionPattern, Match, patterns_at, register_pattern
