"""Passes on lowered graphs, because onnxruntime would choose a slower kernel."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from layoutopt.dialects.builder import Packed, add_reshape, add_transpose
from layoutopt.dialects.onnxruntime.tables import run_ratio
from layoutopt.formats import Format
from layoutopt.ir.constants import expanded_constant, share
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Attribute, Data, DType, Op, TensorType, Value
from layoutopt.ops.qdq import is_dequantizer, is_per_tensor, is_quantizer
from layoutopt.ops.region_ops import regions_with_rule
from layoutopt.passes.base import Pass, PassContext, Sessions

_SMALL = 1 << 12  # elements; prepacking takes about 2 ns for each, less than session creation takes for the node
_SMALL_MATRIX = {
    "balanced": 1 << 18,
    "fast": 1 << 16,
}  # elements; two more nodes take 50 us of a session and 3 us of a run
_AXES_ARE_AN_INPUT_SINCE = 13


@dataclass(frozen=True, slots=True)
class AvoidPrepacking(Pass):
    """Give constants of matrix products a third axis, so that sessions do not copy them, if runs take no or little longer.

    before: y = MatMul(x, w: float32[384,1536])
    after:  y = MatMul(x, w: float32[1,384,1536])

    before: y = Gemm(x: float32[1,2048], w: float32[1000,2048], bias) {transB=1}
    after:  y = Add(Squeeze(MatMul(x, w: float32[1,2048,1000])), bias)

    `balanced` sessions prepack except where no run takes longer without it, by the table `prepacking.toml`: products of one
    row with a constant of 0.25 to 8 MiB. `fast` sessions prepack nothing that this pass can avoid.
    """

    name = "avoid-prepacking"
    justifies_rewrite = False
    handles_bodies = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Change the constants all of whose readers, in the main graph and its bodies, are products that qualify."""
        if context.mode == "training":
            return
        graphs = regions_with_rule(graph)
        found: dict[Data, list[tuple[Graph, Value, Op]]] = {}
        share(value for each in graphs for op in each.ops for value in _factor(op))
        refused: set[Data] = set()
        for each in graphs:
            for value in each.values:
                if value.data is None:
                    continue
                ops = [use.op for use in each.uses(value)]
                if each.is_output(value) or not all(_is_avoidable(op, value, context.sessions) for op in ops):
                    refused.add(value.data)
                found.setdefault(value.data, []).extend((each, value, op) for op in ops)
        for data, readers in found.items():
            if data not in refused and len({_is_transposed(op) for _, _, op in readers}) == 1:
                _rewrite(data, readers)


def _factor(op: Op) -> Iterator[Value]:
    """The constant factor of a product; nothing for other ops."""
    if op.kind in ("MatMul", "Gemm") and (value := op.inputs[1]) is not None and value.data is not None:
        yield value


def _is_avoidable(op: Op, value: Value, sessions: Sessions) -> bool:
    """Whether an op is a product of a tensor of float32 with a constant of rank 2 that need not be prepacked."""
    x, shape = op.inputs[0], value.static_shape
    if op.kind not in ("MatMul", "Gemm") or op.inputs[1] is not value or x is None or x is value:
        return False
    if value.dtype is not DType.FLOAT32 or shape is None or len(shape) != 2 or x.rank is None or x.rank < 2:
        return False
    if value in op.inputs[2:] or value.data is None or expanded_constant(value.data) is not None or not _is_plain(op):
        return False
    if prod(shape) < (_SMALL if x.rank > 2 else _SMALL_MATRIX[sessions]):
        return False
    inner, outer = reversed(shape) if _is_transposed(op) else shape
    rows = _rows(x)
    return sessions == "fast" or (rows is not None and run_ratio(rows, inner, outer) <= 1)


def _is_plain(op: Op) -> bool:
    """Whether an op is a MatMul, or a Gemm that adds a bias at most."""
    factors = (op.attributes.get("alpha", 1.0), op.attributes.get("beta", 1.0))
    return op.kind == "MatMul" or (factors == (1.0, 1.0) and not op.integer("transA", 0))


