"""The notation of symbolic extents: names, and the parser that is the inverse of `str`.

    quotient = sum [// sum]      sum = [-] product {+|- product}      product = atom {* atom}
    atom = number | name | (quotient)

A name that is not a plain word is quoted: 'past + 1'.
"""

import re
from collections import Counter

from layoutopt.errors import FormatError
from layoutopt.formats.extent import Extent, Product, ordered, sum_of

_WORD = r"[A-Za-z_?][\w.?\[\]]*"
_QUOTED = r"'(?:[^']|'')*'"
_TOKEN = re.compile(rf"\s*(?:(\d+)|({_WORD}|{_QUOTED})|(//|[-+*()]))")


def quoted(name: str) -> str:
    """A name as part of an expression: quoted unless it is a plain word."""
    return name if re.fullmatch(_WORD, name) else "'" + name.replace("'", "''") + "'"


def unquoted(dim: "Extent | str") -> str | None:
    """The name, without quotes, of an extent or text that is a single name; None for other expressions."""
    text = str(dim)
    if re.fullmatch(_WORD, text):
        return text
    return text[1:-1].replace("''", "'") if re.fullmatch(_QUOTED, text) else None


def parse_extent(text: str) -> Extent:
    """The extent that a text denotes.

    Raises:
        FormatError: the text is not an expression.
    """
    return _Parser(text).whole()


class _Parser:
    """Recursive-descent parser of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def whole(self) -> Extent:
        """The extent that the whole text denotes."""
        extent = self._quotient()
        if self._text[self._position :].strip():
            raise self._error()
        return extent

    def _quotient(self) -> Extent:
        dividend = self._sum()
        return dividend // self._sum() if self._take("//") else dividend

    def _sum(self) -> Extent:
        """A sum of terms, normalised at once so that parsing is the inverse of printing."""
        terms: Counter[Product] = Counter()
        sign = -1 if self._take("-") else 1
        while sign:
            number, factors = self._product()
            terms[factors] += sign * number
            sign = 1 if self._take("+") else -1 if self._take("-") else 0
        return sum_of(terms)

    def _product(self) -> tuple[int, Product]:
        number, factors = self._atom().factors
        while self._take("*"):
            times, more = self._atom().factors
            number, factors = number * times, ordered((*factors, *more))
        return number, factors

    def _atom(self) -> Extent:
        if self._take("("):
            inner = self._quotient()
            if not self._take(")"):
                raise self._error()
            return inner
        found = _TOKEN.match(self._text, self._position)
        if found is None or not (found[1] or found[2]):
            raise self._error()
        self._position = found.end()
        return Extent.of(int(found[1])) if found[1] else Extent.of_atom(found[2])

    def _take(self, sign: str) -> bool:
        found = _TOKEN.match(self._text, self._position)
        if found is None or found[3] != sign:
            return False
        self._position = found.end()
        return True

    def _error(self) -> FormatError:
        return FormatError("not an extent", where=self._text, hint="write it like H*W, (H+3)//4, or 'any name'")


__all__ = ["parse_extent", "quoted", "unquoted"]
