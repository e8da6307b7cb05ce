"""All lemmas, by the operator of the terms that they are tried on."""

from layoutopt.certificate.checker.lemma import Lemma
from layoutopt.certificate.checker.lemmas import affine, linear

LEMMAS: tuple[Lemma, ...] = (*affine.LEMMAS, *linear.LEMMAS)
BY_NAME: dict[str, Lemma] = {lemma.name: lemma for lemma in LEMMAS}
BY_OP: dict[str, list[Lemma]] = {}
for _lemma in LEMMAS:
    for _op in _lemma.ops:
        BY_OP.setdefault(_op, []).append(_lemma)