def _is_transposed(op: Op) -> bool:
    return op.kind == "Gemm" and bool(op.integer("transB", 0))


def _rows(x: Value) -> int | None:
    """The number of rows, if all extents are known."""
    extents = [extent for extent in (x.shape or ())[:-1] if isinstance(extent, int)]
    return prod(extents) if len(extents) + 1 == x.rank and prod(extents) > 0 else None


def _rewrite(data: Data, readers: list[tuple[Graph, Value, Op]]) -> None:
    """Give a constant a third axis in all graphs that contain it."""
    _, first, op = readers[0]
    assert first.static_shape is not None
    inner, outer = reversed(first.static_shape) if _is_transposed(op) else first.static_shape
    format = Format.parse("CN") if _is_transposed(op) else Format.canonical(2)
    expanded = Packed(data, format, (1, inner, outer), data.nbytes)
    for graph, value, op in readers:
        value.data = expanded
        value.give_type(TensorType(DType.FLOAT32, expanded.shape))
        x = op.inputs[0]
        assert x is not None
        if x.rank == 2:
            _write_product(graph, op, x, value)
        graph.touch()


def _write_product(graph: Graph, op: Op, x: Value, factor: Value) -> None:
    """Write a product of matrices as one of rank 3, without the first axis, and the sum with the bias."""
    y, opset = op.outputs[0], graph.root.opsets.get("", 0)
    assert y is not None and x.shape is not None and isinstance(factor.type, TensorType) and factor.shape is not None
    bias = op.inputs[2] if len(op.inputs) > 2 else None
    shape = (x.shape[0], factor.shape[-1])

    def add(kind: str, inputs: tuple[Value, ...], result: Value, attributes: dict[str, Attribute]) -> Value:
        graph.add_op(
            Op(kind, inputs, (result,), version=opset, name=result.name, attributes=attributes, order=op.order), near=op
        )
        return result

    graph.set_outputs(op, (None,))
    batched = graph.new_value(f"{y.name}/batched", TensorType(DType.FLOAT32, (1, *shape)))
    add("MatMul", (x, factor), batched, {})
    squeezed = y if bias is None else graph.new_value(f"{y.name}/product", TensorType(DType.FLOAT32, shape))
    if opset >= _AXES_ARE_AN_INPUT_SINCE:
        add("Squeeze", (batched, graph.new_constant(np.zeros(1, np.int64), f"{y.name}/axis")), squeezed, {})
    else:
        add("Squeeze", (batched,), squeezed, {"axes": (0,)})
    if bias is not None:
        add("Add", (squeezed, bias), y, {})
    graph.remove_op(op)


