"""The output of `check`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from layoutopt.cli.rendering.terminal import footnote, key_values, section, show, styled_line, table, text
from layoutopt.files import path_text
from layoutopt.report.compatibility import Compatibility, KernelCheck, Machine
from layoutopt.runtime.kernel_queries import Support
from layoutopt.runtime.operator_usage import Usage
from layoutopt.version import VERSION

_STYLES = {"kernel": "green", "composed": "yellow", "missing": "bold red", "unknown": "yellow"}
_WORDS = {"kernel": "kernel", "composed": "expanded to", "missing": "cannot run:", "unknown": "unknown:"}


def print_model(model: Path, compatibility: Compatibility, show_all: bool) -> None:
    """Print the verdict on a model, and its operators without a kernel, or all operators."""
    machine, problems = compatibility.machine, compatibility.problems
    verdict = text("incompatible", "bold red") if problems else text("compatible", "green")
    shown = [each for each in compatibility.usages if show_all or each.domain or each.support.status != "kernel"]
    rows: list[tuple[str, RenderableType]] = [
        ("verdict", styled_line(verdict, f" onnxruntime {machine.onnxruntime} on this machine")),
        *(("" if number else "because", text(each, "red")) for number, each in enumerate(problems)),
        ("block size", _blocks(compatibility)),
        ("kernels", _summary(compatibility.usages)),
        (
            "session",
            text(
                "can be created" if not compatibility.failure else "cannot be created",
                "red" if compatibility.failure else "",
            ),
        ),
    ]
    show(styled_line((str(model), "bold")), key_values(*rows))
    if shown:
        section("operators", "by the element types of their inputs", _operators(shown))
    if hidden := len(compatibility.usages) - len(shown):
        footnote(f"{hidden} more, standard ONNX operators, have a kernel: --all lists them.")


def _blocks(compatibility: Compatibility) -> Text:
    if compatibility.is_portable:
        packed = (
            f"portable: native kernels where blocks have {compatibility.packed} channels, standard operators elsewhere"
        )
    elif not compatibility.is_blocked:
        packed = "no blocked weights in the file"
    else:
        packed = (
            f"weights packed for {compatibility.packed} channels"
            if compatibility.packed
            else "weights packed for an unknown block size"
        )
    return styled_line(packed, "; ", _machine_text(compatibility.machine))


def _machine_text(machine: Machine) -> Text:
    """The block size of the machine."""
    flags = f"  {machine.target} by its CPU flags" if machine.target else ""
    return styled_line(f"onnxruntime uses {machine.block or 'no blocks'} on this machine", (flags, "dim"))


def _summary(usages: Sequence[Usage]) -> Text:
    """The number of nodes with a kernel, and of those without."""
    nodes = {status: sum(each.nodes for each in usages if each.support.status == status) for status in _WORDS}
    counts = (
        f"{count} {word}"
        for status, word in (
            ("composed", "expanded to other ops"),
            ("missing", "without a kernel"),
            ("unknown", "unknown"),
        )
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
    return styled_line((_WORDS[support.status], style), (f" {support.detail}" if support.detail else "", "dim"))


def print_kernels(machine: Machine, found: Sequence[KernelCheck], show_all: bool) -> None:
    """Print the onnxruntime kernels that layoutopt emits; if `show_all`, with their restrictions."""
    available = sum(each.is_present for each in found)
    show(
        key_values(
            ("onnxruntime", text(machine.onnxruntime)),
            ("block size", _machine_text(machine)),
            ("kernels", text(f"{available} of {len(found)} available", "" if available == len(found) else "red")),
        )
    )
    rows = table("=op", "=types", "=since", "=", *(("restrictions",) if show_all else ()))
    for each in found:
        kernel, types = each.kernel, " ".join(each.binding.values())
        limits = (text("; ".join(kernel.limits), "dim"),) if show_all else ()
        rows.add_row(
            text(f"{kernel.domain}::{kernel.op}" if kernel.domain else kernel.op),
            text(types, "dim"),
            kernel.since,
            _support(each.support),
            *limits,
        )
    section("kernels", "those that layoutopt emits", rows)
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
            for each in compatibility.usages
        ],
    }


def kernels_record(machine: Machine, found: Sequence[KernelCheck]) -> dict[str, Any]:
    """The JSON record of the onnxruntime kernels that layoutopt emits."""
    return {
        "fits": all(each.is_present for each in found),
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
