"""Format spellings for any number of axes: `N*C` is NC, NWC, NHWC or NDHWC, as the rank demands.

The grammar is that of `Format.parse` with two additions:

    *       the axes that the letters leave out: the spatial axes, in order; for matrices the batch axes
    {C0}    the block size that the target has for the element type

Letters name logical axes by position: N, C of a feature map; O, I (or G, O, I) of a filter, I, O in a
transposed convolution; M, N the rows and columns of a matrix as the product reads it, whichever operand.
"""

import re
from functools import cache
from string import ascii_uppercase

from layoutopt.errors import FormatError
from layoutopt.formats import Format

_TOKEN = re.compile(r"\*|[A-Z]|(?:[1-9][0-9]*|\{C0\})[a-z]")
_LEADS = {frozenset(letters): letters for letters in ("NC", "OI", "GOI", "MN")}


def check(text: str) -> str:
    """The spelling, if it can be expanded.

    Raises:
        FormatError: it does not follow the grammar.
    """
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != text or tokens.count("*") > 1:
        raise FormatError("not a format", where=f"'{text}'", hint="spell it like N*C or NC*{C0}c")
    letters = [token for token in tokens if token in ascii_uppercase]
    if frozenset(letters) not in _LEADS or len(set(letters)) != len(letters):
        hint = "name N C, O I, G O I or M N, each once"
        raise FormatError("does not name the axes", where=f"'{text}'", hint=hint)
    expand(text, len(letters) + 2 * tokens.count("*"), 16)
    return text


@cache
def expand(text: str, rank: int, c0: int, swapped: bool = False) -> Format | None:
    """The format of a tensor of `rank` axes; None if the spelling has another number of axes.

    Args:
        text: the spelling.
        rank: number of logical axes.
        c0: what `{C0}` stands for.
        swapped: whether the op has the two axes of a filter or matrix the other way round.
    """
    lead = _LEADS[frozenset(token for token in _TOKEN.findall(text) if token in ascii_uppercase)]
    free = rank - len(lead)
    if free < 0 or ("*" not in text and free):
        return None
    spare = [letter for letter in ascii_uppercase if letter not in {*lead, *"DHW"}]
    rest = "DHW"[3 - free :] if free <= 3 and lead != "MN" else "".join(spare[:free])
    axes = lead[::-1] if swapped and lead in ("OI", "MN") else lead
    axes = rest + axes if lead == "MN" else axes + rest
    return Format.parse(text.replace("{C0}", str(c0)).replace("*", rest), axes)


__all__ = ["check", "expand"]
