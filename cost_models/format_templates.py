"""Format templates for any rank: `N*C` is NC, NWC, NHWC or NDHWC.

The grammar is that of `Format.parse` with three additions:

    *       the axes without a letter, in order: the spatial axes, or the batch axes of matrices
    D H W   this spatial axis, if the tensor has it, otherwise nothing: `NDC*` is NCW, NCHW or NDCHW
    {C0}    the target's block size for the element type

Letters name logical axes by position: N, C of a feature map; O, I (or G, O, I) of a filter, I, O in a
transposed convolution; M, N the rows and columns of either operand of a matrix product.
"""

import re
from functools import cache
from string import ascii_uppercase

from layoutopt.errors import FormatError
from layoutopt.formats import Format

_TOKEN = re.compile(r"\*|[A-Z]|(?:[1-9][0-9]*|\{C0\})(?:_[1-9][0-9]*)?[a-z]")
_LEADS = {frozenset(letters): letters for letters in ("NC", "OI", "GOI", "MN")}
_SPATIAL = "DHW"


def check(text: str) -> str:
    """The template itself, after a check that it can be expanded.

    Raises:
        FormatError: the template does not follow the grammar.
    """
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != text or tokens.count("*") > 1:
        raise FormatError("not a format", where=f"'{text}'", hint="write it like N*C or NC*{C0}c")
    letters = [token for token in tokens if token in ascii_uppercase]
    lead, named = _split(text)
    if lead not in _LEADS or len(set(letters)) != len(letters) or (named and _LEADS[lead] == "MN"):
        hint = "name N C, O I, G O I or M N, each once"
        raise FormatError("does not name the axes", where=f"'{text}'", hint=hint)
    for rank in range(len(lead), len(lead) + len(_SPATIAL) + 1):
        expand(text, rank, 16)
    return text


@cache
def expand(text: str, rank: int, c0: int, swapped: bool = False) -> Format | None:
    """The format of a tensor of `rank` axes; None if the template has another number of axes.

    Args:
        text: the template.
        rank: number of logical axes.
        c0: the value of `{C0}`.
        swapped: whether the filter or matrix of the op has its two axes in the opposite order.
    """
    letters, named = _split(text)
    lead = _LEADS[letters]
    free = rank - len(lead)
    if free < 0:
        return None
    spare = [letter for letter in ascii_uppercase if letter not in {*lead, *_SPATIAL}]
    rest = _SPATIAL[3 - free :] if free <= 3 and lead != "MN" else "".join(spare[:free])
    if "*" not in text and not named.issuperset(rest):
        return None
    axes = lead[::-1] if swapped and lead in ("OI", "MN") else lead
    axes = rest + axes if lead == "MN" else axes + rest
    for letter in named - set(rest):
        text = text.replace(letter, "")
    others = "".join(letter for letter in rest if letter not in named)
    return Format.parse(text.replace("{C0}", str(c0)).replace("*", others), axes)


def _split(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """The letters in a template: those of its kind of tensor (N C, O I, G O I or M N), and those of spatial axes."""
    letters = frozenset(token for token in _TOKEN.findall(text) if token in ascii_uppercase)
    return letters - set(_SPATIAL), letters & set(_SPATIAL)


__all__ = ["check", "expand"]
