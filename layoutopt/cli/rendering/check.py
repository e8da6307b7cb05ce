"""What `check` prints."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from layoutopt.cli.exit_codes import UnfitError
from layoutopt.cli.files.after_writing import after_writing
from layoutopt.cli.rendering.json_records import Record
from layoutopt.cli.rendering.progress import Steps
from layoutopt.cli.rendering.terminal import facts, line, remark, section, show, table, text
from layoutopt.files import path_text
from layoutopt.report.fitness import Fitness, Found, Machine, check_kernels, check_model, this_machine
from layoutopt.runtime.kernel_queries import Support
from layoutopt.runtime.operator_usage import Usage
from layoutopt.version import VERSION

_STYLES = {"kernel": "green", "composed": "yellow", "missing": "bold red", "unknown": "yellow"}
_WORDS = {"kernel": "kernel", "composed": "no kernel, runs as", "missing": "cannot run:", "unknown": "not known:"}


def report_model(model: Path, everything: bool, json: Path | None, *, force: bool) -> None:
    """Check a file and print what there is to know.

    Raises:
        ModelError: it cannot be read.
        UnfitError: it does not fit.
    """
    record = Record(json, model, force=force)
    with Steps() as steps:
        fitness = check_model(model, steps)
    record.write(_model_record(model, fitness))
    if not record.is_printed:
        with after_writing(record.files):
            _print_model(model, fitness, everything)
    if fitness.problems:
        what, hint = next(iter(fitness.problems.items()))
        raise UnfitError(what, where=str(model), hint=hint)


def report_kernels(everything: bool, json: Path | None, *, force: bool) -> None:
    """Check the table of kernels and print it.

    Raises:
        UnfitError: a kernel is missing.
    """
    record = Record(json, force=force)
    machine, found = this_machine(), check_kernels()
    record.write(_kernels_record(machine, found))
    if not record.is_printed:
        with after_writing(record.files):
            _print_kernels(machine, found, everything)
    missing = dict.fromkeys(f"{each.kernel.domain}::{each.kernel.op}" for each in found if not each.is_there)
    if missing:
        what = f"onnxruntime {machine.onnxruntime} has no kernel for {', '.join(missing)}"
        raise UnfitError(what, hint="install a version that has")


def _print_model(model: Path, fitness: Fitness, everything: bool) -> None:
    machine, problems = fitness.machine, fitness.problems
    verdict = text("does not fit", "bold red") if problems else text("fits", "green")
    shown = [each for each in fitness.usages if everything or each.domain or each.support.status != "kernel"]
    rows: list[tuple[str, RenderableType]] = [
        ("verdict", line(verdict, f" onnxruntime {machine.onnxruntime} on this machine")),
        *(("" if number else "because", text(each, "red")) for number, each in enumerate(problems)),
        ("blocks", _blocks(fitness)),
        ("kernels", _summary(fitness.usages)),
        ("loading", text("works" if not fitness.failure else "fails", "red" if fitness.failure else "")),
    ]
    show(line((str(model), "bold")), facts(*rows))
    if shown:
        section("operators", "by the element types of their inputs", _operators(shown))
    if left := len(fitness.usages) - len(shown):
        remark(f"{left} more, ONNX's own, have a kernel: --all shows them.")


def _blocks(fitness: Fitness) -> Text:
    if not fitness.is_blocked:
        packed = "none in the file"
    else:
        packed = f"packed for {fitness.packed} channels" if fitness.packed else "packed for nobody knows what"
    return line(packed, "; ", _here(fitness.machine))


def _here(machine: Machine) -> Text:
    """The blocks of the machine."""
    flags = f"  {machine.target} by the processor's flags" if machine.target else ""
    return line(f"onnxruntime has {machine.block or 'none'} here", (flags, "dim"))


def _summary(usages: Sequence[Usage]) -> Text:
    """How many nodes have one."""
    nodes = {status: sum(each.nodes for each in usages if each.support.status == status) for status in _WORDS}
    counts = (
        f"{count} {word}"
        for status, word in (("composed", "composed of others"), ("missing", "without"), ("unknown", "not known"))
        if (count := nodes[status])
    )
    return text(", ".join([f"for {nodes['kernel']} of {sum(nodes.values())} nodes", *counts]))


def _operators(usages: Sequence[Usage]) -> Table:
    rows = table("=op", ">opset", "=inputs", ">nodes", "")
    for each in usages:
        name = f"{each.domain}::{each.op_type}" if each.domain else each.op_type
        opset, inputs = str(each.opset or ""), " ".join(dtype or "-" for dtype in each.inputs)
        rows.add_row(text(name), opset, text(inputs, "dim"), str(each.nodes), _support(each.support))
    return rows


def _support(support: Support) -> Text:
    style = _STYLES[support.status]
    return line((_WORDS[support.status], style), (f" {support.detail}" if support.detail else "", "dim"))


def _print_kernels(machine: Machine, found: Sequence[Found], everything: bool) -> None:
    there = sum(each.is_there for each in found)
    show(
        facts(
            ("onnxruntime", text(machine.onnxruntime)),
            ("blocks", _here(machine)),
            ("kernels", text(f"{there} of {len(found)} are there", "" if there == len(found) else "red")),
        )
    )
    rows = table("=op", "=types", "=since", "=", *(("limits",) if everything else ()))
    for each in found:
        row, types = each.kernel, " ".join(each.binding.values())
        limits = (text("; ".join(row.limits), "dim"),) if everything else ()
        rows.add_row(text(f"{row.domain}::{row.op}"), text(types, "dim"), row.since, _support(each.support), *limits)
    section("kernels", "those that layoutopt writes", rows)
    if not everything:
        remark("What they do not do: --all")


def _model_record(model: Path, fitness: Fitness) -> dict[str, Any]:
    return {
        "model": path_text(model),
        "fits": not fitness.problems,
        "problems": list(fitness.problems),
        **_machine_record(fitness.machine),
        "packed_for": fitness.packed,
        "is_blocked": fitness.is_blocked,
        "load_error": fitness.failure or None,
        "operators": [
            {
                "domain": each.domain,
                "op_type": each.op_type,
                "opset": each.opset,
                "inputs": [dtype or None for dtype in each.inputs],
                "nodes": each.nodes,
                "first": each.first,
                **_support_record(each.support),
            }
            for each in fitness.usages
        ],
    }


def _kernels_record(machine: Machine, found: Sequence[Found]) -> dict[str, Any]:
    return {
        "fits": all(each.is_there for each in found),
        **_machine_record(machine),
        "kernels": [
            {
                "domain": each.kernel.domain,
                "op_type": each.kernel.op,
                "inputs": list(each.kernel.dtypes(each.binding)),
                "since": each.kernel.since,
                "limits": list(each.kernel.limits),
                **_support_record(each.support),
            }
            for each in found
        ],
    }


def _machine_record(machine: Machine) -> dict[str, Any]:
    return {
        "layoutopt_version": VERSION,
        "onnxruntime": machine.onnxruntime,
        "block": machine.block,
        "target": machine.target or None,
    }


def _support_record(support: Support) -> dict[str, Any]:
    return {"status": support.status, "detail": support.detail}
