"""Passes on lowered graphs, because onnxruntime would choose a slower kernel."""

from collections.abc import Iterator
from math import prod

from layoutopt.dialects.builder import Packed, replace_op, rewriting
from layoutopt.formats import Format
from layoutopt.ir.constants import expanded_constant, share
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Data, DType, Op, Value
from layoutopt.ops.region_ops import regions_with_rule
from layoutopt.passes.base import Pass, PassContext

_SMALL = 1 << 12  # elements; prepacking takes about 2 ns for each, less than session creation takes for the node
_SMALL_MATRIX = 1 << 16  # elements; two more nodes take 50 us of a session and 3 us of a run


class AvoidPrepacking(Pass):
    """Give constants of matrix products a third axis, so that sessions do not copy them, for `sessions="fast"`.

    before: y = MatMul(x, w: float32[384,1536])
    after:  y = MatMul(x, w: float32[1,384,1536])

    before: y = Gemm(x: float32[1,2048], w: float32[1000,2048], bias) {transB=1}
    after:  y = Add(Reshape(MatMul(x, w: float32[1,2048,1000])), bias)

    onnxruntime prepacks a float32 constant of rank 2 that a MatMul or Gemm reads: each session copies the constant into the
    order of the kernel, in new memory. It does not prepack a constant of rank 3 or more (`GemmPackBFp32`): every run then
    copies the constant panel by panel, and a session uses external data where the file is mapped.
    """

    name = "avoid-prepacking"
    justifies_rewrite = False
    handles_bodies = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Change the constants all of whose readers, in the main graph and its bodies, are products that qualify."""
        if context.mode == "training" or context.sessions != "fast":
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
                if each.is_output(value) or not all(_is_avoidable(op, value) for op in ops):
                    refused.add(value.data)
                found.setdefault(value.data, []).extend((each, value, op) for op in ops)
        for data, readers in found.items():
            if data not in refused and len({_is_transposed(op) for _, _, op in readers}) == 1:
                _rewrite(data, readers)


def _factor(op: Op) -> Iterator[Value]:
    """The constant factor of a product; nothing for other ops."""
    if op.kind in ("MatMul", "Gemm") and (value := op.inputs[1]) is not None and value.data is not None:
        yield value


def _is_avoidable(op: Op, value: Value) -> bool:
    """Whether an op is a product of a tensor of float32 with a constant of rank 2 that need not be prepacked."""
    x, shape = op.inputs[0], value.static_shape
    if op.kind not in ("MatMul", "Gemm") or op.inputs[1] is not value or x is None or x is value:
        return False
    if value.dtype is not DType.FLOAT32 or shape is None or len(shape) != 2 or x.rank is None or x.rank < 2:
        return False
    if value in op.inputs[2:] or value.data is None or expanded_constant(value.data) is not None or not _is_plain(op):
        return False
    return prod(shape) >= (_SMALL if x.rank > 2 else _SMALL_MATRIX)


def _is_plain(op: Op) -> bool:
    """Whether an op is a MatMul, or a Gemm that adds a bias at most."""
    factors = (op.attributes.get("alpha", 1.0), op.attributes.get("beta", 1.0))
    return op.kind == "MatMul" or (factors == (1.0, 1.0) and not op.integer("transA", 0))


def _is_transposed(op: Op) -> bool:
    return op.kind == "Gemm" and bool(op.integer("transB", 0))


def _rewrite(data: Data, readers: list[tuple[Graph, Value, Op]]) -> None:
    """Give a constant a third axis in all graphs that contain it."""
    _, first, op = readers[0]
    assert first.static_shape is not None
    inner, outer = reversed(first.static_shape) if _is_transposed(op) else first.static_shape
    format = Format.parse("CN") if _is_transposed(op) else Format.canonical(2)
    expanded = Packed(data, format, (1, inner, outer), data.nbytes)
    for graph, value, op in readers:
        value.data = expanded
        value.give_type(value.type_with(expanded.shape))
        if op.x.rank == 2:
            _write_product(graph, op, value)
        graph.touch()


def _write_product(graph: Graph, op: Op, factor: Value) -> None:
    """Write a product of matrices as one of rank 3, without the first axis, and the sum with the bias."""
    builder, shape = rewriting(graph, op, "product"), (op.x.dims[0], factor.dims[-1])
    (batched,) = builder.op("MatMul", (op.x, factor), [op.y.type_with((1, *shape))])
    result = builder.reshape(batched, shape)
    if len(op.inputs) > 2 and op.inputs[2] is not None:
        (result,) = builder.op("Add", (result, op.inputs[2]), [op.y.type_with(shape)])
    builder.set_output(0, result)
    replace_op(graph, op, builder)


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
            add = graph.producer(op.x) if op.kind == "LayerNormalization" else None
            if add is not None and add.kind == "Add" and all(map(_is_tensor, add.inputs)):
                add.op_type = "Sum"
                graph.touch()


def _is_tensor(value: Value | None) -> bool:
    return value is not None and value.dtype is DType.FLOAT32 and value.rank is not None and value.rank > 1
