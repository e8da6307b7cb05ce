"""The record of `formats NAME`: the dimensions of a format, and the offsets of the elements of a tensor in it."""

import re
from typing import Any

import numpy as np

from layoutopt.cli.rendering.catalogues import Catalogue
from layoutopt.cli.rendering.terminal import Document
from layoutopt.errors import FormatError
from layoutopt.formats import Entry, Format, Layout, lookup
from layoutopt.formats.catalog import entry_of
from layoutopt.ir.types import DType

_MAX_OFFSETS = 64
_LEVEL = re.compile(r"([0-9_]*)([a-zA-Z])")
_NUMBER = re.compile(r"<[0-9]+>")


def one_format(name: str, shape: tuple[int, ...] | None, dtype: str | None) -> Catalogue:
    """The description of a format, with that of the layout of a tensor in it if a shape is given.

    Raises:
        FormatError: there is no such format, or its rank differs from that of the shape.
    """
    element = DType.FLOAT32 if dtype is None else _dtype(dtype)
    format, entry = lookup(name, dtype), entry_of(_NUMBER.sub("<32>", name))
    letters = _letters(name, format, entry)
    parts = zip(format.parts, format.spans, strict=True)
    record: dict[str, Any] = {
        "name": name,
        "notation": format.name(letters),
        "axes": letters,
        "system": entry.system if entry is not None else None,
        "source": entry.source if entry is not None else None,
        "parts": [{"axis": part.axis, "block": part.block or None, "step": span} for part, span in parts],
    }
    if shape is not None:
        layout = Layout.packed(format, shape)
        record |= {
            "dtype": element.label,
            "shape": layout.shape,
            "physical_shape": layout.physical_shape,
            "strides": layout.strides,
            "byte_strides": [stride * element.bits / 8 for stride in layout.strides],
            "elements": layout.size,
            "padding": format.padding_elements(layout.shape),
            "capacity": layout.capacity,
            "capacity_bytes": layout.capacity * element.bits // 8,
            "offsets": _elements(layout),
        }
    note = "" if shape is not None else "Add --shape to print strides and offsets."
    return record, [Document(title=name, record=record, note=note)]


def _dtype(name: str) -> DType:
    """The element type with a name such as `float16`, in any case.

    Raises:
        FormatError: there is no such element type.
    """
    found = next((each for each in DType if each.label == name.lower()), None)
    if found is None:
        labels = ", ".join(each.label for each in DType if each is not DType.STRING)
        raise FormatError("not an element type", where=name, hint=f"there are {labels}")
    return found


def _letters(name: str, format: Format, entry: Entry | None) -> str:
    """The letters of the axes, in their logical order."""
    if entry is not None:
        return entry.axes
    outer = [letter.upper() for digits, letter in _LEVEL.findall(name) if not digits]
    if not format.rank or len(outer) != format.rank:
        return ""
    return "".join(letter for _, letter in sorted(zip(format.order, outer, strict=True)))


def _elements(layout: Layout) -> list[dict[str, Any]]:
    """The indices of the element at each of the first offsets; None for padding."""
    offsets = np.arange(min(layout.capacity, _MAX_OFFSETS))
    is_element = layout.holds(offsets)
    indices = [*zip(*(axis.tolist() for axis in layout.inverse(offsets[is_element])), strict=True)]
    found = dict(zip(offsets[is_element].tolist(), indices or [()], strict=False))
    return [{"offset": offset, "element": found.get(offset)} for offset in offsets.tolist()]
