"""Writers of pooling and of means over the image on blocked arrays."""

from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.onnxruntime.arrays import BlockedArrays, image_attributes, kernel_call, native_writer
from layoutopt.ir.types import Op
from layoutopt.ops import X, Y


@native_writer("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")
def write_pool(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> bool:
    """Record a pooling; not an AveragePool with `ceil_mode` that counts padding, which the kernel computes differently."""
    if not arrays.is_blocked(op, X) or any(value is not None for value in op.outputs[1:]):
        return False
    *outer, channels = builder.format(X).parts
    if [part.axis for part in outer] != list(range(len(outer))) or channels.axis != 1:
        return False  # the windows run along other axes of the array than the kernels'
    kind = op.op_type
    if kind == "AveragePool" and _has_one_window(op):
        kind = "GlobalAveragePool"
    elif kind == "AveragePool" and op.integer("ceil_mode") and op.integer("count_include_pad"):
        return False
    attributes = {} if kind.startswith("Global") else image_attributes(op)
    builder.set_output(
        0, kernel_call(builder, kind, [builder.declared_input(0)], arrays.declared(op, builder, Y), **attributes)
    )
    return True


def _has_one_window(op: Op) -> bool:
    """Whether there is one window, without padding, that contains the whole image."""
    x, y, kernel = op.inputs[0], op.outputs[0], op.integers("kernel_shape")
    if x is None or y is None or x.shape is None or y.shape is None:
        return False
    if any(op.integers("pads")) or str(op.attributes.get("auto_pad", "NOTSET")) not in ("NOTSET", "VALID"):
        return False
    inside = all(isinstance(dim, int) and dim <= size for dim, size in zip(x.shape[2:], kernel, strict=True))
    return inside and all(dim == 1 for dim in y.shape[2:])


@native_writer("ReduceMean")
def write_reduce_mean(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> bool:
    """Record a mean over the whole image as GlobalAveragePool."""
    x, y = op.inputs[0], op.outputs[0]
    if not arrays.is_blocked(op, X) or x is None or y is None or x.shape is None or y.shape is None:
        return False
    if len(y.shape) != len(x.shape):
        return False
    image = {part.axis for part in builder.format(X).parts[2:-1]}
    kept = all(y.shape[axis] == x.shape[axis] for axis in range(len(x.shape)) if axis not in image)
    if not kept or any(y.shape[axis] != 1 for axis in image):
        return False
    batch, channels, *_ = arrays.declared(op, builder, X)
    builder.set_output(
        0, kernel_call(builder, "GlobalAveragePool", [builder.declared_input(0)], (batch, channels, 1, 1))
    )
    return True
