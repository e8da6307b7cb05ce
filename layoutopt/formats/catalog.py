"""Catalogue of named formats (`catalog.toml`), each with the system that uses it and the source of its definition.

`lookup` turns a name into a Format, which does not keep the name. {C0} is a number of elements that depends on the
dtype, so the names of Ascend need one.

Formats outside the grammar are left out: FRACTAL_Z with groups, FRACTAL_Z_C04 and C1HWNCoC0, which mix axes within a block
or hold zeros (`formats.ascend` has them as arrays, the dialect `ascend` writes them), and the swizzled layouts of CUTLASS,
which are a layout followed by a permutation of offset bits.
"""

import difflib
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from layoutopt.errors import FormatError
from layoutopt.formats.format import SCALAR, Format, Part, is_numbered
from layoutopt.record import Record
from layoutopt.registry import EntryPoints


class Entry(Record):
    """A named format.

    Attributes:
        name: the name in its system.
        system: the system, such as "oneDNN".
        notation: the format in the grammar of `Format.parse`, possibly with the placeholder {C0}.
        axes: the letters of the axes in logical order.
        note: its use or its constraints.
        source: the file that defines it.
    """

    name: str
    system: str
    notation: str
    axes: str
    note: str
    source: str

    def format(self, dtype: str | None = None, axes: str | None = None) -> Format:
        """The format, for tensors of a dtype if the notation depends on it.

        Args:
            dtype: the element type.
            axes: the letters of the logical axes in the order of the tensor, if that is another one than the entry's.

        Raises:
            FormatError: the format depends on the dtype, and none is given.
        """
        axes = self.axes if axes is None else axes
        if "{C0}" not in self.notation:
            return Format.parse(self.notation, axes)
        if dtype is None:
            raise FormatError("depends on the dtype", where=self.name, hint="give one, like float16")
        return Format.parse(self.notation.replace("{C0}", str(c0(dtype))), axes)


def format_system(system: str, source: str, *rows: tuple[str, str, str, str]) -> tuple[Entry, ...]:
    """The formats of one system.

    Args:
        system: its name, `oneDNN` for example.
        source: the document or file that defines the formats.
        rows: of each format its name, its notation, the letters of its axes in logical order, and a note.

    Raises:
        FormatError: a notation does not follow the grammar.
    """
    return tuple(Entry(name, system, notation, axes, note, source) for name, notation, axes, note in rows)


@cache
def _built_in_entries() -> tuple[Entry, ...]:
    """The formats of `catalog.toml`."""
    tables = tomllib.loads(Path(__file__).with_name("catalog.toml").read_text(encoding="utf-8"))["system"]
    return tuple(entry for each in tables for entry in format_system(each["name"], each["source"], *each["formats"]))


def _accepted(found: Any) -> tuple[Entry, ...]:
    """The formats that an entry point refers to; each notation is parsed once, so that loading raises its errors."""
    if not isinstance(found, tuple | list) or not found or not all(isinstance(each, Entry) for each in found):
        raise TypeError(
            f"is no format system but a {type(found).__name__}: make one with layoutopt.extend.format_system"
        )
    for entry in found:
        entry.format("float16")
    return tuple(found)


EXTENSIONS = EntryPoints("layoutopt.formats", _accepted)
"""Format systems of installed packages."""


@cache
def _extension_entries() -> tuple[Entry, ...]:
    return tuple(entry for found in EXTENSIONS.values() for entry in found)


_C0 = {8: 32, 4: 64, 2: 128, 1: 256}
_BITS = {"bool": 8, "half": 16, "float": 32, "double": 64}
_TEMPLATE = re.compile(r"(\w+<)([1-9][0-9]*)>")
_TAG = re.compile(r"([0-9_]*)([a-zA-Z])")


def entries() -> tuple[Entry, ...]:
    """Every entry of the catalogue, system by system; those of installed packages come last."""
    return (*_built_in_entries(), *_extension_entries())


def lookup(name: str, dtype: str | None = None, axes: str | None = None) -> Format:
    """The format with a name or a notation.

    Names of the catalogue take precedence, first exactly as written and then ignoring case. Any other text is parsed as a
    notation, in which the lower-case tags of oneDNN (`nChw8c`, `acdb`) are equivalent to upper-case letters.

    Args:
        name: a name of the catalogue, or a notation.
        dtype: the element type, like `float16`, for names whose blocks depend on it.
        axes: the letters of the logical axes in their order, if that does not follow from the name: the format NHWC of
            a tensor with the axes `"NHWC"` is canonical.

    Raises:
        FormatError: there is no such format, or it depends on a dtype and none is given.
    """
    template = _TEMPLATE.fullmatch(name)
    entry = entry_of(f"{template[1]}32>" if template else name)
    if entry and template:
        entry = replace(entry, notation=entry.notation.replace("32", template[2]))
    if entry and (axes is None or sorted(axes) == sorted(entry.axes)):
        return entry.format(dtype, axes)
    try:
        return Format.parse(_notation(name), axes)
    except FormatError as error:
        names = [entry.name for entry in entries()]
        close = difflib.get_close_matches(name, names, n=1) or difflib.get_close_matches(name.upper(), names, n=1)
        raise FormatError(error.what, where=name, hint=f"did you mean {close[0]}?" if close else error.hint) from None


def c0(dtype: str) -> int:
    """The number of elements in Ascend's innermost block: 32 bytes for types of up to 16 bits, otherwise 16 elements.

    Source: K0 of the platform table `[DtypeMKN]`, the same from Ascend 310 to 910B: 16, but 32 for int8, 64
    for int4. Chips whose cube unit computes float32 have 8 for it, as their target tables declare.

    Raises:
        FormatError: the dtype has no known width.
    """
    width = re.match(r"[a-z]+([0-9]+)", dtype.lower())
    bits = int(width[1]) if width else _BITS.get(dtype.lower())
    if bits is None:
        raise FormatError("not a dtype of known width", where=dtype, hint="name one like float16 or int8")
    return _C0.get(bits, 16)


def fractal_nz(rank: int, c0: int = 16) -> Format:
    """FRACTAL_NZ of a tensor (..., M, N): batch axes, N, M, then 16 rows of `c0` columns.

    Raises:
        FormatError: the rank is below 2.
    """
    if rank < 2:
        raise FormatError(f"is for matrices, not for rank {rank}", where="FRACTAL_NZ", hint="unsqueeze the tensor")
    rows, columns = rank - 2, rank - 1
    outer = (*range(rows), columns, rows)
    return Format((*map(Part, outer), Part(rows, 16), Part(columns, c0)))


def entry_of(name: str) -> Entry | None:
    """The entry of a name: first as it is written, then in any case; built-in ones before those of installed packages."""
    return _find(_built_in_entries(), name) or _find(_extension_entries(), name)


def _find(among: tuple[Entry, ...], name: str) -> Entry | None:
    exact = (entry for entry in among if entry.name == name)
    folded = (entry for entry in among if entry.name.casefold() == name.casefold())
    return next(exact, None) or next(folded, None)


def _notation(tag: str) -> str:
    """A tag of oneDNN in upper-case letters for outer parts: a letter without a number is an outer part in either case."""
    return (
        tag
        if tag == SCALAR or is_numbered(tag)
        else _TAG.sub(lambda token: token[0].lower() if token[1] else token[0].upper(), tag)
    )
