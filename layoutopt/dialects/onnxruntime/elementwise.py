"""Ops that do not care where an element lies, and gates, which are depthwise convolutions."""

import numpy as np

from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.onnxruntime.arrays import (
    call,
    declared,
    is_blocked,
    native,
)
from layoutopt.ir.types import Array, Op, Slot, TensorType, Value
from layoutopt.ops import Y, elements, extent


def elementwise(op: Op, builder: OpBuilder) -> bool:
    """On the arrays as they are, if all operands lie alike; single numbers broadcast anyhow."""
    if not is_blocked(op, Y):
        return False
    y = op.outputs[0]
    assert y is not None and y.shape is not None
    for index, value in enumerate(op.inputs):
        if value is None:
            continue
        alike = value.shape == y.shape and op.signature is not None and op.signature.inputs[index] is not None
        if alike and builder.format(Slot("in", index)) != builder.format(Y):
            return False
        if not alike and (value.static_shape is None or elements(value.static_shape) != 1):
            return False
    target = declared(op, builder, Y)
    types = [None if each is None or each.dtype is None else TensorType(each.dtype, target) for each in op.outputs]
    results = builder.op(op.op_type, [builder.raw(index) for index in range(len(op.inputs))], types, op.attributes)
    present = [index for index, each in enumerate(op.outputs) if each is not None]
    for index, result in zip(present, results, strict=True):
        builder.set_output(index, result)
    return True


@native("Add", "Mul", "Sub")
def per_channel(op: Op, builder: OpBuilder) -> bool:
    """Mul, Add and Sub with one number per channel: a depthwise 1x1 convolution, whose filter may be computed at batch 1."""
    y = op.outputs[0]
    if elementwise(op, builder):
        return True
    if not is_blocked(op, Y) or y is None or y.shape is None or len(op.inputs) != 2:
        return False
    for index in (0, 1):
        x, other = op.inputs[index], op.inputs[1 - index]
        if x is None or other is None or x.shape != y.shape or builder.format(Slot("in", index)) != builder.format(Y):
            continue
        target = declared(op, builder, Y)
        operands = _scale_and_shift(op, builder, 1 - index, extent(target[1]))
        if operands is None:
            continue
        result = call(
            builder, "Conv", [builder.raw(index), *operands], target, group=extent(target[1]), kernel_shape=(1, 1)
        )
        builder.set_output(0, result)
        return True
    return False


def _scale_and_shift(op: Op, builder: OpBuilder, index: int, channels: int) -> list[Value] | None:
    """Filter and bias of the convolution that multiplies by, adds or subtracts input `index`; None if there is none."""
    other, y = op.inputs[index], op.outputs[0]
    assert other is not None and y is not None and y.shape is not None
    axis = builder.format(Y).parts[1].axis
    shape = (1,) * (4 - (other.rank or 0)) + tuple(other.shape or ())
    if shape != tuple(y.shape[place] if place == axis else 1 for place in range(4)):
        return None
    numbers = op.constant(index)
    if numbers is None:
        gate = builder.raw(index)
        if op.op_type != "Mul" or y.shape[builder.format(Y).parts[0].axis] != 1 or gate is None:
            return None
        return [builder.reshape(gate, (channels, 1, 1, 1))] if elements(gate.shape or ()) == channels else None
    if op.op_type == "Sub" and index == 0:
        return None
    flat: Array = np.pad(numbers.reshape(-1), (0, channels - numbers.size))
    scale = flat if op.op_type == "Mul" else np.ones_like(flat)
    filters = [builder.constant(scale.reshape(-1, 1, 1, 1), "scale")]
    if op.op_type != "Mul":
        filters.append(builder.constant(flat if op.op_type == "Add" else -flat, "shift"))
    return filters
