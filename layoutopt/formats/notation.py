"""The grammar of format names, which oneDNN and TVM share.

    format = "scalar" | part { part }
    part   = LETTER                       the outer part of an axis, such as C
           | number [_ number] letter     an inner block of that axis, such as 16c; from left to right major to minor,
                                          unless the second number is the span of the block, as in 4_3c

    format = numbered { , numbered }              for axes without letters: d0,d2,d3,d1,16d1
    numbered = [number [_ number]] d number       the same parts, with the number of the axis in place of its letter

Parsing turns letters into positions of axes. The caller declares which letter is which axis; otherwise the order
follows from the set of letters: N, C, H, W are the axes of NCHW, and O, I, H, W those of OIHW.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from string import ascii_uppercase

from layoutopt.errors import FormatError

_KNOWN_AXES = {
    frozenset(axes): axes
    for axes in (
        *("NC", "NCW", "NCHW", "NCDHW"),
        *("OI", "OIW", "OIHW", "OIDHW", "GOI", "GOIW", "GOIHW", "GOIDHW"),
        *("KCRS", "GKCRS", "KCTRS"),
        *("MN", "MK", "KN"),
        *("TN", "TNC", "LDNC", "LDIGO", "LDIO", "LDGO"),  # of recurrent networks, in oneDNN
    )
}
_DEFAULT_AXES = ("", "C", "MN", "NCW", "NCHW", "NCDHW")
SCALAR = "scalar"
"""The format of rank 0."""

_PART = re.compile(r"([A-Z])|([1-9][0-9]*)(?:_([1-9][0-9]*))?([a-z])")
_NUMBERED = re.compile(r"(?:([1-9][0-9]*)(?:_([1-9][0-9]*))?)?d([0-9]+)")


PartFields = tuple[int, int, int]
"""The fields of a `Part`: the axis, the elements of the block or 0, its span or 0 for the default."""


def parse_parts(text: str, axes: str | None = None) -> Iterator[PartFields]:
    """The parts of a format in this notation.

    Raises:
        FormatError: the text does not follow the grammar, or its letters are not those of the axes.
    """
    if text == SCALAR and axes in (None, "", SCALAR):
        return
    if is_numbered(text):
        numbered = filter(None, map(_NUMBERED.fullmatch, text.split(",")))
        yield from ((int(part[3]), int(part[1] or 0), int(part[2] or 0)) for part in numbered)
        return
    parts = list(_PART.finditer(text))
    if not text or "".join(part[0] for part in parts) != text:
        raise FormatError("not a format", where=text or "''", hint="write it like NHWC or NCHW16c")
    letters = [part[1] for part in parts if part[1]]
    axes = _axes_of(letters, text) if axes is None else axes
    if sorted(letters) != sorted(set(axes)) or len(set(axes)) != len(axes):
        raise FormatError(f"does not name each of the axes {axes} once", where=text)
    if stray := {part[4] for part in parts if part[4]} - set(axes.lower()):
        raise FormatError(f"has blocks of the unknown axes {sorted(stray)}", where=text)
    for part in parts:
        yield axes.index((part[1] or part[4]).upper()), int(part[2] or 0), int(part[3] or 0)


def write_parts(parts: Iterable[PartFields], rank: int, axes: str | None = None) -> str:
    """The notation of parts, by default with the letters of a feature map of that rank.

    Raises:
        FormatError: the number of letters is not the rank.
    """
    if axes is None:
        axes = _DEFAULT_AXES[rank] if rank < len(_DEFAULT_AXES) else ascii_uppercase[:rank]
    if len(axes) != rank:
        raise FormatError(f"{rank} axes cannot be named with the letters '{axes}'")
    return "".join(_part_text(axes[axis], block, step) for axis, block, step in parts) or SCALAR


def is_numbered(text: str) -> bool:
    """Whether a text has numbers for its axes: `d0,d2,d1`."""
    return all(map(_NUMBERED.fullmatch, text.split(",")))


def write_numbered_parts(parts: Iterable[PartFields]) -> str:
    """The notation of parts with numbers for the axes."""
    return ",".join(f"{block or ''}{f'_{step}' if step else ''}d{axis}" for axis, block, step in parts) or SCALAR


def has_default_letters(rank: int) -> bool:
    """Whether the axes of a feature map of that rank have letters."""
    return rank < len(_DEFAULT_AXES)


def _part_text(letter: str, block: int, step: int) -> str:
    if not block:
        return letter
    return f"{block}_{step}{letter.lower()}" if step else f"{block}{letter.lower()}"


def _axes_of(letters: Sequence[str], text: str) -> str:
    if len(letters) == 1 or set(letters) == set(ascii_uppercase[: len(letters)]):
        return "".join(sorted(letters))
    if axes := _KNOWN_AXES.get(frozenset(letters)):
        return axes
    raise FormatError(f"the order of the axes {letters} is ambiguous", where=text, hint="pass axes='NCHW'")
