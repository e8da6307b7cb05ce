"""The JSON form of a certificate."""

import json
from dataclasses import dataclass
from typing import Any

from layoutopt.certificate.checker import index_map as maps
from layoutopt.certificate.checker.index_map import Axes
from layoutopt.certificate.checker.terms import Extent, Shape
from layoutopt.errors import CertificateError

VERSION = 1
_FIELDS = {"layoutopt_version", "certificate", "original", "result", "block", "claims"}


@dataclass(frozen=True, slots=True)
class Claim:
    """A value of the result is a value of the original, with its elements in another order.

    Attributes:
        value: the name in the result.
        of: the name in the original.
        axes: for every axis of the value the digits of coordinates of the original that it consists of.
        lemmas: the names of the lemmas that the proof uses.
        is_tested: whether the values are only compared on random inputs.
    """

    value: str
    of: str
    axes: Axes
    lemmas: tuple[str, ...] = ()
    is_tested: bool = False

    @classmethod
    def identity(cls, name: str, shape: Shape) -> "Claim":
        """The value of that name is the value of that name."""
        return cls(name, name, maps.identity(shape))


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate.

    Attributes:
        original: the SHA-256 of the original.
        result: the SHA-256 of the result.
        block: channels per block of onnxruntime's blocked operators, for which the claims hold.
        claims: in the order in which they are proven.
    """

    original: str
    result: str
    block: int
    claims: tuple[Claim, ...]


def parse(text: str, where: str = "certificate") -> Certificate:
    """The certificate that a JSON text contains.

    Raises:
        CertificateError: the text has another form.
    """
    try:
        record = json.loads(text)
        if record["certificate"] != VERSION or set(record) - {"layoutopt_file"} != _FIELDS:
            raise ValueError(f"it is no certificate of version {VERSION}")
        claims = tuple(_claim(entry) for entry in record["claims"])
        block = record["block"]
        if not isinstance(block, int) or isinstance(block, bool) or block < 1:
            raise ValueError("`block` is no positive number")
        return Certificate(_text(record["original"]), _text(record["result"]), block, claims)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as fault:
        raise CertificateError(f"is not a certificate that layoutopt reads: {fault}", where=where) from fault


def _claim(entry: dict[str, Any]) -> Claim:
    if set(entry) not in ({"value", "of", "axes", "tested"}, {"value", "of", "axes", "lemmas"}):
        raise ValueError(f"a claim has the fields {sorted(entry)}")
    axes = tuple(tuple(_digit(digit) for digit in digits) for digits in entry["axes"])
    if axes != maps.canonical(axes):
        raise ValueError("axes are not in canonical form")
    lemmas = tuple(_text(name) for name in entry.get("lemmas", ()))
    if entry.get("tested", True) is not True:
        raise ValueError("`tested` is true or absent")
    return Claim(_text(entry["value"]), _text(entry["of"]), axes, lemmas, "tested" in entry)


def _digit(entry: Any) -> maps.Digit:
    axis, stride, extent = entry
    if any(isinstance(each, bool) or not isinstance(each, int) for each in (axis, stride)) or axis < 0 or stride < 1:
        raise ValueError("a digit is [axis, stride, extent]")
    return axis, stride, _extent(extent)


def _extent(extent: Any) -> Extent:
    if isinstance(extent, bool) or not isinstance(extent, int | str) or (isinstance(extent, int) and extent < 1):
        raise ValueError("an extent is a positive number or a name")
    return extent


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value
