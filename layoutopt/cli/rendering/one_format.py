"""The output of `formats NAME`: the dimensions of one format, and the offsets of the elements of a tensor in it."""

import re
from itertools import islice
from pathlib import Path

from rich.table import Table
from rich.text import Text

from layoutopt.cli.output_files import JsonRecord, reporting_written_files
from layoutopt.cli.rendering.memory_runs import MemoryRun, memory_runs
from layoutopt.cli.rendering.terminal import footnote, key_values, section, show, styled_line, table, text
from layoutopt.errors import FormatError
from layoutopt.files import FileKind, Overwrite, write_text
from layoutopt.formats import Entry, Format, Layout, entries, lookup
from layoutopt.ir.types import DType

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
        json.write(_record(name, format, letters, entry, layout, element))
        if not json.is_printed:
            _show(name, format, letters, entry, layout, element)


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


def _show(name: str, format: Format, letters: str, entry: Entry | None, layout: Layout | None, element: DType) -> None:
    about = (entry.system, entry.note) if entry is not None else ()
    rows = [("notation", styled_line((format.name(letters), "cyan"), (f"  of axes {letters}", "dim")))]
    rows += [("source", text(entry.source))] if entry is not None else []
    rows += _sizes(layout, element) if layout is not None else []
    show(styled_line((name, "bold"), (f"  {': '.join(filter(None, about))}", "dim")), key_values(*rows))
    section("physical dimensions", "outermost first", _parts(format, letters, layout, element))
    if layout is None:
        footnote("Add --shape to print strides and offsets.")
    elif layout.capacity:
        section("offsets", "in elements; the first runs of memory", _offsets(layout))


def _entry(name: str) -> Entry | None:
    """The catalogue entry of a name; the number in <> is ignored."""
    general = _NUMBER.sub("<32>", name)
    exact = (entry for entry in entries() if general == entry.name)
    folded = (entry for entry in entries() if general.casefold() == entry.name.casefold())
    return next(exact, None) or next(folded, None)


def _letters(name: str, format: Format, entry: Entry | None) -> str:
    """The letters of the axes, in their logical order."""
    if entry is not None:
        return entry.axes
    outer = [letter.upper() for digits, letter in _LEVEL.findall(name) if not digits]
    if not format.rank or len(outer) != format.rank:
        return ""
    return "".join(letter for _, letter in sorted(zip(format.order, outer, strict=True)))


def _sizes(layout: Layout, element: DType) -> list[tuple[str, Text]]:
    padding = layout.format.padding_elements(layout.shape)
    share = f"  {padding / layout.capacity:.0%} of the memory" if padding else ""
    size = f"  {_bytes(layout.capacity, element)} bytes of {element}"
    return [
        ("logical", styled_line(_shape(layout.shape), (f"  {layout.size} elements", "dim"))),
        ("physical", text(_shape(layout.physical_shape))),
        ("padding", styled_line(f"{padding} elements", (share, "dim"))),
        ("capacity", styled_line(str(layout.capacity), (size, "dim"))),
    ]


def _parts(format: Format, letters: str, layout: Layout | None, element: DType) -> Table:
    rows = table("=dimension", "=axis", ">step", *(() if layout is None else (">extent", ">stride", ">bytes")))
    for index, (part, span) in enumerate(zip(format.parts, format.spans, strict=True)):
        letter = letters[part.axis]
        step = f"_{part.step}" if part.step else ""
        cells = [text(f"{part.block}{step}{letter.lower()}" if part.block else letter, "cyan")]
        cells += [text(part.axis), text(span)]
        if layout is not None:
            stride = layout.strides[index]
            cells += [text(layout.physical_shape[index]), text(stride), text(_bytes(stride, element))]
        rows.add_row(*cells)
    return rows


def _offsets(layout: Layout) -> Table:
    rows = table(">", "")
    found = list(islice(memory_runs(layout), _MAX_RUNS + 1))
    for run in found[:_MAX_RUNS]:
        rows.add_row(*_cells(run))
    if len(found) > _MAX_RUNS:
        rows.add_row("…", "")
        padding = next((run for run in memory_runs(layout) if run.start is None), None)
        if padding is not None and padding.first > found[_MAX_RUNS - 1].last:
            rows.add_row(*_cells(padding))
    return rows


def _cells(run: MemoryRun) -> tuple[str, Text]:
    span = f"{run.first}…{run.last}" if run.last > run.first else f"{run.first}"
    return span, text(run, "" if run.start is not None else "yellow")


def _shape(extents: tuple[int, ...]) -> str:
    return ", ".join(map(str, extents)) or "scalar"


def _bytes(elements: int, element: DType) -> str:
    return f"{elements * element.bits / 8:.15g}"


def _record(
    name: str, format: Format, letters: str, entry: Entry | None, layout: Layout | None, element: DType
) -> dict[str, object]:
    parts = zip(format.parts, format.spans, strict=True)
    record: dict[str, object] = {
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
            "offsets": [run.record() for run in islice(memory_runs(layout), _MAX_RUNS)],
        }
    return record
