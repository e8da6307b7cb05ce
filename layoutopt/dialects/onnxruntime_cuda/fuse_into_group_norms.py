"""Fuses residuals and SiLU into onnxruntime's group normalisation.

before: s = Add(x, residual)    y = GroupNorm(s)    y * Sigmoid(y)
after:  SkipGroupNorm(x, residual) -> (the result, s)        s is an output if other ops read it
"""

from dataclasses import dataclass

from layoutopt.dialects.onnxruntime_cuda.group_normalization import GROUP_NORM
from layoutopt.dialects.onnxruntime_cuda.images import DOMAIN
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Value
from layoutopt.passes.base import Pass, PassContext

SKIP_GROUP_NORM = "SkipGroupNorm"
_SILU = ("Swish", "com.microsoft::QuickGelu")  # x * Sigmoid(alpha * x)


@dataclass(frozen=True, slots=True)
class FuseIntoGroupNorms(Pass):
    """Fuse residuals and SiLU into the group normalisation behind or before them."""

    name = "fuse-into-group-norms"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the group normalisations in topological order."""
        for op in graph.ops:
            if op.kind == f"{DOMAIN}::{GROUP_NORM}" and op.integer("channels_last", 1):
                _fuse_activation(graph, op)
                _fuse_residual(graph, op)


def _fuse_activation(graph: Graph, norm: Op) -> None:
    y = norm.outputs[0]
    if y is None or graph.is_output(y) or norm.integer("activation"):
        return
    if (result := _silu(graph, y)) is not None:
        norm.attributes["activation"] = 1
        graph.replace_value(result, y)


def _silu(graph: Graph, y: Value) -> Value | None:
    """The output of the ops that compute y * Sigmoid(y); None if there are none, or if y has other readers."""
    readers = [use.op for use in graph.uses(y)]
    if len(readers) == 1 and readers[0].kind in _SILU:
        default = 1.0 if readers[0].kind == _SILU[0] else 1.702
        return readers[0].outputs[0] if readers[0].attributes.get("alpha", default) == 1.0 else None
    gate = next((op.outputs[0] for op in readers if op.kind == "Sigmoid"), None)
    product = next((op for op in readers if op.kind == "Mul"), None)
    if len(readers) != 2 or gate is None or product is None or not graph.has_one_use(gate):
        return None
    return product.outputs[0] if {*product.inputs} == {y, gate} else None


def _fuse_residual(graph: Graph, norm: Op) -> None:
    total, *parameters = norm.inputs
    add = graph.producer(total) if total is not None else None
    if total is None or add is None or add.kind != "Add" or not all(_is_constant(each) for each in parameters):
        return  # a computed parameter may depend on the sum
    image, residual = _operands(add, total)
    if image is None or residual is None:
        return
    norm.op_type = SKIP_GROUP_NORM
    graph.set_inputs(norm, (image, *parameters, residual))
    if graph.is_used(total):
        graph.set_outputs(add, ())
        graph.set_outputs(norm, (norm.outputs[0], total))
    graph.remove_op(add)


def _operands(add: Op, total: Value) -> tuple[Value | None, Value | None]:
    """The image and the residual of a sum: another image, or a number per sample and channel.

    None if the operands are neither, or if one is constant.
    """
    if total.shape is None or len(total.shape) != 4 or any(_is_constant(each) for each in add.inputs):
        return None, None
    batch, _, _, channels = total.shape
    for image, residual in (add.inputs, add.inputs[::-1]):
        if image is None or residual is None or image.shape != total.shape:
            continue
        if residual.shape in (total.shape, (batch, 1, 1, channels)):
            return image, residual
    return None, None


def _is_constant(value: Value | None) -> bool:
    return value is not None and value.is_constant


__all__ = ["SKIP_GROUP_NORM", "FuseIntoGroupNorms"]