@dataclass(frozen=True, slots=True)
class AvoidSkipLayerNormalization(Pass):
    """Write the Add before a LayerNormalization as Sum, because onnxruntime would fuse the two into a slower kernel.

    before: Add(x, residual) -> LayerNormalization
    after:  Sum(x, residual) -> LayerNormalization

    When onnxruntime loads a model, it makes SkipLayerNormalization of the first, whose kernel for CPUs is 3 to 7 times slower
    than the two: 2.65 ms against 0.41 on float32[1,1500,384] (onnxruntime 1.31.1, one thread, AVX-512). A Sum of two tensors
    takes as long as an Add.
    """

    name = "avoid-skip-layer-normalization"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the sums of two tensors that are normalised; an operand with one axis is a bias, not a residual."""
        for op in graph.ops:
            x = op.inputs[0] if op.kind == "LayerNormalization" else None
            add = graph.producer(x) if x is not None else None
            if add is not None and add.kind == "Add" and _is_residual(add):
                add.op_type = "Sum"
                graph.touch()


def _is_residual(add: Op) -> bool:
    return len(add.inputs) == 2 and all(map(_is_tensor, add.inputs))


def _is_tensor(value: Value | None) -> bool:
    return value is not None and value.dtype is DType.FLOAT32 and value.rank is not None and value.rank > 1


_SMALLEST = 1 << 12
"""The smallest number of elements for which Q/DQ ops and Softmax are faster than the kernel on integers."""
_ONE_AXIS = 13  # since this opset a Softmax is along one axis


@dataclass(frozen=True, slots=True)
class KeepSoftmaxInFloatingPoint(Pass):
    """Write a Softmax between Q/DQ ops on a matrix, because onnxruntime would use a slower kernel on integers.

    before: q -> DequantizeLinear -> Softmax -> QuantizeLinear -> p
    after:  q -> DequantizeLinear -> Flatten -> Softmax -> QuantizeLinear -> Reshape -> p

    When onnxruntime loads a model, it makes QLinearSoftmax of the first, whose kernel divides element by element: 7.8 ms
    against 1.1 on uint8[4,4,256,256] (onnxruntime 1.23.2, one thread, AVX2). Flatten and Reshape move no data. onnxruntime's
    pattern has the DequantizeLinear directly in front of the Softmax; onnxruntime moves it past a Reshape, but not past a
    Flatten.
    """

    name = "keep-softmax-in-floating-point"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the Softmaxes along one axis."""
        for op in graph.ops:
            if op.kind == "Softmax" and op.version >= _ONE_AXIS:
                _rewrite_softmax(graph, op)


def _rewrite_softmax(graph: Graph, softmax: Op) -> None:
    x, y = softmax.inputs[0], softmax.outputs[0]
    producer = graph.producer(x) if x is not None else None
    shape = y.static_shape if y is not None else None
    if x is None or y is None or shape is None or producer is None or not is_dequantizer(producer):
        return
    if prod(shape) < _SMALLEST or softmax.integer("axis", -1) % len(shape) != len(shape) - 1:
        return
    quantizer = graph.only_reader(y)
    p = quantizer.outputs[0] if quantizer is not None and is_quantizer(quantizer) else None
    if quantizer is None or p is None or p.dtype is None or not is_per_tensor(quantizer.inputs[1]):
        return
    matrix, attributes = TensorType(DType.FLOAT32, (prod(shape[:-1]), shape[-1])), {"axis": len(shape) - 1}
    flat = graph.new_result("Flatten", (x,), matrix, f"{y.name}/operand", softmax, attributes=attributes)
    result = graph.new_value(f"{y.name}/matrix", matrix)
    graph.add_copy(softmax, (result,), (flat,), name=softmax.name, attributes={"axis": -1})
    integers = graph.new_value(f"{p.name}/matrix", TensorType(p.dtype, matrix.shape))
    graph.add_copy(quantizer, (integers,), (result, *quantizer.inputs[1:]), name=quantizer.name)
    graph.replace_value(p, add_reshape(graph, integers, shape, softmax))


_IMAGE_AXES: dict[tuple[int, ...], bool] = {(2, 3): False, (1, 2): True}  # whether channels are last
_VIEWS = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
_TO_FIRST, _TO_LAST = (0, 3, 1, 2), (0, 2, 3, 1)


