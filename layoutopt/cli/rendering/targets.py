"""The records and texts of `targets NAME`: the parameters and kernels of a target, and the estimates of an op."""

import re
from typing import Any

import numpy as np

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.rendering.terminal import Document, Row
from layoutopt.cost_models import RooflineModel, TargetSpec
from layoutopt.cost_models.kernel_matching import has_operand
from layoutopt.cost_models.registry import find_target
from layoutopt.cost_models.roofline import Work
from layoutopt.errors import ModelError, TargetError
from layoutopt.inference import lift
from layoutopt.ir.types import ArrayData, Op, Slot
from layoutopt.onnx_io import one_op
from layoutopt.ops import rule_of
from layoutopt.ops.view import View

_FORM = "write it as Conv <pads=[1,1,1,1]> (float16[1,64,56,56] x, float16[64,64,3,3] w)"
_TEXT = re.compile(r"\s*(\w+)\s*(<.*>)?\s*\((.*)\)\s*", re.DOTALL)
_USUAL = "Conv <pads=[1,1,1,1]> ({dtype}[1,64,56,56] x, {dtype}[64,64,3,3] w)"
_SHOWN = ("formats", "arithmetic_seconds", "traffic_seconds", "overhead_seconds", "seconds", "conversion_seconds")


def described_target(name: str) -> RooflineModel:
    """The cost model of a target file.

    Raises:
        TargetError: there is no such target, its description is malformed, or it has none.
    """
    model = find_target(name)
    if not isinstance(model, RooflineModel):
        raise TargetError("has no parameters to print", where=name, hint="name a target that a TOML file describes")
    return model


def target_document(spec: TargetSpec) -> Document:
    """Every parameter of a target with its source, and its kernels."""
    record = {
        "kind": spec.family,
        "dialect": spec.dialect,
        "parameters": [
            {"parameter": key, "value": number.value, "source": number.source}
            for key, number in reversed(list(spec.numbers()))  # memory first
            if not key.startswith("kernel")
        ],
        "kernels": [_kernel(each.model_dump(exclude_defaults=True)) for each in spec.kernel],
    }
    return Document(title=spec.name, aside=spec.description, record=record)


def _kernel(fields: Row) -> Row:
    """The fields of a kernel, the numbers with their sources behind the others."""
    numbers = {key: each for key, each in fields.items() if isinstance(each, dict) and "source" in each}
    texts = (f"{key} {each['value']:g} ({each['source']})" for key, each in numbers.items())
    return {key: each for key, each in fields.items() if key not in numbers} | {"numbers": "; ".join(texts)}


def estimates_record(model: RooflineModel, op_text: str | None) -> dict[str, Any]:
    """The estimate of every kernel of a target for an op, the fastest first; by default for a convolution.

    Raises:
        UsageError: the text is not an op.
    """
    known = {dtype for row in model.spec.kernel if "convolution" in row.family for dtype in row.dtypes}
    narrowest = next((dtype for dtype in ("float16", "bfloat16") if dtype in known), "float32")
    op_text = op_text or _USUAL.format(dtype=narrowest)
    op = _parsed(op_text)
    return {"target": model.name, "op": op_text, "kernels": [_record(op, each) for each in model.estimates(op)]}


def estimates_document(record: Row) -> Document:
    """The same as text: time is overhead plus the maximum of arithmetic and memory traffic."""
    kernels = []
    for each in record["kernels"]:
        kernel = each["kernel"]
        peak = f"{kernel['efficiency']['value']:.0%} {kernel['unit']}" if kernel else "vector unit, no kernel declared"
        bound = "arithmetic" if each["arithmetic_seconds"] > each["traffic_seconds"] else "memory"
        kernels.append(
            {key: each[key] for key in _SHOWN} | {"aligned": each["is_aligned"], "kernel": peak, "bound by": bound}
        )
    note = "Conversions are those of operands and results if all other ops have canonical formats."
    title = f"{record['target']}: {record['op']}"
    return Document(title=title, record={"kernels by time and conversions": kernels}, note=note)


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


def _record(op: Op, work: Work) -> dict[str, Any]:
    return {
        "formats": {role: str(work.formats[slot]) for role, slot in _roles(op).items() if slot in work.formats},
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
