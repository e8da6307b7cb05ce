"""Pages of the catalogues: named formats, operators, runtimes, passes and dialects."""

import inspect
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import get_args

from format_tables import formats_by_system
from tables import code, table

from layoutopt.cost_models import RuntimeSpec, find_runtime, load_target, runtime_names, runtime_of, target_names
from layoutopt.dialects import DIALECTS
from layoutopt.driver.job import lowered_passes
from layoutopt.formats import entries
from layoutopt.onnx_io.schema import ONNX_VERSION
from layoutopt.passes import default_pipeline
from layoutopt.passes.base import Mode, Pass
from layoutopt.report.operators import Operator, known_operators

_OPERATORS = """\
# Operators

Generated from the layout rules (`layoutopt list ops`): every operator of onnx {version}, and those that
onnxruntime's optimiser writes.

- *Opsets*: the versions that changed an operator, from 7 on. Models of older opsets are left unchanged.
- *Formats*: the legal formats of the operands. The target decides which of them are fast.
- *Padding*: the padding state of the outputs if the padding of all operands is zero, finite or any. *Kept* is zero → zero,
  finite → finite, any → any.
"""
_KERNELS = {"target": "all kernels of the target", "standard": "operands in canonical formats"}


def formats_page() -> str:
    """Named formats by system, with their sources: `layoutopt formats`."""
    parts = [
        "# Named formats by system\n",
        "Generated from the catalogue (`layoutopt formats`). [Formats](../formats.md) has the grammar of the notation. `{C0}` "
        "is the block size of the element type. A row with names of several systems is one format.\n",
        "## Side by side\n",
        formats_by_system(),
    ]
    in_order = sorted(entries(), key=lambda entry: entry.system.casefold())
    for system, group in groupby(in_order, key=lambda entry: entry.system):
        found = list(group)
        rows = [(code(each.name), code(each.notation), each.axes, each.note) for each in found]
        sources = "; ".join(dict.fromkeys(each.source for each in found))
        parts += [f"## {system}\n", table(("name", "notation", "axes", "note"), rows), "", f"Source: {sources}\n"]
    return "\n".join(parts)


def operators_page() -> str:
    """The operators with their formats and padding, or the reason why they have no layout rule: `layoutopt list ops`."""
    every = known_operators()
    ruled = [(each.kind, _opsets(each), each.family, each.formats, each.padding) for each in every if not each.reason]
    left = [(each.kind, _opsets(each), each.reason) for each in every if each.reason]
    return "\n".join(
        [
            _OPERATORS.format(version=ONNX_VERSION),
            table(("operator", "opsets", "family", "formats", "padding"), ruled),
            "## Operators without a layout rule\n",
            "The operands of these operators, and of those in neither table, keep the canonical format.\n",
            table(("operator", "opsets", "reason"), left),
        ]
    )


def _opsets(each: Operator) -> str:
    return ", ".join(map(str, each.opsets))


def runtimes_page() -> str:
    """The runtimes with their dialects, and the matrix of both: `layoutopt list runtimes`."""
    specs = [find_runtime(name) for name in runtime_names()]
    rows = [(code(dialect), *(_entry(spec, dialect) for spec in specs)) for dialect in DIALECTS]
    parts = [
        "# Runtimes and dialects\n",
        "Generated from `cost_models/runtimes/*.toml` (`layoutopt list runtimes`). [Runtimes](../runtimes.md) describes them, "
        "and lists which program was tried with which dialect.\n",
        table(("dialect", *(code(spec.name) for spec in specs)), rows),
        "",
    ]
    return "\n".join([*parts, *(part for spec in specs for part in _runtime(spec))])


def _entry(spec: RuntimeSpec, dialect: str) -> str:
    """The entry of the matrix: whether the runtime reads the dialect, and writes it by default."""
    if dialect not in spec.dialects:
        return ""
    return "default" if spec.dialects[0] == dialect else "yes"


def _runtime(spec: RuntimeSpec) -> Iterator[str]:
    targets = [name for name in target_names() if runtime_of(load_target(name).dialect).name == spec.name]
    rows = [
        ("description", spec.description),
        ("runs in", spec.runs_in),
        ("dialects", ", ".join(map(code, spec.dialects))),
        ("kernels", _KERNELS[spec.kernels]),
        ("default of", ", ".join(map(code, targets))),
        *(
            ("absorbs", f"Transposes of the last two axes before {', '.join(each.ops)}: {each.source}")
            for each in spec.absorbs
        ),
        *(
            ("fuses", f"{', '.join(each.ops or ('element-wise ops',))} behind {', '.join(each.family)}: {each.source}")
            for each in spec.fuses
        ),
    ]
    yield f"## {spec.name}\n"
    yield table(("", ""), rows)


def passes_page() -> str:
    """The passes of every mode and of every dialect, with their docstrings: `layoutopt list passes`."""
    parts = ["# Passes\n", "Generated from the passes (`layoutopt list passes`), in the order in which they run.\n"]
    for mode in get_args(Mode):
        parts += [f"## Mode {mode}\n", _passes(default_pipeline(mode).passes)]
    for name, dialect in DIALECTS.items():
        parts += [f"## Dialect {name}\n", f"{_summary(type(dialect))}\n", _passes(lowered_passes(dialect))]
    return "\n".join(parts)


def _passes(passes: Sequence[Pass]) -> str:
    return table(("pass", "effect"), [(code(each.name), _summary(type(each))) for each in passes])


def _summary(each: type) -> str:
    """The first line of the docstring."""
    return (inspect.getdoc(each) or "").split("\n")[0]
