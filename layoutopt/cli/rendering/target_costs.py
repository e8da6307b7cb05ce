"""The output of `targets --explain` and `targets --op`: the estimated time of an op in each kernel, and its parts."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.table import Table

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.output_files import JsonRecord
from layoutopt.cli.rendering.terminal import footnote, seconds, section, table, text
from layoutopt.cost_models import RooflineModel, load_target
from layoutopt.cost_models.kernel_matching import has_operand
from layoutopt.cost_models.roofline import Work
from layoutopt.errors import ModelError
from layoutopt.inference import lift
from layoutopt.ir.types import ArrayData, Op, Slot
from layoutopt.onnx_io import one_op
from layoutopt.ops import rule_of
from layoutopt.ops.view import View

_FORM = "write it as Conv <pads=[1,1,1,1]> (float16[1,64,56,56] x, float16[64,64,3,3] w)"
_TEXT = re.compile(r"\s*(\w+)\s*(<.*>)?\s*\((.*)\)\s*", re.DOTALL)
_USUAL = "Conv <pads=[1,1,1,1]> ({dtype}[1,64,56,56] x, {dtype}[64,64,3,3] w)"


def print_estimates(name: str, text: str | None, json: JsonRecord) -> None:
    """Print the estimate of every kernel of a target for an op, the fastest first.

    Args:
        name: the target.
        text: the op, in ONNX's text syntax; None for a convolution.
        json: the destination of the JSON record.

    Raises:
        TargetError: there is no such target.
        UsageError: the text is not an op.
    """
    model = load_target(name)
    text = text or _USUAL.format(dtype=_dtype(model))
    op = parse_op(text)
    estimates = model.estimates(op)
    json.write({"target": model.name, "op": text, "kernels": [_record(op, each) for each in estimates]})
    if json.is_printed:
        return
    section(
        f"{model.name}: {text}",
        "kernels by total time, if all other ops have canonical formats",
        _table(op, estimates),
    )
    footnote(
        "Time is overhead plus the maximum of arithmetic and memory traffic. Filters are packed ahead of time, at no cost."
    )


def parse_op(text: str) -> Op:
    """Parse an op in ONNX's text syntax.

    Raises:
        UsageError: the text is not an op, or the types of its outputs cannot be inferred.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise UsageError("is not an op", where=f"--op {text}", hint=_FORM)
    try:
        graph = lift(one_op(*match.groups(default="")))
    except ModelError as error:
        raise UsageError(f"is not an op: {error.what}", where=f"--op {text}", hint=_FORM) from None
    op = graph.ops[0]
    rule = rule_of(op)
    if isinstance(rule, View):
        what = (
            f"has no kernel: {op.kind} is a metadata-only op, free if the format of its output follows from its input"
        )
        raise UsageError(what, where=f"--op {text}", hint="choose another op")
    filters = op.operand(slot) if (slot := _roles(op).get("w")) is not None else None
    if filters is not None and filters.static_shape is not None and filters.dtype is not None:
        filters.data = ArrayData(np.broadcast_to(np.zeros((), filters.dtype.numpy), filters.static_shape))
    return op


def _dtype(model: RooflineModel) -> str:
    """The narrowest floating-point type that the target has a convolution for."""
    known = {dtype for row in model.spec.kernel if "convolution" in row.family for dtype in row.dtypes}
    return next((dtype for dtype in ("float16", "bfloat16") if dtype in known), "float32")


def _table(op: Op, estimates: list[Work]) -> Table:
    rows = table("=formats", "=kernel", ">arithmetic", ">traffic", ">overhead", ">time", ">conversions", "bound by")
    for each in estimates:
        by = "arithmetic" if each.arithmetic > each.traffic else "memory"
        rows.add_row(
            text(" ".join(_formats(op, each)), "cyan"),
            text(_kernel(each), "dim"),
            seconds(each.arithmetic),
            seconds(each.traffic),
            seconds(each.overhead),
            text(seconds(each.seconds), "bold"),
            seconds(each.conversions),
            text(
                "; ".join([by if each.overlaps else f"{by}, arithmetic and traffic do not overlap", *_remarks(each)]),
                "dim",
            ),
        )
    return rows


def _formats(op: Op, estimate: Work) -> Iterator[str]:
    """The format of every operand of the op, by role."""
    for role, slot in _roles(op).items():
        if slot in estimate.formats:
            yield f"{role}:{estimate.formats[slot]}"


def _roles(op: Op) -> dict[str, Slot]:
    """The slots of an op by role: x, w, y, or a, b, y."""
    rule = rule_of(op)
    return {role: slot for role, slot in rule.roles(op).items() if has_operand(op, slot)} if rule is not None else {}


def _kernel(estimate: Work) -> str:
    kernel = estimate.kernel
    if kernel is None:
        return "vector unit, no kernel declared"
    efficiency = kernel.efficiency
    if not estimate.is_aligned and kernel.unaligned_efficiency is not None:
        efficiency = kernel.unaligned_efficiency
    return f"{efficiency.value:.0%} {kernel.unit}"


def _remarks(estimate: Work) -> Iterator[str]:
    kernel = estimate.kernel
    if kernel is not None and not estimate.is_aligned and kernel.align is not None:
        yield f"extents are not multiples of {kernel.align.value}"
    if kernel is not None and kernel.direct:
        yield "any format of the operands"
    if kernel is not None and kernel.strided:
        yield "operands may be transposed"


def _record(op: Op, estimate: Work) -> dict[str, Any]:
    return {
        "formats": dict(each.split(":", 1) for each in _formats(op, estimate)),
        "kernel": estimate.kernel.model_dump(mode="json") if estimate.kernel is not None else None,
        "operations": estimate.operations,
        "bytes": estimate.nbytes,
        "is_aligned": estimate.is_aligned,
        "arithmetic_seconds": estimate.arithmetic,
        "traffic_seconds": estimate.traffic,
        "overhead_seconds": estimate.overhead,
        "overlaps": estimate.overlaps,
        "seconds": estimate.seconds,
        "conversion_seconds": estimate.conversions,
    }
