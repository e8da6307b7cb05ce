"""Certificates: proofs that a result computes what its original computes.

`checker` is the trusted part: it imports nothing of the compiler. `producer` finds claims; a claim that it gets wrong is
refused by the checker.
"""
