"""Writers of Concat, Split and Slice on blocked arrays."""

import numpy as np

from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.onnxruntime.arrays import BlockedArrays, float32_type, native_writer
from layoutopt.ir.types import Attribute, Op, Slot
from layoutopt.ops import X, Y, estimated_extent, rule_of
from layoutopt.ops.rearrangement import Slice


@native_writer("Concat", "Split")
def write_concat_or_split(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> bool:
    """Record a Concat or Split of whole blocks along the channels, or along the batch."""
    storages = (
        [] if op.signature is None else [op.signature[slot] for slot in op.slots() if slot in _operands_with_format(op)]
    )
    if any(storage is None or not arrays.feature_block(storage.format) for storage in storages) or not storages:
        return False
    format = builder.format(_operands_with_format(op)[0])
    value = op.operand(_operands_with_format(op)[0])
    assert value is not None and value.rank is not None
    axis = op.integer("axis", 1 if op.op_type == "Concat" else 0) % value.rank
    position = next(number for number, part in enumerate(format.parts) if part.axis == axis)
    if position > 1:
        return False  # the image is not an outer axis: its blocks are inner ones
    shapes = [arrays.declared(op, builder, Slot("out", index)) for index in range(len(op.outputs))]
    attributes: dict[str, Attribute] = {**op.attributes, "axis": position}
    if op.op_type == "Concat":
        inputs = [builder.declared_input(index) for index in range(len(op.inputs))]
    else:
        attributes.pop("split", None)
        attributes.pop("num_outputs", None)
        lengths = np.asarray([estimated_extent(shape[position]) for shape in shapes], dtype=np.int64)
        if op.version < 13:
            inputs, attributes["split"] = [builder.declared_input(0)], tuple(int(length) for length in lengths)
        else:
            inputs = [builder.declared_input(0), builder.constant(lengths, "split")]
    results = builder.op(op.op_type, inputs, [float32_type(shape) for shape in shapes], attributes)
    for index, result in enumerate(results):
        builder.set_output(index, result)
    return True


@native_writer("Slice")
def write_slice(op: Op, builder: OpBuilder, arrays: BlockedArrays) -> bool:
    """Record a Slice of whole blocks along the channels, as a range of the declared array."""
    rule, source = rule_of(op), op.inputs[0]
    if not isinstance(rule, Slice) or source is None or not arrays.is_blocked(op, X) or not arrays.is_blocked(op, Y):
        return False
    (axis, *others), channels = rule.sliced_axes(op) or (-1,), builder.format(X).parts[1].axis
    found = rule.range_of(op, axis) if axis == channels and not others else None
    if found is None:
        return False
    block = arrays.feature_block(builder.format(X))
    start, stop = found[0], -(-found[1] // block) * block
    target = [float32_type(arrays.declared(op, builder, Y))]
    if op.version < 10:
        fields: dict[str, Attribute] = {"starts": (start,), "ends": (stop,), "axes": (1,)}
        (result,) = builder.op("Slice", [builder.declared_input(0)], target, fields)
    else:
        numbers = [builder.constant(np.asarray([each], dtype=np.int64), "range") for each in (start, stop, 1)]
        (result,) = builder.op("Slice", [builder.declared_input(0), *numbers], target)
    builder.set_output(0, result)
    return True


def _operands_with_format(op: Op) -> list[Slot]:
    """The operands with a format: all of a Concat, all but the lengths of a Split."""
    return [slot for slot in op.slots() if op.op_type == "Concat" or slot.side == "out" or slot.index == 0]
