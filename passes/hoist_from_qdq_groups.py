"""Moves data-movement ops out of QDQ groups, to where the tensors hold integers.

before: q -> DequantizeLinear -> Transpose -> Conv -> Reshape -> QuantizeLinear -> p
after:  q -> Transpose -> DequantizeLinear -> Conv -> QuantizeLinear -> Reshape -> p

A runtime that looks for DequantizeLinear -> Conv -> QuantizeLinear then finds it. `ops.quantization.commute` decides which
ops commute.
"""

from dataclasses import dataclass

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, TensorType, Value
from layoutopt.ops.base import rule_of
from layoutopt.ops.quantization.commute import Commuted, commuted
from layoutopt.ops.quantization.qdq_group import is_dequantizer, is_quantizer
from layoutopt.ops.view import View
from layoutopt.passes.base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class HoistFromQdqGroups(Pass):
    """Move Transposes, Reshapes and the like out of QDQ groups, onto integers.

    Attributes:
        only_views: whether ops stay that add or remove elements, such as Pad and Slice.
    """

    only_views: bool = True

    name = "hoist-from-qdq-groups"
    is_reason = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Skip graphs whose QDQ groups stay as the model has them."""
        if not context.keeps_qdq_groups:
            _move_behind(graph, self.only_views)
            _move_before(graph, self.only_views)


def _cross(step: Op, mover: Op, only_views: bool) -> Commuted | None:
    return None if only_views and not isinstance(rule_of(mover), View) else commuted(step, mover)


def _move_behind(graph: Graph, only_views: bool) -> None:
    """Move ops in front of a quantisation behind it."""
    pending = [op for op in graph.ops if is_quantizer(op)]
    while pending:
        step = pending.pop()
        value, result = step.inputs[0], step.outputs[0]
        mover = graph.producer(value) if value is not None else None
        if mover is None or value is None or result is None or not isinstance(result.type, TensorType):
            continue
        there, source = _cross(step, mover, only_views), mover.inputs[0] if mover.inputs else None
        if there is None or source is None or source.shape is None:
            continue
        inner = graph.new_value(f"{source.name}__quantized", TensorType(result.type.dtype, source.shape))
        inputs = (source, *step.inputs[1:])
        pending.append(graph.add_copy(step, (inner,), inputs, attributes=there.attributes, name=step.name))
        outer = graph.new_value(f"{result.name}__moved", result.type)
        name = mover.name if graph.is_private(value) else ""
        graph.add_copy(mover, (outer,), _on_integers(mover, inner, there), name=name)
        graph.replace_value(result, outer)


def _move_before(graph: Graph, only_views: bool) -> None:
    """Move ops behind a dequantisation in front of it."""
    pending = [op for op in graph.ops if is_dequantizer(op)]
    while pending:
        step = pending.pop()
        value, source = step.outputs[0], step.inputs[0]
        if value is None or source is None or not isinstance(source.type, TensorType):
            continue
        for use in graph.uses(value):
            result = use.op.outputs[0] if use.index == 0 and use.op.outputs else None
            there = _cross(step, use.op, only_views) if result is not None else None
            if result is None or there is None or result.shape is None:
                continue
            inner = graph.new_value(f"{source.name}__moved", TensorType(source.type.dtype, result.shape))
            name = step.name if graph.is_private(value) else ""
            graph.add_copy(use.op, (inner,), _on_integers(use.op, source, there), name=use.op.name)
            inputs: list[Value | None] = [inner, *step.inputs[1:]]
            for index in there.numbers:
                inputs[index] = _moved_numbers(graph, use.op, step.inputs[index])
            outer = graph.new_value(f"{result.name}__dequantized", result.type)
            pending.append(graph.add_copy(step, (outer,), tuple(inputs), attributes=there.attributes, name=name))
            graph.replace_value(result, outer)


def _on_integers(mover: Op, integers: Value, there: Commuted) -> tuple[Value | None, ...]:
    """The inputs of a mover that moves integers."""
    inputs = [integers, *mover.inputs[1:]]
    if there.filling is not None:
        index, value = there.filling
        inputs += [None] * (index + 1 - len(inputs))
        inputs[index] = value
    return tuple(inputs)


def _moved_numbers(graph: Graph, rename: Op, numbers: Value | None) -> Value | None:
    """Scales or zero points under the new names of their axes."""
    rule = rule_of(rename)
    assert isinstance(rule, View) and numbers is not None and numbers.shape is not None
    assert isinstance(numbers.type, TensorType)
    shape = list(numbers.shape)
    for before, dim in enumerate(numbers.shape):
        after = rule.axis_after(rename, before)
        assert after is not None
        shape[after] = dim
    result = graph.new_value(f"{numbers.name}__moved", TensorType(numbers.type.dtype, tuple(shape)))
    graph.add_copy(rename, (result,), (numbers, *rename.inputs[1:]))
    return result


__all__ = ["HoistFromQdqGroups"]
