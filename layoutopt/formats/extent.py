"""Symbolic extents: integer polynomials in named dimensions with floor division, in a normal form.

    H*W        2*N+1        (H+3)//4        N*((H+3)//4)*((W+3)//4)

A symbolic dimension of a shape is such an expression. It is parsed from the text in a model or an option, and printed into
the written model. Equal expressions have equal values for all sizes of the names. Most expressions that always have equal
values are equal, because the normal form collects sums, sorts factors and reduces quotients:

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
from threading import Lock
from types import MappingProxyType
from typing import TypeAlias, Union
from weakref import WeakValueDictionary

from layoutopt.errors import FormatError
from layoutopt.record import Record

Dim: TypeAlias = Union[int, "Extent"]
"""The extent of one axis: a number, or a symbolic extent, which is never constant."""

UNKNOWN = "?"
"""Prefix of the names of anonymous dimensions."""

Atom: TypeAlias = Union[str, "FloorDiv", "Extent"]
"""A factor: a name, a floor division, or a sum."""

Product: TypeAlias = tuple[Atom, ...]
"""Factors, sorted by their texts."""

Terms: TypeAlias = tuple[tuple[Product, int], ...]
"""Products and their coefficients."""

_EXTENTS: "WeakValueDictionary[Terms, Extent]" = WeakValueDictionary()
_LOCK = Lock()


def is_unknown(dim: Dim | str) -> bool:
    """Whether a dimension, or one of that name, is anonymous."""
    return not isinstance(dim, int) and str(dim).lstrip("'").startswith(UNKNOWN)


class FloorDiv(Record):
    """A floor division."""

    dividend: "Extent"
    divisor: "Extent"

    @property
    def names(self) -> frozenset[str]:
        """The names in both operands."""
        return self.dividend.names | self.divisor.names

    def low(self, bounds: Mapping[str, int], named: int) -> int | None:
        """A lower bound of the quotient; the arguments are those of `Extent.low`."""
        low, divisor = self.dividend.low(bounds, named), self.divisor.number
        return None if low is None or low < 0 else low // divisor if divisor is not None else 0

    def at(self, sizes: Mapping[str, int]) -> int | None:
        """The value for the given sizes of names; None if a size is missing or the divisor is 0."""
        dividend, divisor = self.dividend.at(sizes), self.divisor.at(sizes)
        return None if dividend is None or not divisor else dividend // divisor

    def __str__(self) -> str:
        operands = (self.dividend, self.divisor)
        return "//".join(str(each) if each.is_name or each.number is not None else f"({each})" for each in operands)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Extent:
    """A sum of products with non-zero coefficients, sorted by the products' texts.

    Equal terms are one object, so that extents are compared and hashed by identity, and each text is written once.
    """

    terms: Terms

    def __new__(cls, terms: Terms) -> "Extent":
        """The extent that has these terms."""
        with _LOCK:
            found = _EXTENTS.get(terms)
            if found is None:
                found = _EXTENTS[terms] = super().__new__(cls)
                object.__setattr__(found, "terms", terms)
        return found

    @classmethod
    def of(cls, dim: Dim) -> "Extent":
        """The extent of a dimension."""
        return dim if isinstance(dim, Extent) else cls((((), dim),) if dim else ())

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
    def is_name(self) -> bool:
        """Whether the extent is a single name."""
        return str(self) in self.names

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
        atoms = [factor for factors, _ in self.terms for factor in factors]
        return frozenset().union(*((atom,) if isinstance(atom, str) else atom.names for atom in atoms))

    def low(self, bounds: Mapping[str, int] = MappingProxyType({}), named: int = 0) -> int | None:
        """A lower bound; None if none is known.

        Args:
            bounds: the lower bounds of names.
            named: the lower bound of all other names but anonymous ones, which are at least 0.
        """
        total = 0
        for factors, coefficient in self.terms:
            for factor in factors:
                if isinstance(factor, str):
                    low: int | None = bounds.get(factor, 0 if is_unknown(factor) else named)
                else:
                    low = factor.low(bounds, named)
                if low is None or low < 0 or coefficient < 0:
                    return None
                coefficient *= low
            total += coefficient
        return total

    def at(self, sizes: Mapping[str, int]) -> int | None:
        """The value for the given sizes of names; None if a size is missing or a divisor is 0."""
        total = 0
        for factors, coefficient in self.terms:
            for factor in factors:
                size = sizes.get(factor) if isinstance(factor, str) else factor.at(sizes)
                if size is None:
                    return None
                coefficient *= size
            total += coefficient
        return total

    def __add__(self, other: Dim) -> "Extent":
        terms = Counter(dict(self.terms))
        for factors, coefficient in Extent.of(other).terms:
            terms[factors] += coefficient
        return sum_of(terms)

    def __neg__(self) -> "Extent":
        return self * -1

    def __sub__(self, other: Dim) -> "Extent":
        return self + -Extent.of(other)

    def __mul__(self, other: Dim) -> "Extent":
        (number, these), (times, those) = self.factors, Extent.of(other).factors
        return sum_of({ordered((*these, *those)): number * times})

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
        top = sum_of({_without(these, shared): above // common})
        bottom = sum_of({_without(those, shared): below // common})
        if bottom.number is not None or not top.terms:
            return top // bottom if top.terms else top
        return sum_of({(FloorDiv(top, bottom),): 1})

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

    def __reduce__(self) -> tuple[type["Extent"], tuple[Terms]]:
        return Extent, (self.terms,)

    @cached_property
    def _text(self) -> str:
        """The expression with its terms from last to first, so that the constant comes last."""
        texts: list[str] = []
        for factors, coefficient in reversed(self.terms):
            is_single_factor = len(self.terms) == 1 and len(factors) == coefficient == 1
            words = [
                str(factor) if isinstance(factor, str) or is_single_factor else f"({factor})" for factor in factors
            ]
            size = "*".join(words if abs(coefficient) == 1 and words else (str(abs(coefficient)), *words))
            texts.append(f"{'-' if coefficient < 0 else '+' if texts else ''}{size}")
        return "".join(texts) or "0"


def product(dims: Iterable[Dim]) -> Dim:
    """The product of dimensions."""
    return prod(map(Extent.of, dims), start=Extent.of(1)).dim


# --- the normal form ---------------------------------------------------------------------------------------------------


def ordered(factors: Iterable[Atom]) -> Product:
    """Factors as a product."""
    return tuple(sorted(factors, key=str))


def _without(factors: Product, removed: Counter[Atom]) -> Product:
    return ordered((Counter(factors) - removed).elements())


def sum_of(terms: Mapping[Product, int]) -> Extent:
    """The sum of products in normal form: products that are a single sum are expanded, common factors are factored out."""
    flat: Counter[Product] = Counter()
    for factors, coefficient in terms.items():
        only = factors[0] if len(factors) == 1 else None
        for each, times in only.terms if isinstance(only, Extent) else ((factors, 1),):
            flat[each] += coefficient * times
    flat = Counter({factors: coefficient for factors, coefficient in flat.items() if coefficient})
    if len(flat) < 2 or not (common := _common(flat)):
        return Extent(tuple(sorted(flat.items(), key=lambda term: tuple(map(str, term[0])))))
    number, rest = sum_of({_without(factors, common): coefficient for factors, coefficient in flat.items()}).factors
    return sum_of({ordered((*rest, *common.elements())): number})


def _common(products: Iterable[Product]) -> Counter[Atom]:
    """The common factors of all products."""
    counted = [Counter(each) for each in products]
    shared = counted[0] if counted else Counter[Atom]()
    for each in counted[1:]:
        shared = shared & each
    return shared


def _quotient(extent: Extent, divisor: int) -> Extent:
    """The floor division in normal form: multiples of the divisor are divided exactly, nested divisions become one."""
    whole = sum_of({factors: coefficient // divisor for factors, coefficient in extent.terms})
    rest = {factors: coefficient % divisor for factors, coefficient in extent.terms if coefficient % divisor}
    constant = rest.pop((), 0)
    if not rest:
        return whole
    common = gcd(divisor, *rest.values())
    rest = {factors: coefficient // common for factors, coefficient in rest.items()}
    constant, divisor = constant // common, divisor // common
    if divisor == 1:
        return whole + sum_of(rest) + constant
    (factors, coefficient), *others = rest.items()
    if 2 * coefficient > divisor:
        return whole - _quotient(-sum_of(rest) + (divisor - 1 - constant), divisor)
    only = factors[0] if len(factors) == 1 and coefficient == 1 and not others else None
    if isinstance(only, FloorDiv) and (inner := only.divisor.number) is not None:
        return whole + _quotient(only.dividend + constant * inner, inner * divisor)
    return whole + sum_of({(FloorDiv(sum_of({**rest, (): constant}), Extent.of(divisor)),): 1})


# --- The notation of symbolic extents: names, and the parser that is the inverse of `str` ---
#
#     quotient = sum [// sum]      sum = [-] product {+|- product}      product = atom {* atom}
#     atom = number | name | (quotient)
#
# A name that is not a plain word is quoted: 'past + 1'.


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


# --- Shapes, and arithmetic on their extents ---


Shape = tuple[Dim, ...]
"""The extents of a tensor, one per axis."""

Volume = tuple[int, Product]
"""A product of extents: the integer factor, and the symbolic factors, none of them a product."""


def as_shape(dims: Iterable[Dim | str]) -> Shape:
    """A shape from numbers, extents and texts of extents: as_shape(("N", 3, "H//2", "W//2")).

    Raises:
        FormatError: a text is not an expression.
    """
    extents = [parse_extent(dim) if isinstance(dim, str) else dim for dim in dims]
    return tuple([dim.dim if isinstance(dim, Extent) else dim for dim in extents])


def volume(dims: Iterable[Dim]) -> Volume:
    """The product of extents; without symbols if a factor is 0."""
    number = 1
    symbols: list[Atom] = []
    for dim in dims:
        times, found = (dim, ()) if isinstance(dim, int) else dim.factors
        number *= times
        symbols += found
    return number, ordered(symbols) if number else ()


def static_shape(dims: Iterable[Dim]) -> tuple[int, ...]:
    """Extents as integers.

    Raises:
        FormatError: an extent is symbolic.
    """
    return tuple(map(int, dims))


def quotient(dim: Dim, block: int) -> Dim:
    """The extent divided by `block`, rounded down; a symbolic extent is returned unchanged."""
    return dim if isinstance(dim, Extent) else dim // block


def round_up(dim: Dim, block: int) -> Dim:
    """The extent rounded up to a multiple of `block`; a symbolic extent is returned unchanged."""
    return dim if isinstance(dim, Extent) else -(-dim // block) * block
