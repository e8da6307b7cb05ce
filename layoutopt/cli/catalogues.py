"""`formats`, `targets` and `list`: the catalogues of what layoutopt has, and one format or target in detail.

A catalogue is a list of records, which JSON has as they are. A terminal shows a table, or a document per record.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, get_args

import numpy as np
from msgspec.structs import asdict

from layoutopt.cli.commands import Kind
from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.options import Given
from layoutopt.cli.output_files import OutputFiles
from layoutopt.cli.rendering.terminal import Document
from layoutopt.cost_models import RooflineModel, find_runtime, load_target, runtime_names, runtime_of, target_names
from layoutopt.cost_models.registry import EXTENSIONS, TEMPLATE, find_target
from layoutopt.dialects import DIALECTS
from layoutopt.driver.job import lowered_passes
from layoutopt.errors import FormatError, OutputError, TargetError
from layoutopt.files import FileKind, Overwrite, path_text, write_text
from layoutopt.formats import Entry, Format, Layout, entries, lookup
from layoutopt.formats.catalog import entry_of
from layoutopt.ir.types import DType
from layoutopt.passes import default_pipeline
from layoutopt.passes.base import Mode
from layoutopt.registry import package_of
from layoutopt.report.operators import known_operators

Catalogue: TypeAlias = tuple[dict[str, Any], Sequence[Document]]
"""The record for JSON, and its text."""

_MAX_OFFSETS = 64
_LEVEL = re.compile(r"([0-9_]*)([a-zA-Z])")
_NUMBER = re.compile(r"<[0-9]+>")


# --- list --------------------------------------------------------------------------------------------------


def list_(given: Given, kind: Kind, name: str | None) -> None:
    """List operators, runtimes, passes or dialects.

    Raises:
        UsageError: there is no such operator, or the catalogue has other entries.
    """
    if kind is not Kind.OPS and name is not None:
        raise UsageError("is for operators", where=name, hint="write layoutopt list ops NAME")
    record = OutputFiles(f"list {kind}", given)
    others = {"runtimes": _runtimes, "passes": _passes, "dialects": _dialects}
    data, documents = others[kind]() if kind in others else _operators(name)
    record.show(data, *documents)


def _operators(name: str | None) -> Catalogue:
    """The operators whose name contains `name`; without it, all."""
    known = known_operators()
    query = (name or "").casefold().replace("::", ".")
    exact = [each for each in known if query in (each.kind.casefold(), each.name.casefold())]
    chosen = exact or [each for each in known if query in each.kind.casefold()]
    if not chosen:
        raise UsageError("no such operator", where=str(name), hint="`layoutopt list ops` lists them")
    note = "An operator without a family has no layout rule, for this reason: its operands keep the canonical format."
    return _table("operators", [asdict(each) for each in chosen], note)


def _runtimes() -> Catalogue:
    """The runtimes, each with the targets whose default it is."""
    targets = {target: runtime_of(load_target(target).dialect).name for target in target_names()}
    specs = [find_runtime(name) for name in runtime_names()]
    return _blocks("runtimes", targets, [spec.model_dump(mode="json") for spec in specs])


def _dialects() -> Catalogue:
    """The dialects, each with the targets whose default it is."""
    targets = {target: load_target(target).dialect for target in target_names()}
    return _blocks("dialects", targets, [_described(name, dialect) for name, dialect in DIALECTS.items()])


def _passes() -> Catalogue:
    """The passes of every mode, and the passes of every dialect that follow."""
    modes = {mode: [_described(each.name, each) for each in default_pipeline(mode).passes] for mode in get_args(Mode)}
    lowering = {
        name: [_described(each.name, each) for each in lowered_passes(dialect)] for name, dialect in DIALECTS.items()
    }
    shown = modes | {f"then, in the dialect {name}": each for name, each in lowering.items()}
    note = "Write the graph after each pass with inspect --dump-ir FOLDER."
    return {**modes, "dialects": lowering}, [Document(title="passes", record=shown, note=note)]


def _described(name: str, described: object) -> dict[str, str]:
    """A name, and the first line of the docstring of a class."""
    return {"name": name, "does": (type(described).__doc__ or "").strip().split("\n")[0]}


# --- formats -----------------------------------------------------------------------------------------------


def formats(given: Given, name: str | None) -> None:
    """List memory formats, or describe one.

    Raises:
        UsageError: there is no such system, or the shape is none.
        FormatError: there is no such format or element type, or the rank of the format differs from that of the shape.
    """
    shape = _parsed_shape(given.shape) if given.shape is not None else None
    if name is None and (given.shape or given.dtype):
        raise UsageError("no format", where="--shape" if given.shape else "--dtype", hint="name a format too")
    record = OutputFiles("formats", given)
    data, documents = _formats(given.system) if name is None else _one_format(name, shape, given.dtype)
    record.show(data, *documents)


def _parsed_shape(value: str) -> tuple[int, ...]:
    """Parse a shape: `1,17,5,4`, `1x17x5x4` or `[1, 17, 5, 4]`; the empty text is a scalar."""
    if not re.fullmatch(r"([\[(])?([0-9]+( *[,x] *[0-9]+)*)?(?(1)[\])])", value):
        raise UsageError("not a shape", where=f"--shape {value}", hint="write it like 1,17,5,4")
    return tuple(map(int, re.findall("[0-9]+", value)))


def _formats(system: str | None) -> Catalogue:
    """All named formats, or those of one system."""
    found = [asdict(each) for each in entries() if system is None or each.system.casefold() == system.casefold()]
    if not found:
        raise UsageError("no such system", where=f"--system {system}", hint="`layoutopt formats` lists them")
    note = "Format strings such as NCHW8c, CHWN or OIHW4i16o are accepted as names. {C0} depends on --dtype."
    return _table("formats", found, note)


def _one_format(name: str, shape: tuple[int, ...] | None, dtype: str | None) -> Catalogue:
    """The description of a format, with that of the layout of a tensor in it if a shape is given."""
    element = DType.FLOAT32 if dtype is None else _dtype(dtype)
    format, entry = lookup(name, dtype), entry_of(_NUMBER.sub("<32>", name))
    letters = _letters(name, format, entry)
    parts = zip(format.parts, format.spans, strict=True)
    record: dict[str, Any] = {
        "name": name,
        "notation": format.name(letters),
        "axes": letters,
        "system": getattr(entry, "system", None),
        "source": getattr(entry, "source", None),
        "parts": [{"axis": part.axis, "block": part.block or None, "step": span} for part, span in parts],
    }
    if shape is not None:
        layout = Layout(format, shape)
        strides_in_bits = (stride * element.bits for stride in layout.strides)
        record |= {
            "dtype": element.label,
            "shape": layout.shape,
            "physical_shape": layout.physical_shape,
            "strides": layout.strides,
            "byte_strides": [bits // 8 if bits % 8 == 0 else bits / 8 for bits in strides_in_bits],
            "elements": layout.size,
            "padding": layout.capacity - layout.size,
            "capacity": layout.capacity,
            "capacity_bytes": layout.capacity * element.bits // 8,
            "offsets": _elements(layout),
        }
    note = "" if shape is not None else "Add --shape to print strides and offsets."
    return record, [Document(title=name, record=record, note=note)]


def _dtype(name: str) -> DType:
    """The element type with a name such as `float16`, in any case."""
    try:
        return DType[name.upper()]
    except KeyError:
        raise FormatError("not an element type", where=name, hint="name one like float16") from None


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
    coords, is_element = layout.decode(offsets)
    indices = [*zip(*(axis[is_element].tolist() for axis in coords), strict=True)]
    found = dict(zip(offsets[is_element].tolist(), indices or [()], strict=False))
    return [{"offset": offset, "element": found.get(offset)} for offset in offsets.tolist()]


# --- targets -----------------------------------------------------------------------------------------------


def targets(given: Given, name: str | None) -> None:
    """List targets, describe one, or write the template of one.

    Raises:
        TargetError: there is no such target, its description is malformed, or it has none.
        OutputError: the file of the template exists, or cannot be written.
    """
    if given.new is not None:
        output = given.new.with_name(f"{given.new.name.removesuffix('.toml')}.toml")
        if os.path.lexists(output) and not given.force:  # it is written to be edited
            raise OutputError("exists", where=path_text(output), hint="name another file, or add --force to replace it")
        write_text(
            output, TEMPLATE.read_text(encoding="utf-8"), FileKind.TARGET, Overwrite(force=True, command="targets")
        )
        return
    reads = [Path(name)] if name is not None and name.endswith(".toml") else []
    record = OutputFiles("targets", given, reads=reads)
    data, documents = _targets() if name is None else _one_target(name)
    record.show(data, *documents)


def _targets() -> Catalogue:
    """The built-in and installed targets, and which of them describes this machine."""
    try:
        host = str(load_target("cpu").name)
    except TargetError:
        host = ""
    specs = [load_target(name).spec for name in target_names()]
    keys = ("name", "family", "dialect", "description")
    records = [{key: getattr(spec, key) for key in keys} | {"is_host": spec.name == host} for spec in specs]
    records += [{"name": name, "package": package_of(entry)} for name, entry in EXTENSIONS.found.items()]
    note = f"This machine, cpu, is {host or 'none of them'}. The path of a .toml file is a target too."
    return _table("targets", records, note)


def _one_target(name: str) -> Catalogue:
    """Every parameter of a target with its source, and its kernels."""
    model = find_target(name)
    if not isinstance(model, RooflineModel):
        raise TargetError("has no parameters to print", where=name, hint="name a target that a TOML file describes")
    spec = model.spec
    record = {
        "kind": spec.family,
        "dialect": spec.dialect,
        "parameters": [
            {"parameter": key, "value": number.value, "source": number.source}
            for key, number in reversed(list(spec.numbers()))  # memory first
            if not key.startswith("kernel")
        ],
        "kernels": [each.model_dump(exclude_defaults=True) for each in spec.kernel],
    }
    return spec.model_dump(mode="json"), [Document(title=spec.name, aside=spec.description, record=record)]


# --- documents ---------------------------------------------------------------------------------------------


def _table(name: str, records: Sequence[Mapping[str, Any]], note: str) -> Catalogue:
    return {name: records}, [Document(title=name, record={"": records}, note=note)]


def _blocks(name: str, targets: Mapping[str, str], records: Sequence[Mapping[str, Any]]) -> Catalogue:
    """A document per record, with the targets whose default it is."""
    found = [
        {**each, "default_of": [target for target, default in targets.items() if default == each["name"]]}
        for each in records
    ]
    documents = [Document(title=each["name"], record={**each, "name": ""}) for each in found]
    return {name: found}, documents
