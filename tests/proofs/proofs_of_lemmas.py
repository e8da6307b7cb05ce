"""All proofs, by the name of their lemma."""

import elementwise_proofs
import linear_proofs
import position_proofs
import quantized_proofs
import winograd_proofs
from prover import PROOFS

MODULES = (elementwise_proofs, linear_proofs, position_proofs, quantized_proofs, winograd_proofs)
"""The modules that register the proofs."""

__all__ = ["MODULES", "PROOFS"]
