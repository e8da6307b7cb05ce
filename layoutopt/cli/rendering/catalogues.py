"""The catalogues of what layoutopt has: `list`, `formats` and `targets` without a name.

A catalogue is a list of records, which JSON has as they are. A terminal shows a table, or a document per record.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias, get_args

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.rendering.terminal import Document
from layoutopt.cost_models import RooflineModel, find_runtime, load_target, runtime_names, runtime_of, target_names
from layoutopt.cost_models.registry import EXTENSIONS, find_target
from layoutopt.dialects import DIALECTS
from layoutopt.driver.job import lowering_passes
from layoutopt.errors import TargetError
from layoutopt.formats import entries
from layoutopt.passes import default_pipeline
from layoutopt.passes.base import Mode, Pass
from layoutopt.registry import package_of
from layoutopt.report.operators import known_operators

Catalogue: TypeAlias = tuple[dict[str, Any], Sequence[Document]]
"""The record for JSON, and its text."""


def operators(name: str | None, family: str | None) -> Catalogue:
    """The operators whose name contains `name` and whose family is `family`; without these, all.

    Raises:
        UsageError: there is no such operator or family.
    """
    known = known_operators()
    query = (name or "").casefold().replace("::", ".")
    exact = [each for each in known if query in (each.kind.casefold(), each.name.casefold())]
    chosen = exact or [each for each in known if query in each.kind.casefold()]
    if not chosen:
        raise UsageError("no such operator", where=str(name), hint="`layoutopt list ops` lists them")
    if family is not None:
        _check_name("family", family, [each.family for each in known])
        chosen = [each for each in chosen if each.family == family]
    note = "An operator without a family has no layout rule, for this reason: its operands keep the canonical format."
    return _table("operators", [asdict(each) for each in chosen], note)


def runtimes() -> Catalogue:
    """The runtimes, each with the targets whose default it is."""
    specs = [find_runtime(name) for name in runtime_names()]
    targets = {target: runtime_of(load_target(target).dialect).name for target in target_names()}
    records = [json.loads(spec.model_dump_json()) | {"default_of": _keys(targets, spec.name)} for spec in specs]
    return {"runtimes": records}, _blocks(records)


def dialects() -> Catalogue:
    """The dialects, each with the targets whose default it is."""
    targets = {target: load_target(target).dialect for target in target_names()}
    records = [
        {
            "name": name,
            "writes": _description(type(dialect)),
            "default_of": _keys(targets, name),
            "passes": [each.name for each in dialect.passes],
        }
        for name, dialect in DIALECTS.items()
    ]
    return {"dialects": records}, _blocks(records)


def _description(dialect: type) -> str:
    """The first paragraph of the docstring of the dialect's module, without the dialect's name."""
    docstring = sys.modules[dialect.__module__].__doc__ or ""
    paragraph = " ".join(docstring.strip().split("\n\n")[0].split())
    return paragraph.partition(": ")[2] or _first_line(dialect)


def passes() -> Catalogue:
    """The passes of every mode, and the passes of every dialect that follow."""
    modes = {mode: _passes(default_pipeline(mode).passes) for mode in get_args(Mode)}
    lowering = {name: _passes(lowering_passes(dialect)) for name, dialect in DIALECTS.items()}
    shown = modes | {f"then, in the dialect {name}": each for name, each in lowering.items()}
    note = "Print the graph after a pass with inspect --dump-ir FOLDER."
    return {**modes, "dialects": lowering}, [Document(title="passes", record=shown, note=note)]


def _passes(found: Iterable[Pass]) -> list[dict[str, str]]:
    return [{"name": each.name, "does": _first_line(type(each))} for each in found]


def _first_line(described: type) -> str:
    return (described.__doc__ or "").strip().split("\n")[0]


def formats(system: str | None) -> Catalogue:
    """All named formats, or those of one system.

    Raises:
        UsageError: there is no such system.
    """
    systems = {entry.system.casefold(): entry.system for entry in entries()}
    if system is not None:
        system = systems.get(system.casefold(), system)
        _check_name("system", system, list(systems.values()))
    note = "Format strings such as NCHW8c, CHWN or OIHW4i16o are accepted as names. {C0} depends on --dtype."
    return _table("formats", [asdict(entry) for entry in entries() if system in (None, entry.system)], note)


def targets() -> Catalogue:
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


def one_target(name: str) -> Catalogue:
    """Every parameter of a target with its source, and its kernels.

    Raises:
        TargetError: there is no such target, its description is malformed, or it has none.
    """
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


def _table(name: str, records: Sequence[Mapping[str, Any]], note: str) -> Catalogue:
    record = {name: records}
    return record, [Document(title="layoutopt", record=record, note=note)]


def _blocks(records: Sequence[Mapping[str, Any]]) -> list[Document]:
    return [Document(title=each["name"], record={key: each[key] for key in each if key != "name"}) for each in records]


def _check_name(kind: str, name: str, known: Sequence[str]) -> None:
    """Refuse a name that no entry of a catalogue has."""
    if name not in known:
        names = ", ".join(sorted(set(known) - {""}))
        raise UsageError(f"no such {kind}", where=f"--{kind} {name}", hint=f"there are {names}")


def _keys(mapping: Mapping[str, str], value: str) -> list[str]:
    return [key for key, each in mapping.items() if each == value]
