"""Timing of models against each other: interleaved runs, and medians with confidence intervals."""
