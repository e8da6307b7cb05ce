"""Passes on lowered graphs, because onnxruntime would choose a slower kernel."""

from math import prod

from layoutopt.formats import Format
from layoutopt.ir.constants import expanded_constant, share
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Data, DType, Op, Value
from layoutopt.ops.builder import Packed
from layoutopt.ops.region_ops import regions_with_rule
from layoutopt.passes.base import Pass, PassContext

_SMALL = 1 << 12  # elements; prepacking takes about 2 ns for each, less than session creation takes for the node


class AvoidPrepacking(Pass):
    """Give constants of matrix products a third axis, so that sessions do not copy them, for `sessions="fast"`.

    before: y = MatMul(x, w: float32[384,1536])
    after:  y = MatMul(x, w: float32[1,384,1536])          x has three axes or more

    onnxruntime prepacks a float32 constant of rank 2 that a MatMul reads: each session copies the constant into the order of
    the kernel, in new memory. It does not prepack a constant of rank 3 or more (`GemmPackBFp32`): every run then copies the
    constant panel by panel, and a session uses external data where the file is mapped.
    """

    name = "avoid-prepacking"
    justifies_rewrite = False
    handles_bodies = True
    needs_constants = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Change the constants all of whose readers, in the main graph and its bodies, are products that qualify."""
        if context.sessions != "fast":
            return
        graphs = regions_with_rule(graph)
        share(op.inputs[1] for each in graphs for op in each.ops if op.kind == "MatMul" and op.inputs[1] is not None)
        found: dict[Data, list[tuple[Graph, Value]]] = {}
        refused: set[Data] = set()
        for each in graphs:
            for value in each.values:
                if value.data is None:
                    continue
                is_factor = all(_is_avoidable(op, value) for op in each.readers(value))
                if each.is_output(value) or not each.is_used(value) or not is_factor:
                    refused.add(value.data)
                found.setdefault(value.data, []).append((each, value))
        for data in found.keys() - refused:
            for each, value in found[data]:
                shape = (1, *value.dims)
                value.data = Packed(data, Format.canonical(2), shape, data.nbytes)
                value.give_type(value.type_with(shape))
                each.touch()


def _is_avoidable(op: Op, value: Value) -> bool:
    """Whether an op is a product of a tensor of three axes with a constant of rank 2 that need not be prepacked."""
    is_product = op.kind == "MatMul" and op.inputs[1] is value and op.x is not value
    if not is_product or op.x.rank is None or op.x.rank < 3 or value.data is None or value.dtype is not DType.FLOAT32:
        return False
    shape = value.static_shape
    return shape is not None and len(shape) == 2 and prod(shape) >= _SMALL and expanded_constant(value.data) is None


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
