"""All lemmas, in the order in which they are tried."""

from layoutopt.certificate.checker.lemma import Lemma

LEMMAS: tuple[Lemma, ...] = ()
