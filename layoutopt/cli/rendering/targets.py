"""The output of `targets NAME`: the parameters and kernels of a target, and the estimated time of an op in each kernel."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.output_files import JsonRecord
from layoutopt.cli.rendering.terminal import Cell, footnote, key_values, seconds, section, show, styled_line, table
from layoutopt.cost_models import RooflineModel, TargetSpec, load_target
from layoutopt.cost_models.kernel_matching import has_operand
from layoutopt.cost_models.registry import find_target
from layoutopt.cost_models.roofline import Work
from layoutopt.cost_models.spec import KernelSpec, Sourced
from layoutopt.errors import ModelError, TargetError
from layoutopt.inference import lift
from layoutopt.ir.types import ArrayData, Op, Slot
from layoutopt.onnx_io import one_op
from layoutopt.ops import rule_of
from layoutopt.ops.view import View

_UNITS = {"bandwidth": "B/s", "capacity": "B", "overhead": "s"}
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
_FORM = "write it as Conv <pads=[1,1,1,1]> (float16[1,64,56,56] x, float16[64,64,3,3] w)"
_TEXT = re.compile(r"\s*(\w+)\s*(<.*>)?\s*\((.*)\)\s*", re.DOTALL)
_USUAL = "Conv <pads=[1,1,1,1]> ({dtype}[1,64,56,56] x, {dtype}[64,64,3,3] w)"


def print_target(name: str, json: JsonRecord) -> None:
    """Print every parameter of a target with its source, and its kernels.

    Raises:
        TargetError: there is no such target, its description is malformed, or it has none.
    """
    model = find_target(name)
    if not isinstance(model, RooflineModel):
        raise TargetError("has no parameters to print", where=name, hint="name a target that a TOML file describes")
    spec = model.spec
    json.write(spec.model_dump(mode="json"))
    if json.is_printed:
        return
    about = key_values(("kind", spec.family), ("dialect", spec.dialect))
    show(styled_line((spec.name, "bold"), (f"  {spec.description}", "dim")), about)
    section("parameters", "with their sources", table(["=parameter", ">value", "source"], _numbers(spec)))
    if spec.kernel:
        rows: list[list[Cell]] = [
            [_ops(each), (" ".join(each.dtypes), "dim"), (_formats(each), "cyan"), _peak(each), (_remarks(each), "dim")]
            for each in spec.kernel
        ]
        title = "fraction of a unit's peak; other formats are emulated with layout conversions"
        section("kernels", title, table(["ops", "types", "formats", ">peak", "source"], rows))


def _numbers(spec: TargetSpec) -> Iterator[list[Cell]]:
    for key, number in reversed(list(spec.numbers())):  # memory first
        if not key.startswith("kernel"):
            yield [key, (_quantity(key, number), "cyan"), (number.source, "dim")]


def _quantity(key: str, number: Sourced) -> str:
    unit = "op/s" if key.startswith("rates") else _UNITS.get(key.rpartition(".")[2], "")
    if not unit or not number.value:
        return f"{number.value:g}"
    scale, prefix = next((pair for pair in _PREFIXES if number.value >= pair[0]), _PREFIXES[-1])
    return f"{number.value / scale:g} {prefix}{unit}"


def _ops(kernel: KernelSpec) -> str:
    names = ", ".join(kernel.ops or kernel.family)
    return f"{names} {'/'.join(kernel.variant)}" if kernel.variant else names


def _formats(kernel: KernelSpec) -> str:
    names = [f"{role}:{name}" for role, name in kernel.formats.items()]
    if kernel.strided:
        names.append("strided" if kernel.strided is True else f"strided by {kernel.strided}")
    if kernel.results is not None:
        names.append(f"into {'/'.join(kernel.results)}")
    return " ".join(names) or "any"


def _peak(kernel: KernelSpec, *, is_aligned: bool = True) -> str:
    efficiency = (None if is_aligned else kernel.unaligned_efficiency) or kernel.efficiency
    return f"{efficiency.value:.0%} {kernel.unit}"


def _remarks(kernel: KernelSpec) -> str:
    """The source of the efficiency, then the other parameters of the kernel with their sources."""
    others = {
        "of peak bandwidth": kernel.bandwidth_efficiency,
        "elements alignment": kernel.align,
        "of peak if unaligned": kernel.unaligned_efficiency,
        "channels maximum": kernel.max_channels,
        "divides the channel count": kernel.channel_multiple,
        "batch minimum": kernel.min_batch,
        "s minimum": kernel.overhead,
    }
    given = [f"{each.value:g} {what}: {each.source}" for what, each in others.items() if each is not None]
    return "; ".join([kernel.efficiency.source, *given])


# --- the estimates of an op --------------------------------------------------------------------------------


def print_estimates(name: str, op_text: str | None, json: JsonRecord) -> None:
    """Print the estimate of every kernel of a target for an op, the fastest first.

    Args:
        name: the target.
        op_text: the op, in ONNX's text syntax; None for a convolution.
        json: the destination of the JSON record.

    Raises:
        TargetError: there is no such target.
        UsageError: the text is not an op.
    """
    model = load_target(name)
    known = {dtype for row in model.spec.kernel if "convolution" in row.family for dtype in row.dtypes}
    narrowest = next((dtype for dtype in ("float16", "bfloat16") if dtype in known), "float32")
    op_text = op_text or _USUAL.format(dtype=narrowest)
    op = _parsed(op_text)
    estimates = model.estimates(op)
    json.write({"target": model.name, "op": op_text, "kernels": [_record(op, each) for each in estimates]})
    if json.is_printed:
        return
    columns = ["=formats", "=kernel", ">arithmetic", ">traffic", ">overhead", ">time", ">conversions", "bound by"]
    title = "kernels by total time, if all other ops have canonical formats"
    section(f"{model.name}: {op_text}", title, table(columns, [_row(op, each) for each in estimates]))
    footnote(
        "Time is overhead plus the maximum of arithmetic and memory traffic. Filters are packed ahead of time, at no cost."
    )


def _parsed(op_text: str) -> Op:
    """Parse an op in ONNX's text syntax.

    Raises:
        UsageError: the text is not an op, or the types of its outputs cannot be inferred.
    """
    where = f"--op {op_text}"
    match = _TEXT.fullmatch(op_text)
    if match is None:
        raise UsageError("is not an op", where=where, hint=_FORM)
    try:
        graph = lift(one_op(*match.groups(default="")))
    except ModelError as error:
        raise UsageError(f"is not an op: {error.what}", where=where, hint=_FORM) from None
    op = graph.ops[0]
    if isinstance(rule_of(op), View):
        what = (
            f"has no kernel: {op.kind} is a metadata-only op, free if the format of its output follows from its input"
        )
        raise UsageError(what, where=where, hint="choose another op")
    filters = op.operand(slot) if (slot := _roles(op).get("w")) is not None else None
    if filters is not None and filters.static_shape is not None and filters.dtype is not None:
        filters.data = ArrayData(np.broadcast_to(np.zeros((), filters.dtype.numpy), filters.static_shape))
    return op


def _roles(op: Op) -> dict[str, Slot]:
    """The slots of an op by role: x, w, y, or a, b, y."""
    rule = rule_of(op)
    return {role: slot for role, slot in rule.roles(op).items() if has_operand(op, slot)} if rule is not None else {}


def _operand_formats(op: Op, work: Work) -> dict[str, str]:
    """The format of every operand of the op, by role."""
    return {role: str(work.formats[slot]) for role, slot in _roles(op).items() if slot in work.formats}


def _row(op: Op, each: Work) -> list[Cell]:
    kernel, is_aligned = each.kernel, each.is_aligned
    remarks = ["arithmetic" if each.arithmetic > each.traffic else "memory"]
    remarks += [] if each.overlaps else ["arithmetic and traffic do not overlap"]
    if kernel is not None:
        remarks += [f"extents are not multiples of {kernel.align.value}"] if not is_aligned and kernel.align else []
        remarks += ["any format of the operands"] if kernel.direct else []
        remarks += ["operands may be transposed"] if kernel.strided else []
    formats = " ".join(f"{role}:{format}" for role, format in _operand_formats(op, each).items())
    peak = _peak(kernel, is_aligned=is_aligned) if kernel is not None else "vector unit, no kernel declared"
    times = (each.arithmetic, each.traffic, each.overhead, each.seconds, each.conversions)
    return [(formats, "cyan"), (peak, "dim"), *map(seconds, times), ("; ".join(remarks), "dim")]


def _record(op: Op, work: Work) -> dict[str, Any]:
    return {
        "formats": _operand_formats(op, work),
        "kernel": work.kernel.model_dump(mode="json") if work.kernel is not None else None,
        "operations": work.operations,
        "bytes": work.nbytes,
        "is_aligned": work.is_aligned,
        "arithmetic_seconds": work.arithmetic,
        "traffic_seconds": work.traffic,
        "overhead_seconds": work.overhead,
        "overlaps": work.overlaps,
        "seconds": work.seconds,
        "conversion_seconds": work.conversions,
    }
