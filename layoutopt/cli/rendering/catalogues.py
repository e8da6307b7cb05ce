"""The output of `list`, `formats` and `targets` without a name: the catalogues of what layoutopt has.

A catalogue is a list of records, which JSON has as they are. A terminal shows one table, or a block per record.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias, get_args

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.output_files import JsonRecord
from layoutopt.cli.rendering.terminal import footnote, indented, key_values, show, styled_line, table
from layoutopt.cost_models import find_runtime, load_target, runtime_names, runtime_of, target_names
from layoutopt.cost_models.registry import EXTENSIONS
from layoutopt.dialects import DIALECTS, Dialect
from layoutopt.driver.pipeline import lowering_passes
from layoutopt.errors import TargetError
from layoutopt.formats import entries
from layoutopt.passes import default_pipeline
from layoutopt.passes.base import Mode, Pass
from layoutopt.registry import package_of
from layoutopt.report.operators import known_operators

Record: TypeAlias = Mapping[str, Any]


def print_operators(name: str | None, family: str | None, *, json: JsonRecord) -> None:
    """Print the operators whose name contains `name` and whose family is `family`; without these, print all.

    Raises:
        UsageError: there is no such operator or family.
    """
    operators = known_operators()
    query = (name or "").casefold().replace("::", ".")
    exact = [each for each in operators if query in (each.kind.casefold(), each.name.casefold())]
    chosen = exact or [each for each in operators if query in each.kind.casefold()]
    if not chosen:
        raise UsageError("no such operator", where=str(name), hint="`layoutopt list ops` lists them")
    if family is not None:
        _check_name("family", family, [each.family for each in operators])
        chosen = [each for each in chosen if each.family == family]
    json.write({"operators": [asdict(each) for each in chosen]})
    if not json.is_printed:
        rows = [asdict(each) | {"operator": each.kind, "formats": each.formats or each.reason} for each in chosen]
        _show_table(rows, ["=operator", "=opsets", "=family", "formats", "padding"])
        footnote(
            "An operator without a family has no layout rule, for this reason: its operands keep the canonical format."
        )


def print_runtimes(record: JsonRecord) -> None:
    """Print the runtimes, each with the targets whose default it is."""
    specs = [find_runtime(name) for name in runtime_names()]
    targets = {target: runtime_of(load_target(target).dialect).name for target in target_names()}
    records = [json.loads(spec.model_dump_json()) | {"default_of": _keys(targets, spec.name)} for spec in specs]
    record.write({"runtimes": records})
    if not record.is_printed:
        _show_blocks(records)
        footnote("Choose a runtime with optimize --runtime.")


def print_dialects(record: JsonRecord) -> None:
    """Print the dialects, each with the targets whose default it is."""
    targets = {target: load_target(target).dialect for target in target_names()}
    records = [
        {
            "name": name,
            "writes": _description(dialect),
            "default_of": _keys(targets, name),
            "passes": [each.name for each in dialect.passes],
        }
        for name, dialect in DIALECTS.items()
    ]
    record.write({"dialects": records})
    if not record.is_printed:
        _show_blocks(records)
        footnote("Choose a dialect with --config dialect=NAME.")


def _description(dialect: Dialect) -> str:
    """The first paragraph of the docstring of the dialect's module, without the dialect's name."""
    docstring = sys.modules[type(dialect).__module__].__doc__ or ""
    paragraph = " ".join(docstring.strip().split("\n\n")[0].split())
    return paragraph.partition(": ")[2] or (type(dialect).__doc__ or "").strip().split("\n")[0]


def print_passes(record: JsonRecord) -> None:
    """Print the passes of every mode, and the passes of every dialect that follow."""
    modes = {mode: _passes(default_pipeline(mode).passes) for mode in get_args(Mode)}
    dialects = {name: _passes(lowering_passes(dialect)) for name, dialect in DIALECTS.items()}
    record.write({**modes, "dialects": dialects})
    if record.is_printed:
        return
    for title, passes in (modes | {f"then, in the dialect {name}": each for name, each in dialects.items()}).items():
        show(styled_line((title, "bold")))
        _show_table(passes, ["=name", "does"])
    footnote("Print the graph after a pass with inspect --dump-ir after:PASS.")


def _passes(passes: Sequence[Pass]) -> list[dict[str, str]]:
    """Name and first line of the docstring of every pass."""
    return [{"name": each.name, "does": (type(each).__doc__ or "").strip().split("\n")[0]} for each in passes]


def print_formats(system: str | None, record: JsonRecord) -> None:
    """Print all named formats, or those of one system.

    Raises:
        UsageError: there is no such system.
    """
    systems = {entry.system.casefold(): entry.system for entry in entries()}
    if system is not None:
        system = systems.get(system.casefold(), system)
        _check_name("system", system, list(systems.values()))
    records = [asdict(entry) for entry in entries() if system in (None, entry.system)]
    record.write({"formats": records})
    if not record.is_printed:
        _show_table(records, ["=name", "=system", "=notation", "=axes", "note", "source"])
        footnote("Format strings such as NCHW8c, CHWN or OIHW4i16o are accepted as names. {C0} depends on --dtype.")


def print_targets(record: JsonRecord) -> None:
    """Print the built-in and installed targets, and mark the one that describes this machine."""
    try:
        host = str(load_target("cpu").name)
    except TargetError:
        host = ""
    specs = [load_target(name).spec for name in target_names()]
    keys = ("name", "family", "dialect", "description")
    records = [{key: getattr(spec, key) for key in keys} | {"is_host": spec.name == host} for spec in specs]
    records += [{"name": name, "package": package_of(entry)} for name, entry in EXTENSIONS.found.items()]
    record.write({"targets": records})
    if not record.is_printed:
        shown = [{"description": f"from the package {each.get('package')}"} | each for each in records]
        _show_table(shown, ["=name", "=family", "=dialect", "description"])
        footnote(f"This machine, cpu, is {host or 'none of them'}. The path of a .toml file is a target too.")


def _check_name(kind: str, name: str, known: Sequence[str]) -> None:
    """Refuse a name that no entry of a catalogue has."""
    if name not in known:
        names = ", ".join(sorted(set(known) - {""}))
        raise UsageError(f"no such {kind}", where=f"--{kind} {name}", hint=f"there are {names}")


def _keys(mapping: Mapping[str, str], value: str) -> list[str]:
    return [key for key, each in mapping.items() if each == value]


def _show_table(records: Sequence[Record], columns: Sequence[str]) -> None:
    """Print some fields of records, the first one in bold; fields that no record has are left out."""
    shown = [column for column in columns if any(each.get(column.lstrip("=")) for each in records)]
    rows = [[_text(each.get(column.lstrip("="), "")) for column in shown] for each in records]
    show(indented(table(shown, [[(first, "bold"), *rest] for first, *rest in rows])))


def _show_blocks(records: Sequence[Record]) -> None:
    """Print the fields of each record below its name."""
    for each in records:
        fields = {key: _text(value) for key, value in each.items() if value and key != "name"}
        show(styled_line((each["name"], "bold")), key_values(*((key.replace("_", " "), fields[key]) for key in fields)))


def _text(value: Any) -> str:
    """A field of a record as text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(each)}" for key, each in value.items() if each)
    return " ".join(map(_text, value)) if isinstance(value, list | tuple) else str(value)
