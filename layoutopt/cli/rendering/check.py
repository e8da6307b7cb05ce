"""The output of `check`."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.text import Text

from layoutopt.cli.rendering.terminal import Cell, footnote, key_values, section, show, styled_line, table, text
from layoutopt.files import path_text
from layoutopt.report.compatibility import Compatibility, KernelCheck, Machine
from layoutopt.runtime.kernel_queries import Support
from layoutopt.version import VERSION

_STYLES = {"kernel": "green", "composed": "yellow", "missing": "bold red", "unknown": "yellow"}
_WORDS = {"kernel": "kernel", "composed": "expanded to", "missing": "cannot run:", "unknown": "unknown:"}


def print_model(model: Path, compatibility: Compatibility, show_all: bool) -> None:
    """Print the verdict on a model, and its operators without a kernel, or all operators."""
    machine, problems, failure = compatibility.machine, compatibility.problems, compatibility.failure
    verdict: Cell = ("incompatible", "bold red") if problems else ("compatible", "green")
    shown = [each for each in compatibility.usages if show_all or each.domain or each.support.status != "kernel"]
    nodes = Counter[str]()
    for each in compatibility.usages:
        nodes[each.support.status] += each.nodes
    words = {"composed": "expanded to other ops", "missing": "without a kernel", "unknown": "unknown"}
    counts = [f"for {nodes['kernel']} of {nodes.total()} nodes"]
    counts += [f"{nodes[status]} {word}" for status, word in words.items() if nodes[status]]
    rows: list[tuple[str, Cell]] = [
        ("verdict", styled_line(verdict, f" onnxruntime {machine.onnxruntime} on this machine")),
        *(("" if number else "because", (each, "red")) for number, each in enumerate(problems)),
        ("block size", styled_line(_packed(compatibility), "; ", _machine_text(machine))),
        ("kernels", ", ".join(counts)),
        ("session", ("cannot be created", "red") if failure else "can be created"),
    ]
    show(styled_line((str(model), "bold")), key_values(*rows))
    if shown:
        operators: list[list[Cell]] = [
            [
                f"{each.domain}::{each.op_type}" if each.domain else each.op_type,
                each.opset or "",
                (" ".join(dtype or "-" for dtype in each.inputs), "dim"),
                each.nodes,
                _support(each.support),
            ]
            for each in shown
        ]
        content = table(["=op", ">opset", "=inputs", ">nodes", ""], operators)
        section("operators", "by the element types of their inputs", content)
    if hidden := len(compatibility.usages) - len(shown):
        footnote(f"{hidden} more, standard ONNX operators, have a kernel: --all lists them.")


def _packed(found: Compatibility) -> str:
    """The block size that the weights are packed for."""
    if found.is_portable:
        return f"portable: native kernels where blocks have {found.packed} channels, standard operators elsewhere"
    if not found.is_blocked:
        return "no blocked weights in the file"
    return f"weights packed for {f'{found.packed} channels' if found.packed else 'an unknown block size'}"


def _machine_text(machine: Machine) -> Text:
    """The block size of the machine."""
    flags = f"  {machine.target} by its CPU flags" if machine.target else ""
    return styled_line(f"onnxruntime uses {machine.block or 'no blocks'} on this machine", (flags, "dim"))


def _support(support: Support) -> Text:
    detail = f" {support.detail}" if support.detail else ""
    return styled_line((_WORDS[support.status], _STYLES[support.status]), (detail, "dim"))


def print_kernels(machine: Machine, found: Sequence[KernelCheck], show_all: bool) -> None:
    """Print the onnxruntime kernels that layoutopt emits; if `show_all`, with their restrictions."""
    available = sum(each.is_present for each in found)
    show(
        key_values(
            ("onnxruntime", machine.onnxruntime),
            ("block size", _machine_text(machine)),
            ("kernels", text(f"{available} of {len(found)} available", "" if available == len(found) else "red")),
        )
    )
    rows: list[list[Cell]] = []
    for each in found:
        kernel = each.kernel
        name = f"{kernel.domain}::{kernel.op}" if kernel.domain else kernel.op
        limits: list[Cell] = [("; ".join(kernel.limits), "dim")] if show_all else []
        rows.append([name, (" ".join(each.binding.values()), "dim"), kernel.since, _support(each.support), *limits])
    columns = ["=op", "=types", "=since", "=", *(["restrictions"] if show_all else [])]
    section("kernels", "those that layoutopt emits", table(columns, rows))
    if not show_all:
        footnote("--all lists the restrictions of each kernel, such as ranks and attributes.")


def model_record(model: Path, compatibility: Compatibility) -> dict[str, Any]:
    """The JSON record of the verdict on a model."""
    return {
        "model": path_text(model),
        "fits": not compatibility.problems,
        "problems": list(compatibility.problems),
        **_machine_record(compatibility.machine),
        "packed_for": compatibility.packed,
        "is_blocked": compatibility.is_blocked,
        "load_error": compatibility.failure or None,
        "operators": [_with_support(asdict(each)) for each in compatibility.usages],
    }


def kernels_record(machine: Machine, found: Sequence[KernelCheck]) -> dict[str, Any]:
    """The JSON record of the onnxruntime kernels that layoutopt emits."""
    kernels = [
        {
            "domain": each.kernel.domain,
            "op_type": each.kernel.op,
            "inputs": list(each.kernel.dtypes(each.binding)),
            "since": each.kernel.since,
            "limits": list(each.kernel.limits),
            "support": asdict(each.support),
        }
        for each in found
    ]
    fits = all(each.is_present for each in found)
    return {"fits": fits, **_machine_record(machine), "kernels": [_with_support(each) for each in kernels]}


def _machine_record(machine: Machine) -> dict[str, Any]:
    return {"layoutopt_version": VERSION, **asdict(machine), "target": machine.target or None}


def _with_support(record: dict[str, Any]) -> dict[str, Any]:
    support: dict[str, Any] = record.pop("support")
    return record | support
