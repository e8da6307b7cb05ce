"""Multiplies the filter of the next convolution by a gate, one number per channel, in place of the image.

before: Conv(depthwise 1x1, filter = gate)(x) -> Conv(w)
after:  Conv(w * gate)(x)

A convolution adds up over the channels, so it does not matter whether the image or the filter is scaled, and early in a
network filters are much smaller than images. Later they are not: it is done where it is less work.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from layoutopt.dialects.onnxruntime.arrays import BLOCKS, DOMAIN
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, ArrayData, Attribute, Data, DType, Op, TensorType, Value
from layoutopt.ops.signatures import estimated_extent
from layoutopt.passes.base import Pass, PassContext

# Seconds per element and per op, measured with onnxruntime 1.31.1 on one thread of an AMD EPYC with AVX-512.
_IMAGE = 0.28e-9  # a depthwise 1x1 convolution
_FILTER = 0.7e-9  # a Mul that is broadcast over the outputs of a block
_OPS = 3e-6


@dataclass(frozen=True, slots=True)
class _Reshaped:
    """A constant under another shape."""

    data: Data
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self.data.nbytes

    def numpy(self) -> Array:
        """Its elements."""
        return self.data.numpy().reshape(self.shape)

    def with_data(self, data: Data, nbytes: int) -> "_Reshaped":
        """Another constant under this shape."""
        del nbytes
        return _Reshaped(data, self.shape)


@dataclass(frozen=True, slots=True)
class ScaleFilters(Pass):
    """Scale the next convolution's filter by computed numbers per channel, in place of the image, where that is less work."""

    name = "scale-filters"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Scale the filters of graphs that are packed for a block."""
        if context.block not in BLOCKS:
            return
        for op in graph.ops:
            reader = _reader(graph, op)
            if reader is not None and _is_less_work(op, reader):
                _move(graph, op, reader, context.block)


def _reader(graph: Graph, gate: Op) -> Op | None:
    """The convolution that alone reads what a gate has scaled."""
    if gate.op_type != "Conv" or gate.domain != DOMAIN:
        return None
    x, weight, y = gate.inputs[0], gate.inputs[1], gate.outputs[0]
    if x is None or weight is None or y is None:
        return None
    if weight.is_constant or weight.static_shape is None or weight.static_shape[1:] != (1, 1, 1):
        return None
    plain = len(gate.inputs) == 2 and "activation" not in gate.attributes
    if not plain or x.shape != y.shape or gate.integer("group", 1) != weight.static_shape[0] or graph.is_output(y):
        return None
    uses = graph.uses(y)
    reader = uses[0].op if len(uses) == 1 and uses[0].index == 0 else None
    if reader is None or reader.op_type != "Conv" or reader.domain != DOMAIN or reader.integer("group", 1) != 1:
        return None
    filters = reader.inputs[1]
    if filters is None or not filters.is_constant or filters.static_shape is None:
        return None
    return reader if filters.static_shape[1] == weight.static_shape[0] else None


def _is_less_work(gate: Op, reader: Op) -> bool:
    image, filters = gate.outputs[0], reader.inputs[1]
    assert image is not None and image.shape is not None and filters is not None and filters.shape is not None
    return (
        prod(map(estimated_extent, image.shape)) * _IMAGE > prod(map(estimated_extent, filters.shape)) * _FILTER + _OPS
    )


def _move(graph: Graph, gate: Op, reader: Op, block: int) -> None:
    x, numbers, filters, y = gate.inputs[0], gate.inputs[1], reader.inputs[1], gate.outputs[0]
    assert x is not None and numbers is not None and filters is not None and y is not None
    assert filters.data is not None and filters.static_shape is not None
    outputs, inputs, *kernel = filters.static_shape
    blocks = (outputs // block, inputs // block, prod(kernel), block, block)

    def add(kind: str, operands: tuple[Value, ...], shape: tuple[int, ...], **fields: Attribute) -> Value:
        result = graph.new_value(f"{filters.name}/gated/{kind}", TensorType(DType.FLOAT32, shape))
        op = Op(kind, operands, (result,), version=graph.opsets[""], name=result.name, attributes=fields)
        graph.add_op(op, near=gate)
        return result

    def target(shape: tuple[int, ...]) -> Value:
        array = np.asarray(shape, dtype=np.int64)
        return graph.new_value(
            f"{filters.name}/gated/shape", TensorType(DType.INT64, array.shape), data=ArrayData(array)
        )

    packed = graph.new_value(
        f"{filters.name}/blocks", TensorType(DType.FLOAT32, blocks), data=_Reshaped(filters.data, blocks)
    )
    per_input = (1, inputs // block, 1, block, 1)
    scaled = add("Mul", (packed, add("Reshape", (numbers, target(per_input)), per_input)), blocks)
    whole = add("Reshape", (scaled, target((outputs, inputs, *kernel))), (outputs, inputs, *kernel))
    graph.set_inputs(reader, (x, whole, *reader.inputs[2:]))
    graph.remove_op(gate)
