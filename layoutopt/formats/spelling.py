"""The grammar of format names, which oneDNN and TVM share.

    format = "scalar" | level { level }
    level  = LETTER                       the outer part of an axis, say C
           | number [_ number] letter     an inner block of that axis, say 16c; from left to right major to minor,
                                          unless the second number says how far apart its elements are, say 4_3c

Letters are only for people: here they become positions of axes. Which letter is which axis is told, or
follows from the set of letters, because the field agrees on one order for each: N, C, H, W are of NCHW.
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
_SCALAR = "scalar"
_LEVEL = re.compile(r"([A-Z])|([1-9][0-9]*)(?:_([1-9][0-9]*))?([a-z])")


Level = tuple[int, int, int]
"""The position of an axis; the number of elements of a block, or 0; how far apart these are, or 0 if that is not said."""


def read(text: str, axes: str | None = None) -> Iterator[Level]:
    """The levels of a spelling.

    Raises:
        FormatError: the spelling does not follow the grammar, or its letters are not those of the axes.
    """
    if text == _SCALAR and not axes:
        return
    levels = list(_LEVEL.finditer(text))
    if not text or "".join(level[0] for level in levels) != text:
        raise FormatError("not a format", where=text or "''", hint="spell it like NHWC or NCHW16c")
    letters = [level[1] for level in levels if level[1]]
    axes = _axes_of(letters, text) if axes is None else axes
    if sorted(letters) != sorted(set(axes)) or len(set(axes)) != len(axes):
        raise FormatError(f"does not name each of the axes {axes} once", where=text)
    if stray := {level[4] for level in levels if level[4]} - set(axes.lower()):
        raise FormatError(f"has blocks of the unknown axes {sorted(stray)}", where=text)
    for level in levels:
        yield axes.index((level[1] or level[4]).upper()), int(level[2] or 0), int(level[3] or 0)


def write(levels: Iterable[Level], rank: int, axes: str | None = None) -> str:
    """The spelling of some levels, by default with the letters of a feature map of that rank.

    Raises:
        FormatError: the number of letters is not the rank.
    """
    if axes is None:
        axes = _DEFAULT_AXES[rank] if rank < len(_DEFAULT_AXES) else ascii_uppercase[:rank]
    if len(axes) != rank:
        raise FormatError(f"{rank} axes cannot be spelled with the letters '{axes}'")
    return "".join(_spelled(axes[axis], block, step) for axis, block, step in levels) or _SCALAR


def _spelled(letter: str, block: int, step: int) -> str:
    if not block:
        return letter
    return f"{block}_{step}{letter.lower()}" if step else f"{block}{letter.lower()}"


def _axes_of(letters: Sequence[str], text: str) -> str:
    if len(letters) == 1 or set(letters) == set(ascii_uppercase[: len(letters)]):
        return "".join(sorted(letters))
    if axes := _KNOWN_AXES.get(frozenset(letters)):
        return axes
    raise FormatError(f"cannot tell the order of the axes {letters}", where=text, hint="say axes='NCHW'")
