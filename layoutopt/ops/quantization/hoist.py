"""Hoists data-movement ops out of QDQ groups, to where the values are integers.

    q -> DequantizeLinear -> Transpose -> Conv -> Reshape -> QuantizeLinear -> p
    q -> Transpose -> DequantizeLinear -> Conv -> QuantizeLinear -> Reshape -> p

Runtimes match the pattern DequantizeLinear -> Conv -> QuantizeLinear. `commute` decides which ops are moved.
"""

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Attribute, Op, TensorType, Value
from layoutopt.ops.base import rule_of
from layoutopt.ops.quantization.commute import Commuted, commuted
from layoutopt.ops.quantization.qdq_group import is_dequantizer, is_quantizer
from layoutopt.ops.view import View


def hoist_data_movement(graph: Graph, *, only_views: bool) -> None:
    """Hoist every data-movement op of a graph that commutes with a Q/DQ op.

    Args:
        graph: changed in place.
        only_views: whether to move view ops only, and not ops that add or drop elements.
    """
    _move_behind(graph, only_views)
    _move_before(graph, only_views)


def _cross(step: Op, mover: Op, only_views: bool) -> Commuted | None:
    return None if only_views and not isinstance(rule_of(mover), View) else commuted(step, mover)


def _move_behind(graph: Graph, only_views: bool) -> None:
    """Move ops before a QuantizeLinear behind it."""
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
        moved = _copy(graph, step, (source, *step.inputs[1:]), inner, there.attributes, step.name)
        outer = graph.new_value(f"{result.name}__moved", result.type)
        name = mover.name if graph.is_private(value) else ""
        _copy(graph, mover, _on_integers(mover, inner, there), outer, dict(mover.attributes), name)
        _take_place(graph, result, outer)
        if not graph.is_read(value) and not graph.is_output(value):
            graph.remove_op(mover)
        pending.append(moved)


def _move_before(graph: Graph, only_views: bool) -> None:
    """Move ops behind a DequantizeLinear before it."""
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
            _copy(graph, use.op, _on_integers(use.op, source, there), inner, dict(use.op.attributes), use.op.name)
            inputs: list[Value | None] = [inner, *step.inputs[1:]]
            for index in there.numbers:
                inputs[index] = _moved_numbers(graph, use.op, step.inputs[index])
            outer = graph.new_value(f"{result.name}__dequantized", result.type)
            moved = _copy(graph, step, tuple(inputs), outer, there.attributes, name)
            _take_place(graph, result, outer)
            pending.append(moved)
        if not graph.is_read(value) and not graph.is_output(value):
            graph.remove_op(step)


def _on_integers(mover: Op, integers: Value, there: Commuted) -> tuple[Value | None, ...]:
    """The inputs of a data-movement op on integers."""
    inputs = [integers, *mover.inputs[1:]]
    if there.filling is not None:
        index, value = there.filling
        inputs += [None] * (index + 1 - len(inputs))
        inputs[index] = value
    return tuple(inputs)


def _moved_numbers(graph: Graph, rename: Op, numbers: Value | None) -> Value | None:
    """Scales or zero points behind a copy of the view op."""
    rule = rule_of(rename)
    assert isinstance(rule, View) and numbers is not None and numbers.shape is not None
    assert isinstance(numbers.type, TensorType)
    shape = list(numbers.shape)
    for before, dim in enumerate(numbers.shape):
        after = rule.axis_after(rename, before)
        assert after is not None
        shape[after] = dim
    result = graph.new_value(f"{numbers.name}__moved", TensorType(numbers.type.dtype, tuple(shape)))
    _copy(graph, rename, (numbers, *rename.inputs[1:]), result, dict(rename.attributes), "")
    return result


def _copy(
    graph: Graph,
    op: Op,
    inputs: tuple[Value | None, ...],
    result: Value,
    attributes: dict[str, Attribute],
    name: str,
) -> Op:
    """An op of the same kind right behind `op`, that computes `result`."""
    copy = Op(
        op.op_type,
        inputs,
        (result,),
        domain=op.domain,
        version=op.version,
        name=name,
        attributes=attributes,
        origin=op.origin,
    )
    return graph.add_op(copy, op)


def _take_place(graph: Graph, old: Value, new: Value) -> None:
    """Replace a value under its name."""
    name, tensor, origin, producer = old.name, old.tensor, old.origin, graph.producer(old)
    graph.replace_uses(old, new)
    graph.replace_output(old, new)
    assert producer is not None
    graph.remove_op(producer)
    graph.rename(new, name)
    new.tensor, new.origin = tensor, origin
