"""Convolutions from plain or blocked to blocked arrays."""

import numpy as np

from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.onnxruntime.arrays import (
    BLOCKS,
    call,
    declared,
    feature_block,
    is_blocked,
    native,
)
from layoutopt.ir.types import Op
from layoutopt.ops import X, Y, extent


@native("Conv")
def conv(op: Op, builder: OpBuilder) -> bool:
    """A convolution from plain or blocked to blocked."""
    x, w, y = op.inputs[0], op.inputs[1], op.outputs[0]
    if not is_blocked(op, Y) or x is None or w is None or y is None or w.shape is None or x.shape is None:
        return False
    signature = op.signature
    assert signature is not None and signature.inputs[0] is not None and signature.inputs[1] is not None
    block, weight = feature_block(builder.format(Y)), signature.inputs[1].format
    depthwise = op.integer("group", 1) != 1 and w.shape[1] == 1
    wanted = f"NCHW{block}n" if depthwise or not is_blocked(op, X) else f"NCHW{block}c{block}n"
    plain_input = signature.inputs[0].format.is_canonical and extent(x.shape[1]) < BLOCKS[0] and not depthwise
    if str(weight) != wanted or not (feature_block(signature.inputs[0].format) == block or plain_input):
        return False
    target = declared(op, builder, Y)
    groups = extent(target[1]) if depthwise else op.integer("group", 1)
    inputs = [builder.raw(0), builder.raw(1)]
    if len(op.inputs) > 2 and op.inputs[2] is not None:
        bias = op.constant(2)
        if bias is None:
            return False
        inputs.append(builder.constant(np.pad(bias, (0, extent(target[1]) - bias.size)), "bias"))
    kernel = tuple(extent(dim) for dim in w.shape[2:])
    result = call(builder, "Conv", inputs, target, **{**op.attributes, "group": groups, "kernel_shape": kernel})
    builder.set_output(0, result)
    return True
