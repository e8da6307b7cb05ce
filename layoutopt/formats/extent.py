"""Symbolic extents: integer polynomials in named dimensions with floor division, in a normal form.

    H*W        2*N+1        (H+3)//4        N*((H+3)//4)*((W+3)//4)

A symbolic dimension of a shape is such an expression. Its text is read where it enters (a model, an option) and written
where it leaves. Equal expressions are equal numbers for all values of the names; most expressions that are equal numbers are
equal, since sums are collected, factors sorted, and quotients reduced:

    (k q + r) // k  =  q + r // k          (A // m + c) // k  =  (A + m c) // (m k)
    (a b) // (a c)  =  b // c              (-a) // k  =  -((a + k-1) // k)

Products of sums are not expanded, so that factors stay visible. Names that are not plain words are quoted. A name that
begins with "?" is an anonymous dimension, such as one that depends on values.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod
from types import MappingProxyType
from typing import TypeAlias, Union

from layoutopt.errors import FormatError

Dim: TypeAlias = Union[int, "Extent"]
"""The extent of one axis: a number, or a symbolic extent, which is never constant."""

UNKNOWN = "?"
"""Prefix of the names of anonymous dimensions."""

Atom: TypeAlias = Union[str, "Ratio", "Extent"]
"""A factor: a name, a floor division, or a sum."""

Product: TypeAlias = tuple[Atom, ...]
"""Factors, sorted by their texts."""

_WORD = r"[A-Za-z_?][\w.?\[\]]*"
_QUOTED = r"'(?:[^']|'')*'"
_TOKEN = re.compile(rf"\s*(?:(\d+)|({_WORD}|{_QUOTED})|(//|[-+*()]))")


def quoted(name: str) -> str:
    """A name as part of an expression: quoted unless it is a plain word."""
    return name if re.fullmatch(_WORD, name) else "'" + name.replace("'", "''") + "'"


def unquoted(dim: "Extent | str") -> str | None:
    """The name in an extent that is a single name, or in its text; None for other expressions."""
    text = str(dim)
    if re.fullmatch(_WORD, text):
        return text
    return text[1:-1].replace("''", "'") if re.fullmatch(_QUOTED, text) else None


def is_unknown(dim: Dim | str) -> bool:
    """Whether a dimension, or one of that name, is anonymous."""
    return not isinstance(dim, int) and str(dim).lstrip("'").startswith(UNKNOWN)


@dataclass(frozen=True)
class Ratio:
    """A floor division."""

    dividend: "Extent"
    divisor: "Extent"

    @cached_property
    def _text(self) -> str:
        return f"{_operand(self.dividend)}//{_operand(self.divisor)}"

    def __str__(self) -> str:
        return self._text


@dataclass(frozen=True)
class Extent:
    """A sum of products with non-zero coefficients, sorted by the products' texts.

    Extents are equal if their terms are. The hash and the text are computed once.
    """

    terms: tuple[tuple[Product, int], ...]

    @classmethod
    def of(cls, dim: Dim | str) -> "Extent":
        """The extent of a dimension, or of the text of an expression.

        Raises:
            FormatError: the text is not an expression.
        """
        if isinstance(dim, Extent):
            return dim
        return _Reader(dim).whole() if isinstance(dim, str) else cls((((), dim),) if dim else ())

    @classmethod
    def of_atom(cls, atom: Atom) -> "Extent":
        """The extent that is a single factor: a name, quoted where necessary, a floor division, or a sum."""
        return atom if isinstance(atom, Extent) else cls((((atom,), 1),))

    @property
    def number(self) -> int | None:
        """The value of a constant extent; None if it has names."""
        if not self.terms:
            return 0
        factors, coefficient = self.terms[0]
        return coefficient if len(self.terms) == 1 and not factors else None

    @property
    def dim(self) -> Dim:
        """The extent as a dimension of a shape."""
        return self if self.number is None else self.number

    @cached_property
    def factors(self) -> tuple[int, Product]:
        """The integer and the factors whose product is the extent."""
        if len(self.terms) < 2:
            return (self.terms[0][1], self.terms[0][0]) if self.terms else (0, ())
        content = gcd(*(coefficient for _, coefficient in self.terms))
        content = -content if self.terms[-1][1] < 0 else content
        return content, (Extent(tuple((factors, coefficient // content) for factors, coefficient in self.terms)),)

    @cached_property
    def names(self) -> frozenset[str]:
        """The names in the expression, quoted where necessary."""
        return frozenset(name for factors, _ in self.terms for factor in factors for name in _names(factor))

    def low(self, bounds: Mapping[str, int] = MappingProxyType({}), named: int = 0) -> int | None:
        """A lower bound, given those of names (by default `named`); None if there is none."""
        total = 0
        for factors, coefficient in self.terms:
            lows = [_low(factor, bounds, named) for factor in factors]
            known = [low for low in lows if low is not None and low >= 0]
            if len(known) < len(lows) or (factors and coefficient < 0):
                return None
            total += coefficient * prod(known)
        return total

    def at(self, sizes: Mapping[str, int]) -> int | None:
        """The value for the given sizes of names; None if a size is missing or a divisor is 0."""
        total = 0
        for factors, coefficient in self.terms:
            found = [_at(factor, sizes) for factor in factors]
            known = [number for number in found if number is not None]
            if len(known) < len(found):
                return None
            total += coefficient * prod(known)
        return total

    def __add__(self, other: Dim) -> "Extent":
        terms = Counter(dict(self.terms))
        for factors, coefficient in Extent.of(other).terms:
            terms[factors] += coefficient
        return _sum(terms)

    def __neg__(self) -> "Extent":
        return self * -1

    def __sub__(self, other: Dim) -> "Extent":
        return self + -Extent.of(other)

    def __mul__(self, other: Dim) -> "Extent":
        (number, these), (times, those) = self.factors, Extent.of(other).factors
        return _sum({_ordered((*these, *those)): number * times})

    def __floordiv__(self, other: Dim) -> "Extent":
        """Floor division; a symbolic divisor is assumed to be positive.

        Raises:
            ZeroDivisionError: the divisor is 0.
        """
        divisor = Extent.of(other)
        number = divisor.number
        if number is not None:
            return _quotient(self, number) if number > 0 else _quotient(-self, -number)
        (above, these), (below, those) = self.factors, divisor.factors
        shared = Counter(these) & Counter(those)
        common = gcd(above, below)
        top = _sum({_without(these, shared): above // common})
        bottom = _sum({_without(those, shared): below // common})
        if bottom.number is not None or not top.terms:
            return top // bottom if top.terms else top
        return _sum({(Ratio(top, bottom),): 1})

    def __mod__(self, other: Dim) -> "Extent":
        return self - (self // other) * Extent.of(other)

    def __int__(self) -> int:
        """The value of a constant extent.

        Raises:
            FormatError: the extent is symbolic.
        """
        if self.number is None:
            raise FormatError(f"the extent {self} is symbolic", hint="give its dimensions a size")
        return self.number

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return repr(self._text)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type["Extent"], tuple[object, ...]]:
        """Pickled without the hash, which differs between processes."""
        return Extent, (self.terms,)

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    @cached_property
    def _text(self) -> str:
        """The expression with its terms from last to first, so that the constant comes last."""
        texts: list[str] = []
        for factors, coefficient in reversed(self.terms):
            lonely = len(self.terms) == 1 and len(factors) == coefficient == 1
            words = [str(factor) if isinstance(factor, str) or lonely else f"({factor})" for factor in factors]
            size = "*".join(words if abs(coefficient) == 1 and words else (str(abs(coefficient)), *words))
            texts.append(f"{'-' if coefficient < 0 else '+' if texts else ''}{size}")
        return "".join(texts) or "0"


def product(dims: Iterable[Dim]) -> Dim:
    """The product of dimensions."""
    whole = Extent.of(1)
    for dim in dims:
        whole = whole * dim
    return whole.dim


# --- the normal form ---------------------------------------------------------------------------------------------------


def _ordered(factors: Iterable[Atom]) -> Product:
    return tuple(sorted(factors, key=str))


def _without(factors: Product, gone: Counter[Atom]) -> Product:
    return _ordered((Counter(factors) - gone).elements())


def _sum(terms: Mapping[Product, int]) -> Extent:
    """The sum of products in normal form: products that are a single sum are expanded, common factors are factored out."""
    flat: Counter[Product] = Counter()
    for factors, coefficient in terms.items():
        only = factors[0] if len(factors) == 1 else None
        for each, times in only.terms if isinstance(only, Extent) else ((factors, 1),):
            flat[each] += coefficient * times
    flat = Counter({factors: coefficient for factors, coefficient in flat.items() if coefficient})
    common = _common(flat)
    if len(flat) < 2 or not common:
        return Extent(tuple(sorted(flat.items(), key=lambda term: tuple(map(str, term[0])))))
    number, rest = _sum({_without(factors, common): coefficient for factors, coefficient in flat.items()}).factors
    return _sum({_ordered((*rest, *common.elements())): number})


def _common(products: Iterable[Product]) -> Counter[Atom]:
    """The common factors of all products."""
    counted = [Counter(each) for each in products]
    shared = counted[0] if counted else Counter[Atom]()
    for each in counted[1:]:
        shared = shared & each
    return shared


def _quotient(extent: Extent, divisor: int) -> Extent:
    """The floor division in normal form: multiples of the divisor are divided exactly, nested divisions become one."""
    whole = _sum({factors: coefficient // divisor for factors, coefficient in extent.terms})
    rest = {factors: coefficient % divisor for factors, coefficient in extent.terms if coefficient % divisor}
    constant = rest.pop((), 0)
    if not rest:
        return whole
    common = gcd(divisor, *rest.values())
    rest = {factors: coefficient // common for factors, coefficient in rest.items()}
    constant, divisor = constant // common, divisor // common
    if divisor == 1:
        return whole + _sum(rest) + constant
    (factors, coefficient), *others = rest.items()
    if 2 * coefficient > divisor:
        return whole - _quotient(-_sum(rest) + (divisor - 1 - constant), divisor)
    only = factors[0] if len(factors) == 1 and coefficient == 1 and not others else None
    if isinstance(only, Ratio) and (inner := only.divisor.number) is not None:
        return whole + _quotient(only.dividend + constant * inner, inner * divisor)
    return whole + _sum({(Ratio(_sum({**rest, (): constant}), Extent.of(divisor)),): 1})


# --- atoms ------------------------------------------------------------------------------------------------


def _names(atom: Atom) -> frozenset[str]:
    match atom:
        case str():
            return frozenset((atom,))
        case Ratio():
            return atom.dividend.names | atom.divisor.names
        case _:
            return atom.names


def _low(atom: Atom, bounds: Mapping[str, int], named: int) -> int | None:
    match atom:
        case str():
            return bounds.get(atom, 0 if is_unknown(atom) else named)
        case Ratio():
            low, divisor = atom.dividend.low(bounds, named), atom.divisor.number
            return None if low is None or low < 0 else low // divisor if divisor is not None else 0
        case _:
            return atom.low(bounds, named)


def _at(atom: Atom, sizes: Mapping[str, int]) -> int | None:
    match atom:
        case str():
            return sizes.get(atom)
        case Ratio():
            dividend, divisor = atom.dividend.at(sizes), atom.divisor.at(sizes)
            return None if dividend is None or not divisor else dividend // divisor
        case _:
            return atom.at(sizes)


# --- texts -------------------------------------------------------------------------------------------------------------


def _operand(extent: Extent) -> str:
    text = str(extent)
    return text if extent.number is not None or unquoted(text) is not None else f"({text})"


class _Reader:
    """Recursive-descent parser of the grammar.

    quotient = sum [// sum]      sum = [-] product {+|- product}      product = atom {* atom}
    atom = number | name | (quotient)
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0

    def whole(self) -> Extent:
        """The extent that the whole text denotes."""
        extent = self._quotient()
        if self._text[self._place :].strip():
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
        return _sum(terms)

    def _product(self) -> tuple[int, Product]:
        number, factors = self._atom().factors
        while self._take("*"):
            times, more = self._atom().factors
            number, factors = number * times, _ordered((*factors, *more))
        return number, factors

    def _atom(self) -> Extent:
        if self._take("("):
            inner = self._quotient()
            if not self._take(")"):
                raise self._error()
            return inner
        found = _TOKEN.match(self._text, self._place)
        if found is None or not (found[1] or found[2]):
            raise self._error()
        self._place = found.end()
        return Extent.of(int(found[1])) if found[1] else Extent.of_atom(found[2])

    def _take(self, sign: str) -> bool:
        found = _TOKEN.match(self._text, self._place)
        if found is None or found[3] != sign:
            return False
        self._place = found.end()
        return True

    def _error(self) -> FormatError:
        return FormatError("not an extent", where=self._text, hint="write it like H*W, (H+3)//4, or 'any name'")


__all__ = ["UNKNOWN", "Dim", "Extent", "is_unknown", "product", "quoted", "unquoted"]
