"""The record and the text of `formats NAME`: the dimensions of a format, and the offsets of the elements of a tensor in it."""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from layoutopt.cli.rendering.terminal import Document, Row
from layoutopt.errors import FormatError
from layoutopt.formats import Entry, Format, Layout, lookup
from layoutopt.formats.catalog import entry_of
from layoutopt.ir.types import DType

_MAX_OFFSETS = 1 << 16  # offsets
_MAX_RUNS = 8
_LEVEL = re.compile(r"([0-9_]*)([a-zA-Z])")
_NUMBER = re.compile(r"<[0-9]+>")
_BREAK, _PADDING = -1, -2  # links of neighbours in memory that are not along an axis


def format_record(name: str, shape: tuple[int, ...] | None, dtype: str | None) -> tuple[dict[str, Any], Layout | None]:
    """The description of a format, and the layout of a tensor in it if a shape is given.

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
    layout = Layout.packed(format, shape) if shape is not None else None
    if layout is not None:
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
            "offsets": list(islice(memory_runs(layout), _MAX_RUNS)),
        }
    return record, layout


def format_document(record: Row) -> Document:
    """The same as text, with a line per physical dimension, the outermost first, and per run of memory."""
    columns = ("physical_shape", "strides", "byte_strides")
    numbers = zip(*(record[key] for key in columns), strict=True) if "shape" in record else [()] * len(record["parts"])
    dimensions = [
        {"axis": record["axes"][part["axis"] :][:1], "block": part["block"], "step": part["step"]}
        | dict(zip(("extent", "stride", "byte stride"), row, strict=bool(row)))
        for part, row in zip(record["parts"], numbers, strict=True)
    ]
    runs = [dict(zip(("offset", "element"), _run(each), strict=True)) for each in record.get("offsets", ())]
    shown = {key: value for key, value in record.items() if key not in ("name", "parts", *columns[1:])}
    note = "" if "shape" in record else "Add --shape to print strides and offsets."
    return Document(title=record["name"], record=shown | {"dimensions": dimensions, "offsets": runs}, note=note)


def _run(run: Row) -> tuple[str, str]:
    """A run in array notation; the last index is included."""
    first, last, start = run["first"], run["last"], run["start"]
    count, span = last - first + 1, f"{first}…{last}" if last > first else f"{first}"
    if start is None:
        return span, f"{count} padding element{'s' if count > 1 else ''}"
    indices = (f"{at}…{at + count - 1}" if axis == run["axis"] else str(at) for axis, at in enumerate(start))
    return span, f"x[{', '.join(indices)}]"


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


def memory_runs(layout: Layout) -> Iterator[dict[str, Any]]:
    """The memory of a tensor as runs, up to the first 65,536 offsets: elements that are consecutive along one axis, or padding.

    Each has its first and last offset, the coordinate of the first element (None for padding), and the axis (None for a single
    element).
    """
    offsets = np.arange(min(layout.capacity, _MAX_OFFSETS))
    has_element = layout.holds(offsets)
    coords = np.zeros((len(offsets), max(len(layout.shape), 1)), np.int64)
    for axis, indices in enumerate(layout.inverse(offsets[has_element])):
        coords[has_element, axis] = indices
    steps = np.diff(coords, axis=0)
    is_unit = (steps.sum(1) == 1) & (np.abs(steps).sum(1) == 1) & has_element[1:] & has_element[:-1]
    others = np.where(has_element[1:] | has_element[:-1], _BREAK, _PADDING)
    links = [*np.where(is_unit, steps.argmax(1), others).tolist(), _BREAK]
    first = 0
    for last, link in enumerate(links[: len(offsets)]):
        if link == _BREAK or (last > first and link != links[last - 1]):
            axis = links[first] if last > first and links[first] >= 0 else None
            start = tuple(coords[first].tolist())[: len(layout.shape)] if has_element[first] else None
            yield {"first": first, "last": last, "start": start, "axis": axis}
            first = last + 1
