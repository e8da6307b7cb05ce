"""The output of `formats NAME`: the dimensions of one format, and the offsets of the elements of a tensor in it."""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from layoutopt.cli.output_files import JsonRecord, reporting_written_files
from layoutopt.cli.rendering.terminal import Cell, footnote, key_values, section, show, styled_line, table
from layoutopt.errors import FormatError
from layoutopt.files import FileKind, Overwrite, write_text
from layoutopt.formats import Entry, Format, Layout, entries, lookup
from layoutopt.ir.types import DType

_MAX_OFFSETS = 1 << 16  # offsets
_MAX_RUNS = 8
_LEVEL = re.compile(r"([0-9_]*)([a-zA-Z])")
_NUMBER = re.compile(r"<[0-9]+>")


def print_format(
    name: str,
    shape: tuple[int, ...] | None,
    dtype: str | None,
    json: JsonRecord,
    plot: Path | None = None,
    *,
    force: bool = False,
) -> None:
    """Print the description of a format, and draw it if `plot` is given.

    Raises:
        FormatError: there is no such format, or its rank differs from that of the shape.
        OutputError: the figure cannot be written, or must not be replaced.
    """
    element = DType.FLOAT32 if dtype is None else _dtype(dtype)
    format, entry = lookup(name, dtype), _entry(name)
    letters = _letters(name, format, entry)
    layout = Layout.packed(format, shape) if shape is not None else None
    if plot is not None and layout is not None:
        from layoutopt.plot import draw_memory

        figure = draw_memory(layout, name, letters).as_svg(header='<?xml version="1.0" encoding="UTF-8"?>\n')
        write_text(plot, figure, FileKind.FIGURE, Overwrite(force=force, command="formats"))
    with reporting_written_files([plot] if plot is not None else []):
        record = _record(name, format, letters, entry, layout, element)
        json.write(record)
        if not json.is_printed:
            _show(record, entry, layout, element)


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


def _entry(name: str) -> Entry | None:
    """The catalogue entry of a name; the number in <> is ignored."""
    general = _NUMBER.sub("<32>", name)
    folded = [entry for entry in entries() if general.casefold() == entry.name.casefold()]
    return next((entry for entry in folded if general == entry.name), next(iter(folded), None))


def _letters(name: str, format: Format, entry: Entry | None) -> str:
    """The letters of the axes, in their logical order."""
    if entry is not None:
        return entry.axes
    outer = [letter.upper() for digits, letter in _LEVEL.findall(name) if not digits]
    if not format.rank or len(outer) != format.rank:
        return ""
    return "".join(letter for _, letter in sorted(zip(format.order, outer, strict=True)))


def _record(
    name: str, format: Format, letters: str, entry: Entry | None, layout: Layout | None, element: DType
) -> dict[str, Any]:
    parts = zip(format.parts, format.spans, strict=True)
    record: dict[str, Any] = {
        "name": name,
        "notation": format.name(letters),
        "axes": letters,
        "system": entry.system if entry is not None else None,
        "source": entry.source if entry is not None else None,
        "parts": [{"axis": part.axis, "block": part.block or None, "step": span} for part, span in parts],
    }
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
            "offsets": list(islice(memory_runs(layout), _MAX_RUNS)),
        }
    return record


def memory_runs(layout: Layout) -> Iterator[dict[str, Any]]:
    """The memory of a tensor as runs, up to the first 65,536 offsets: elements that are consecutive along one axis, or padding.

    Each has its first and last offset, the coordinate of the first element (None for padding), and the axis (None for a single
    element).
    """
    offsets = np.arange(min(layout.capacity, _MAX_OFFSETS))
    has_element = layout.holds(offsets)
    coords = np.zeros((len(offsets), len(layout.shape)), np.int64)
    for axis, indices in enumerate(layout.inverse(offsets[has_element])):
        coords[has_element, axis] = indices
    first = 0
    while first < len(offsets):
        is_element, last, axis = bool(has_element[first]), first, -1
        while last + 1 < len(offsets) and bool(has_element[last + 1]) == is_element:
            moved = np.flatnonzero(step := coords[last + 1] - coords[last])
            if is_element and (len(moved) != 1 or step[moved[0]] != 1 or axis not in (-1, moved[0])):
                break
            axis, last = int(moved[0]) if is_element else -1, last + 1
        start = tuple(coords[first].tolist()) if is_element else None
        yield {"first": first, "last": last, "start": start, "axis": axis if axis >= 0 else None}
        first = last + 1


def _show(record: dict[str, Any], entry: Entry | None, layout: Layout | None, element: DType) -> None:
    about = ": ".join(filter(None, (entry.system, entry.note))) if entry is not None else ""
    axes = (f"  of axes {record['axes']}", "dim")
    rows: list[tuple[str, Cell]] = [("notation", styled_line((record["notation"], "cyan"), axes))]
    rows += [("source", entry.source)] if entry is not None else []
    if layout is not None:
        padding, capacity = record["padding"], layout.capacity
        share = (f"  {padding / capacity:.0%} of the memory" if padding else "", "dim")
        nbytes = (f"  {capacity * element.bits / 8:.15g} bytes of {element}", "dim")
        rows += [
            ("logical", styled_line(_shape(layout.shape), (f"  {layout.size} elements", "dim"))),
            ("physical", _shape(layout.physical_shape)),
            ("padding", styled_line(f"{padding} elements", share)),
            ("capacity", styled_line(str(capacity), nbytes)),
        ]
    show(styled_line((record["name"], "bold"), (f"  {about}", "dim")), key_values(*rows))
    columns = ["=axis", "=block", ">step"]
    parts: list[list[Cell]] = [
        [(record["axes"][each["axis"]], "cyan"), each["block"] or "", each["step"]] for each in record["parts"]
    ]
    if layout is not None:
        columns += [">extent", ">stride", ">bytes"]
        numbers = zip(layout.physical_shape, layout.strides, record["byte_strides"], strict=True)
        parts = [[*part, *(f"{each:.15g}" for each in row)] for part, row in zip(parts, numbers, strict=True)]
    section("physical dimensions", "outermost first", table(columns, parts))
    if layout is None:
        footnote("Add --shape to print strides and offsets.")
    elif layout.capacity:
        section("offsets", "in elements; the first runs of memory", table([">", ""], _offsets(layout)))


def _offsets(layout: Layout) -> Iterator[list[Cell]]:
    """The first runs, and the first padding behind them."""
    runs = memory_runs(layout)
    yield from map(_run, islice(runs, _MAX_RUNS))
    if (following := next(runs, None)) is not None:
        yield ["…", ""]
        padding = next((run for run in (following, *runs) if run["start"] is None), None)
        yield from [_run(padding)] if padding is not None else []


def _run(run: dict[str, Any]) -> list[Cell]:
    """A run in array notation; the last index is included."""
    first, last, start = run["first"], run["last"], run["start"]
    count, span = last - first + 1, f"{first}…{last}" if last > first else f"{first}"
    if start is None:
        return [span, (f"{count} padding element{'s' if count > 1 else ''}", "yellow")]
    indices = (f"{at}…{at + count - 1}" if axis == run["axis"] else str(at) for axis, at in enumerate(start))
    return [span, f"x[{', '.join(indices)}]"]


def _shape(extents: tuple[int, ...]) -> str:
    return ", ".join(map(str, extents)) or "scalar"
