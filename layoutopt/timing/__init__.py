"""Timing of models against each other: interleaved runs, and means of blocks with confidence intervals."""