@dataclass(frozen=True, slots=True)
class PoolIntegers(Pass):
    """Write means of images between Q/DQ ops as GlobalAveragePool, so that onnxruntime computes them on integers.

    before: q -> DequantizeLinear -> ReduceMean(H, W) -> QuantizeLinear -> p
    after:  q -> DequantizeLinear -> GlobalAveragePool -> QuantizeLinear -> p

    When onnxruntime loads a model, it makes QLinearGlobalAveragePool of the second and keeps the first in floating point: 17
    us against 246 on uint8[1,112,112,16] with channels last (onnxruntime 1.23.2, one thread, AVX2). Transposes of images with
    channels last, and Reshapes of means without extents of 1, are written on the integers around the Q/DQ ops. The
    QuantizeLinear may be behind a Reshape of the mean.
    """

    name = "pool-integers"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the ReduceMeans."""
        for op in graph.ops:
            if op.kind == "ReduceMean":
                _rewrite_mean(graph, op)


def _rewrite_mean(graph: Graph, mean: Op) -> None:
    x, means = mean.inputs[0], mean.outputs[0]
    dequantizer = graph.producer(x) if x is not None else None
    reader = graph.only_reader(means)
    has_views = reader is not None and reader.kind in _VIEWS
    while reader is not None and reader.kind in _VIEWS:
        reader = graph.only_reader(reader.outputs[0])
    quantizer = reader
    is_last = _has_channels_last(mean)
    if x is None or is_last is None or not _is_per_tensor(dequantizer) or not _is_per_tensor(quantizer):
        return
    assert dequantizer is not None and quantizer is not None
    q, p = dequantizer.inputs[0], quantizer.outputs[0]
    if q is None or p is None or q.dtype is not p.dtype or q.shape is None or p.shape is None:
        return
    if has_views and p.static_shape is None:
        return
    samples, channels = q.shape[0], q.shape[3 if is_last else 1]
    small = (samples, channels, 1, 1)
    image = add_transpose(graph, q, _TO_FIRST, dequantizer) if is_last else q
    assert image.shape is not None
    numbers = graph.new_value(f"{p.name}/image", TensorType(DType.FLOAT32, image.shape))
    graph.add_copy(dequantizer, (numbers,), (image, *dequantizer.inputs[1:]))
    type = TensorType(DType.FLOAT32, small)
    pooled = graph.new_result("GlobalAveragePool", (numbers,), type, f"{p.name}/mean", mean, name=mean.name)
    if has_views and p.static_shape is not None:
        graph.set_input(quantizer, 0, add_reshape(graph, pooled, p.static_shape, graph.producer(pooled)))
        return
    result = graph.new_value(f"{p.name}/quantized", TensorType(q.dtype or DType.UINT8, small))
    graph.add_copy(quantizer, (result,), (pooled, *quantizer.inputs[1:]), name=quantizer.name)
    if is_last and len(p.shape) == len(small):
        result = add_transpose(graph, result, _TO_LAST, quantizer)
    elif len(p.shape) != len(small):
        result = _without_image_axes(graph, result, quantizer)
    graph.replace_value(p, result)


def _is_per_tensor(op: Op | None) -> bool:
    """Whether an op is a Q/DQ op of 8-bit integers with a constant scalar as scale."""
    if op is None or not (is_dequantizer(op) or is_quantizer(op)):
        return False
    scale = op.constant(1)
    integers = op.inputs[0] if is_dequantizer(op) else op.outputs[0]
    is_narrow = integers is not None and integers.dtype in (DType.INT8, DType.UINT8)
    return scale is not None and scale.size == 1 and scale.dtype == np.float32 and is_narrow


def _has_channels_last(mean: Op) -> bool | None:
    """Whether the image whose mean is computed has channels last; None if the mean is not that of an image."""
    x = mean.inputs[0]
    axes = mean.elements(1) if len(mean.inputs) > 1 else mean.integers("axes")
    if x is None or x.rank != 4 or not axes or not all(isinstance(axis, int) for axis in axes):
        return None
    return _IMAGE_AXES.get(tuple(sorted(axis % 4 for axis in axes if isinstance(axis, int))))


def _without_image_axes(graph: Graph, x: Value, near: Op) -> Value:
    """The output of a new Reshape of (N, C, 1, 1) to (N, C)."""
    assert isinstance(x.type, TensorType) and x.shape is not None
    target = graph.new_constant(np.array([0, -1]), f"{x.name}/shape")
    return graph.new_result("Reshape", (x, target), TensorType(x.type.dtype, x.shape[:2]), f"{x.name}/reshaped", near)


__all__ = ["AvoidPrepacking"]
