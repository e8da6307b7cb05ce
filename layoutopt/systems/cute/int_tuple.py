"""IntTuple: an integer, or a tuple of IntTuples; the type of shapes, strides and coordinates.

    (4, (2, 3))     two modes; the second one has two modes

Source: CUTLASS include/cute/int_tuple.hpp; the notation is that of media/docs/cpp/cute/01_layout.md.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from layoutopt.errors import FormatError

IntTuple: TypeAlias = int | tuple["IntTuple", ...]

_MAX_DEPTH = 32  # levels of a notation; no layout has as many
_TOKEN = re.compile(r"\s*(?:([(),])|_?([0-9]+))\s*")


def flatten(value: IntTuple) -> tuple[int, ...]:
    """The integers from left to right."""
    if isinstance(value, tuple):
        return tuple(leaf for part in value for leaf in flatten(part))
    return (value,)


def product(value: IntTuple) -> int:
    """The product of the integers: the size of a shape."""
    return math.prod(flatten(value))


def congruent(left: IntTuple, right: IntTuple) -> bool:
    """Whether both have the same nesting."""
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(congruent, left, right))
    return not isinstance(left, tuple) and not isinstance(right, tuple)


def compatible(coarse: IntTuple, fine: IntTuple) -> bool:
    """Whether every coordinate of the shape `coarse` is also one of `fine`: 24 and (4, 6), (4, 6) and ((2, 2), 6)."""
    if not isinstance(coarse, tuple):
        return coarse == product(fine)
    return isinstance(fine, tuple) and len(coarse) == len(fine) and all(map(compatible, coarse, fine))


def nested(leaves: Sequence[IntTuple], profile: IntTuple) -> IntTuple:
    """Values in the nesting of a profile with as many leaves."""
    return _nested(iter(leaves), profile)


def notation(value: IntTuple) -> str:
    """The notation of CuTe: `(4,(2,3))`."""
    return f"({','.join(map(notation, value))})" if isinstance(value, tuple) else str(value)


def parse_int_tuple(text: str) -> IntTuple:
    """The value of a notation; `_4` is equivalent to `4`, and `(4)` is a tuple of one.

    Raises:
        FormatError: the text is neither an integer nor a tuple of integers.
    """
    open_: list[list[IntTuple]] = [[]]
    position, may_end = 0, False
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None or (token[1] == "(" or token[2] is not None) == may_end:
            break
        position = token.end()
        if token[1] == "(" and len(open_) <= _MAX_DEPTH:
            open_.append([])
        elif token[1] == ")" and len(open_) > 1:
            part = tuple(open_.pop())
            open_[-1].append(part)
        elif token[2] is not None:
            open_[-1].append(int(token[2]))
        elif token[1] != "," or len(open_) == 1:
            break
        may_end = token[1] == ")" or token[2] is not None
    else:
        if len(open_) == 1 and len(open_[0]) == 1 and may_end:
            return open_[0][0]
    raise FormatError("not an integer or a tuple of integers", where=text, hint="write it like (4,(2,3))")


def _nested(leaves: Iterator[IntTuple], profile: IntTuple) -> IntTuple:
    if isinstance(profile, tuple):
        return tuple(_nested(leaves, part) for part in profile)
    return next(leaves)
