"""Pooling, also where it is spelled as a mean."""

from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.onnxruntime.arrays import (
    call,
    declared,
    is_blocked,
    native,
)
from layoutopt.ir.types import Op
from layoutopt.ops import X, Y


@native("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")
def pool(op: Op, builder: OpBuilder) -> bool:
    """Pooling, except windows that may leave the image: there the blocked AveragePool counts otherwise."""
    if not is_blocked(op, X) or (op.op_type == "AveragePool" and op.integer("ceil_mode")):
        return False
    if any(value is not None for value in op.outputs[1:]):
        return False
    builder.set_output(0, call(builder, op.op_type, [builder.raw(0)], declared(op, builder, Y), **op.attributes))
    return True


@native("ReduceMean")
def reduce_mean(op: Op, builder: OpBuilder) -> bool:
    """The mean over all of the image is a global pooling."""
    x, y = op.inputs[0], op.outputs[0]
    if not is_blocked(op, X) or x is None or y is None or x.shape is None or y.shape is None:
        return False
    if len(y.shape) != 4:
        return False
    parts = builder.format(X).parts
    image = {parts[2].axis, parts[3].axis}
    kept = all(y.shape[axis] == x.shape[axis] for axis in range(4) if axis not in image)
    if not kept or any(y.shape[axis] != 1 for axis in image):
        return False
    batch, channels, *_ = declared(op, builder, X)
    builder.set_output(0, call(builder, "GlobalAveragePool", [builder.raw(0)], (batch, channels, 1, 1)))
    return True
