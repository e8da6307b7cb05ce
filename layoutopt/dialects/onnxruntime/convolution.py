"""Convolutions from plain or blocked to blocked arrays."""

import numpy as np

from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.onnxruntime.arrays import BLOCKS, BlockedArrays, image_attributes, kernel_call, native_writer
from layoutopt.formats import Format
from layoutopt.ir.types import Op, Slot, Value
from layoutopt.ops import X, Y, estimated_extent

_W = Slot("in", 1)
_SUM = Slot("in", 3)
KINDS = ("Conv", "com.microsoft::FusedConv")
"""The op types whose filters are packed for a block."""


@native_writer(*KINDS)
def write_conv(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> bool:
    """Record a convolution of a plain or blocked input with a blocked output, a residual and an activation if it has them.

    Formats are compared by the bytes that they store: for an image of a single element, plain and blocked formats are equal,
    and signatures contain the plain one.
    """
    x, w, y = op.inputs[0], op.inputs[1], op.outputs[0]
    block = _block(op, builder, arrays)
    if not block or x is None or w is None or y is None or w.shape is None or x.shape is None or y.shape is None:
        return False
    is_depthwise = op.integer("group", 1) != 1 and w.shape[1] == 1
    axes = "NCHW" if len(w.shape) == 4 else "NCW"
    blocked = Format.parse(f"{axes}{block}c")
    is_plain_input = builder.format(X).is_canonical and estimated_extent(x.shape[1]) < BLOCKS[0] and not is_depthwise
    filters = Format.parse(f"{axes}{block}n" if is_depthwise or is_plain_input else f"{axes}{block}c{block}n")
    if not (_is_stored_in(builder, Y, y, blocked) and _is_stored_in(builder, _W, w, filters)):
        return False
    if not (is_plain_input or _is_stored_in(builder, X, x, blocked)):
        return False
    image, weight = builder.declared_input(0), builder.declared_input(1)
    assert image is not None and weight is not None
    target = arrays.declared_shape(blocked, y.shape)
    groups = estimated_extent(target[1]) if is_depthwise else op.integer("group", 1)
    shape = (
        (*x.shape[:2], *(1,) * (4 - len(x.shape)), *x.shape[2:])
        if is_plain_input
        else arrays.declared_shape(blocked, x.shape)
    )
    image = builder.reshape(image, shape)
    inputs: list[Value | None] = [image, builder.reshape(weight, arrays.declared_shape(filters, w.shape))]
    if len(op.inputs) > 2 and op.inputs[2] is not None:
        bias = op.constant(2)
        if bias is None:
            return False
        inputs.append(builder.constant(np.pad(bias, (0, estimated_extent(target[1]) - bias.size)), "bias"))
    if len(op.inputs) > 3 and (added := builder.declared_input(3)) is not None:
        if builder.format(_SUM) != builder.format(Y):
            return False
        inputs += [*[None] * (3 - len(inputs)), builder.reshape(added, target)]
    kernel = (*(1,) * (4 - len(w.shape)), *map(estimated_extent, w.shape[2:]))
    fields = {**image_attributes(op), "group": groups, "kernel_shape": kernel}
    result = kernel_call(builder, "Conv", inputs, target, **fields)
    builder.set_output(0, result)
    return True


def _block(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> int:
    """The block of the operands; 0 if all are plain or an operand has another rank than 3 or 4."""
    values = (op.inputs[0], op.inputs[1], op.outputs[0])
    if any(value is None or value.rank not in (3, 4) for value in values):
        return 0
    formats = builder.format(X), builder.format(Y)
    return max(*map(arrays.feature_block, formats), arrays.filter_block(builder.format(_W)))


def _is_stored_in(builder: OpBuilder, slot: Slot, value: Value, format: Format) -> bool:
    """Whether an operand has the bytes that it would have in a format."""
    assert value.shape is not None
    return format.fits(value.shape) and builder.format(slot).same_bytes(format, value.shape)
