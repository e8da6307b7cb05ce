"""Multiplies the filter of the next convolution by a gate, one number per channel, in place of the image.

before: Conv(depthwise 1x1, filter = gate)(x) -> Conv(w)
after:  Conv(w * gate)(x)

A convolution sums over the channels, so scaling the image and scaling the filter are equal. The pass scales the filter if it is
estimated to take less time, which holds early in a network, where filters are smaller than images.
"""

from dataclasses import dataclass
from math import prod

from layoutopt.dialects.data_movement import add_reshape
from layoutopt.dialects.onnxruntime.arrays import BLOCKS, DOMAIN
from layoutopt.dialects.packed import Packed
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType, Op, TensorType, Value
from layoutopt.ops.signatures import estimated_extent
from layoutopt.passes.base import Pass, PassContext

# Seconds per element and per op, measured with onnxruntime 1.31.1 on one thread of an AMD EPYC with AVX-512.
_IMAGE = 0.28e-9  # a depthwise 1x1 convolution
_FILTER = 0.7e-9  # a Mul that is broadcast over the outputs of a block
_OPS = 3e-6


@dataclass(frozen=True, slots=True)
class ScaleFilters(Pass):
    """Scale the next convolution's filter by computed numbers per channel, in place of the image, where that is less work."""

    name = "scale-filters"
    justifies_rewrite = False
    changes_rounding = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Scale the filters of graphs that are packed for a block."""
        if context.block not in BLOCKS:
            return
        for op in graph.ops:
            reader = _scaled_convolution(graph, op)
            if reader is None:
                continue
            image, filters, result = op.outputs[0], reader.inputs[1], reader.outputs[0]
            assert image is not None and filters is not None and result is not None
            if context.may_change_rounding(self, result) and is_filter_cheaper(image, filters):
                context.changed_rounding(self, result)
                _scale_filter(graph, op, reader, context.block)


def _scaled_convolution(graph: Graph, gate: Op) -> Op | None:
    """The convolution that is the only reader of a gate's output; None if the op is no gate or has other readers."""
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


def is_filter_cheaper(image: Value, filters: Value) -> bool:
    """Whether it takes less time to scale the filter of a convolution than the image that it reads."""
    assert image.shape is not None and filters.shape is not None
    return (
        prod(map(estimated_extent, image.shape)) * _IMAGE > prod(map(estimated_extent, filters.shape)) * _FILTER + _OPS
    )


def _scale_filter(graph: Graph, gate: Op, reader: Op, block: int) -> None:
    x, numbers, filters, y = gate.inputs[0], gate.inputs[1], reader.inputs[1], gate.outputs[0]
    assert x is not None and numbers is not None and filters is not None and y is not None
    assert filters.data is not None and filters.static_shape is not None
    outputs, inputs, *kernel = filters.static_shape
    blocks = (outputs // block, inputs // block, prod(kernel), block, block)

    data = Packed(filters.data, Format.canonical(len(filters.static_shape)), blocks, filters.data.nbytes)
    packed = graph.new_value(f"{filters.name}/blocks", TensorType(DType.FLOAT32, blocks), data=data)
    factors = add_reshape(graph, numbers, (1, inputs // block, 1, block, 1), gate)
    scaled = graph.new_result(
        "Mul", (packed, factors), TensorType(DType.FLOAT32, blocks), f"{filters.name}/gated", gate
    )
    graph.set_inputs(reader, (x, add_reshape(graph, scaled, filters.static_shape, gate), *reader.inputs[2:]))
    graph.remove_op(gate)
