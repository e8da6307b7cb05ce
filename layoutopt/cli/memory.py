"""One format at close range: its parts, and where the elements of a tensor lie."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from rich.table import Table

from layoutopt.cli.terminal import facts, heading, line, show, show_json, table, text
from layoutopt.errors import FormatError
from layoutopt.formats import Entry, Format, Layout, entries, lookup
from layoutopt.ir.types import DType

_RUNS = 8
_SCANNED = 1 << 16  # offsets that are looked at for runs
_LEVEL = re.compile(r"([0-9]*)([a-zA-Z])")


@dataclass(frozen=True, slots=True)
class Run:
    """Offsets that follow each other, and whose elements do too, along one axis; or lanes.

    Attributes:
        first: the first offset.
        last: the last offset.
        start: the coordinate of the first element; None for lanes.
        axis: along which the elements follow; None for one element alone.
    """

    first: int
    last: int
    start: tuple[int, ...] | None
    axis: int | None = None

    def __str__(self) -> str:
        """In the notation of an array."""
        if self.start is None:
            count = self.last - self.first + 1
            return f"{count} lane{'s' if count > 1 else ''}"
        ends = [f"{at}…{at + self.last - self.first}" if axis == self.axis else f"{at}" for axis, at in enumerate(self.start)]
        return f"x[{', '.join(ends)}]"


def print_format(name: str, shape: tuple[int, ...] | None, dtype: str | None, as_json: bool) -> None:
    """Print what is known of a format.

    Raises:
        FormatError: there is no such format, or it does not fit the shape.
    """
    element = _dtype(dtype)
    format, entry = lookup(name, dtype), _entry(name)
    letters = _letters(name, format, entry)
    layout = Layout.packed(format, shape) if shape is not None else None
    if as_json:
        show_json(_record(name, format, letters, entry, layout, element))
        return
    rows = [("spelling", line((format.name(letters), "cyan"), (f"  of the axes {letters}" if letters else "", "dim")))]
    if entry is not None:
        rows.append(("source", text(entry.source)))
    if layout is not None:
        rows += _extent_lines(layout, element)
    aside = f"{entry.system}{': ' if entry.note else ''}{entry.note}" if entry is not None else ""
    show(line((name, "bold"), (f"  {aside}", "dim")), facts(*rows), heading("parts", "outermost first"), _parts(format, letters, layout, element))
    if layout is None:
        show(line("\n", ("Add --shape to see strides and offsets.", "dim")))
    elif layout.capacity:
        show(heading("offsets", "of elements, from the first"), _offsets(layout))


def _dtype(name: str | None) -> DType:
    if name is None:
        return DType.FLOAT32
    found = next((each for each in DType if each.label == name.lower()), None)
    if found is None:
        labels = ", ".join(each.label for each in DType if each is not DType.STRING)
        raise FormatError("not an element type", where=name, hint=f"there are {labels}")
    return found


def _entry(name: str) -> Entry | None:
    """The entry of the catalogue; the number within <> does not matter."""
    general = re.sub(r"<[0-9]+>", "<32>", name)
    return next((entry for entry in entries() if general == entry.name), None) or next(
        (entry for entry in entries() if general.casefold() == entry.name.casefold()), None
    )


def _letters(name: str, format: Format, entry: Entry | None) -> str:
    """The letters of the axes, in their logical order."""
    if entry is not None:
        return entry.axes
    outer = [letter.upper() for digits, letter in _LEVEL.findall(name) if not digits]
    if sorted(set(outer)) != sorted(outer) or len(outer) != format.rank:
        return format.name() if format.rank == 0 else Format.canonical(format.rank).name()
    return "".join(letter for _, letter in sorted(zip(format.order, outer, strict=True)))


def _extent_lines(layout: Layout, element: DType) -> list[tuple[str, object]]:
    lanes = layout.format.lanes(layout.shape)
    share = f", {lanes / layout.capacity:.0%} of it lanes" if lanes else ""
    return [
        ("logical shape", text(_shape(layout.shape))),
        ("physical shape", text(_shape(layout.physical_shape))),
        ("elements", text(f"{layout.size}")),
        ("lanes", text(f"{lanes}")),
        ("capacity", text(f"{layout.capacity} elements, {_bytes(layout.capacity, element)} bytes of {element}{share}")),
    ]


def _parts(format: Format, letters: str, layout: Layout | None, element: DType) -> Table:
    if layout is None:
        rows = table("=  part", "=axis", ">one step covers")
    else:
        rows = table("=  part", "=axis", ">one step covers", ">extent", ">stride", ">bytes")
    for index, (part, span) in enumerate(zip(format.parts, format.spans, strict=True)):
        letter = letters[part.axis]
        spelling = f"{part.block}{letter.lower()}" if part.block else letter
        cells = [text(f"  {spelling}", "cyan"), text(f"{part.axis} ({letter})"), text(span)]
        if layout is not None:
            stride = layout.strides[index]
            cells += [text(layout.physical_shape[index]), text(stride), text(_bytes(stride, element))]
        rows.add_row(*cells)
    return rows


def _offsets(layout: Layout) -> Table:
    rows = table(">  offset", "holds")
    found = list(islice(runs(layout), _RUNS + 1))
    for run in found[:_RUNS]:
        rows.add_row(_span(run), text(run, "" if run.start is not None else "yellow"))
    if len(found) > _RUNS:
        rows.add_row("…", "")
        lanes = next((run for run in islice(runs(layout), _RUNS, None) if run.start is None), None)
        if lanes is not None and all(run.start is not None for run in found[:_RUNS]):
            rows.add_row(_span(lanes), line((str(lanes), "yellow"), ("  the first", "dim")))
    return rows


def _span(run: Run) -> str:
    return f"{run.first}…{run.last}" if run.last > run.first else f"{run.first}"


def runs(layout: Layout) -> Iterator[Run]:
    """The memory from its start, as far as it is looked at, cut into runs."""
    offsets = np.arange(min(layout.capacity, _SCANNED))
    held = layout.holds(offsets)
    coords = np.full((len(offsets), layout.rank), -1)
    coords[held] = np.stack(layout.inverse(offsets[held]), axis=-1) if layout.rank else coords[held]
    current: Run | None = None
    for offset, is_held, coord in zip(offsets.tolist(), held.tolist(), coords.tolist(), strict=True):
        start = tuple(coord) if is_held else None
        longer = _extended(current, start) if current is not None else None
        if longer is None and current is not None:
            yield current
        current = longer or Run(offset, offset, start)
    if current is not None:
        yield current


def _extended(run: Run, coord: tuple[int, ...] | None) -> Run | None:
    """The run with the element at the next offset, if that continues it."""
    if run.start is None or coord is None:
        return Run(run.first, run.last + 1, None) if run.start is None and coord is None else None
    moved = [axis for axis, (old, new) in enumerate(zip(run.start, coord, strict=True)) if old != new]
    if len(moved) != 1 or run.axis not in (None, moved[0]):
        return None
    if coord[moved[0]] - run.start[moved[0]] != run.last + 1 - run.first:
        return None
    return Run(run.first, run.last + 1, run.start, moved[0])


def _shape(extents: tuple[int, ...]) -> str:
    return " × ".join(map(str, extents)) or "scalar"


def _bytes(elements: int, element: DType) -> str:
    return f"{elements * element.bits / 8:g}" if elements * element.bits % 8 else f"{elements * element.bits // 8}"


def _record(
    name: str, format: Format, letters: str, entry: Entry | None, layout: Layout | None, element: DType
) -> dict[str, object]:
    record: dict[str, object] = {
        "name": name,
        "spelling": format.name(letters),
        "axes": letters,
        "system": entry.system if entry is not None else None,
        "source": entry.source if entry is not None else None,
        "parts": [
            {"axis": part.axis, "block": part.block or None, "span": span}
            for part, span in zip(format.parts, format.spans, strict=True)
        ],
    }
    if layout is not None:
        record |= {
            "dtype": element.label,
            "shape": layout.shape,
            "physical_shape": layout.physical_shape,
            "strides": layout.strides,
            "byte_strides": [stride * element.bits / 8 for stride in layout.strides],
            "elements": layout.size,
            "lanes": format.lanes(layout.shape),
            "capacity": layout.capacity,
            "offsets": [
                {"first": run.first, "last": run.last, "start": run.start, "axis": run.axis}
                for run in islice(runs(layout), _RUNS)
            ],
        }
    return record
