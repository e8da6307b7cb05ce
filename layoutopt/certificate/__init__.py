"""Certificates: proofs that a result computes the same function as its original."""
