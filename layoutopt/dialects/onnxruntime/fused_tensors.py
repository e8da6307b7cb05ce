"""The ops that `fuse-into-convolutions` or `scale-filters` makes part of blocked convolutions, and what they still cost.

Conv -> Add(residual) -> Relu      one convolution with a residual and an activation
Sub -> Mul -> Add -> Relu          with one number per channel: one depthwise 1x1 convolution with a bias and an activation
Mul(gate) -> Conv                  a convolution whose filter is multiplied by the gate

onnxruntime computes most activations in a pass over the result of the convolution, which saves little more than a node.
"""

from collections.abc import Iterator, Mapping

from layoutopt.dialects.onnxruntime.convolution import KINDS
from layoutopt.dialects.onnxruntime.elementwise import PER_CHANNEL_KINDS
from layoutopt.dialects.onnxruntime.passes.fuse_into_convolutions import is_fusable_activation
from layoutopt.dialects.onnxruntime.passes.scale_filters import is_filter_cheaper
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Value
from layoutopt.ops import View, rule_of
from layoutopt.ops.interfaces import affine_of
from layoutopt.ops.region_ops import regions_with_rule

ACTIVATION_SHARES: Mapping[str, float] = {
    "Relu": 0.15,
    "HardSwish": 0.45,
    "HardSigmoid": 0.9,
    "LeakyRelu": 0.9,
    "Sigmoid": 0.95,
    "Tanh": 0.95,
    "Clip": 1.0,
}
_RESIDUAL_SHARE = 0.7
"""The time that the op adds to a blocked 1x1 convolution, divided by its time alone: medians over four shapes of up to 0.9 MiB,
measured with onnxruntime 1.32 on an AMD EPYC with AVX2."""


def find_fused_tensors(graph: Graph, *, by_runtime: bool = False) -> dict[str, float]:
    """The tensors that these ops compute, by name, with the share of the time of the op alone that remains.

    In the graph and its bodies; planning renames values, not tensors.

    Args:
        graph: the graph, not planned yet.
        by_runtime: whether only those count that onnxruntime fuses by itself: no gates and no numbers per channel.
    """
    return dict(pair for each in regions_with_rule(graph) for pair in _fused_in(each, by_runtime))


def _fused_in(graph: Graph, by_runtime: bool) -> Iterator[tuple[str, float]]:
    residual: set[Value] = set()  # results of convolutions that can still add a residual, and then be activated
    active: set[Value] = set()  # those that can still be activated
    affine: set[Value] = set()  # results of depthwise 1x1 convolutions that can still be multiplied and shifted
    for op in graph.ops:
        y, x = op.outputs[0] if op.outputs else None, op.inputs[0] if op.inputs else None
        is_only_reader = x is not None and graph.only_reader(x) is op
        if y is None:
            continue
        if op.kind in KINDS and "activation" not in op.attributes:
            residual.add(y)
            active.add(y)
        elif isinstance(rule_of(op), View) and is_only_reader:
            residual |= {y} if x in residual else set()
            active |= {y} if x in active else set()
        elif not by_runtime and (scaled := _depthwise_input(op)) is not None:
            if scaled in affine and graph.only_reader(scaled) is op:
                yield y.tensor, 0.0
            residual.add(y)
            active.add(y)
            affine.add(y)
        elif op.kind == "Add" and _adds_residual(graph, op, residual):
            yield y.tensor, _RESIDUAL_SHARE
            active.add(y)
        elif _is_activation(op, active, is_only_reader):
            yield y.tensor, ACTIVATION_SHARES[op.kind]
        elif not by_runtime and op.kind == "Mul" and _scales_filters(graph, op, y):
            yield y.tensor, 0.0


def _is_activation(op: Op, active: set[Value], is_only_reader: bool) -> bool:
    return is_fusable_activation(op) and op.inputs[0] in active and is_only_reader


def _depthwise_input(op: Op) -> Value | None:
    """The operand with which an op in blocks is a depthwise convolution: the other one is a constant number per channel."""
    affine = affine_of(op) if op.kind in PER_CHANNEL_KINDS else None
    if affine is None or affine.axis is None or (op.kind == "Sub" and affine.index):
        return None
    return op.inputs[affine.index]


def _adds_residual(graph: Graph, add: Op, residual: set[Value]) -> bool:
    """Whether an operand of an Add is the result of a convolution without other readers."""
    one, other, *_ = [*add.inputs, None, None]
    if one is None or other is None or one is other or one.shape != other.shape:
        return False
    return any(each in residual and graph.only_reader(each) is add for each in (one, other))


def _scales_filters(graph: Graph, mul: Op, y: Value) -> bool:
    """Whether a product with one number per channel is moved to the filter of the convolution that reads it."""
    shapes = [each.shape for each in mul.inputs if each is not None]
    if y.shape is None or len(shapes) != 2 or sum(shape != y.shape for shape in shapes) != 1:
        return False
    result: Value | None = y
    while result is not None:
        reader = graph.only_reader(result)
        if reader is None or graph.is_output(result):
            return False
        if reader.kind in KINDS:
            filters = reader.inputs[1]
            is_read = reader.inputs[0] is result and reader.integer("group", 1) == 1
            return is_read and filters is not None and filters.is_constant and is_filter_cheaper(y, filters)
        result = reader.outputs[0] if isinstance(rule_of(reader), View) else None
    return False


__all__ = ["ACTIVATION_SHARES", "find_fused_tensors"]
