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


def _commuted(qdq_op: Op, data_movement: Op, only_views: bool) -> Commuted | None:
    return None if only_views and not isinstance(rule_of(data_movement), View) else commuted(qdq_op, data_movement)


def _move_behind(graph: Graph, only_views: bool) -> None:
    """Move ops before a QuantizeLinear behind it."""
    pending = [op for op in graph.ops if is_quantizer(op)]
    while pending:
        qdq_op = pending.pop()
        value, result = qdq_op.inputs[0], qdq_op.outputs[0]
        data_movement = graph.producer(value) if value is not None else None
        if data_movement is None or value is None or result is None or not isinstance(result.type, TensorType):
            continue
        there, source = (
            _commuted(qdq_op, data_movement, only_views),
            data_movement.inputs[0] if data_movement.inputs else None,
        )
        if there is None or source is None or source.shape is None:
            continue
        inner = graph.new_value(f"{source.name}__quantized", TensorType(result.type.dtype, source.shape))
        moved = _copy(graph, qdq_op, (source, *qdq_op.inputs[1:]), inner, there.attributes, qdq_op.name)
        outer = graph.new_value(f"{result.name}__moved", result.type)
        name = data_movement.name if graph.is_private(value) else ""
        _copy(
            graph, data_movement, _on_integers(data_movement, inner, there), outer, dict(data_movement.attributes), name
        )
        _take_place(graph, result, outer)
        if not graph.is_read(value) and not graph.is_output(value):
            graph.remove_op(data_movement)
        pending.append(moved)


def _move_before(graph: Graph, only_views: bool) -> None:
    """Move ops behind a DequantizeLinear before it."""
    pending = [op for op in graph.ops if is_dequantizer(op)]
    while pending:
        qdq_op = pending.pop()
        value, source = qdq_op.outputs[0], qdq_op.inputs[0]
        if value is None or source is None or not isinstance(source.type, TensorType):
            continue
        for use in graph.uses(value):
            result = use.op.outputs[0] if use.index == 0 and use.op.outputs else None
            there = _commuted(qdq_op, use.op, only_views) if result is not None else None
            if result is None or there is None or result.shape is None:
                continue
            inner = graph.new_value(f"{source.name}__moved", TensorType(source.type.dtype, result.shape))
            name = qdq_op.name if graph.is_private(value) else ""
            _copy(graph, use.op, _on_integers(use.op, source, there), inner, dict(use.op.attributes), use.op.name)
            inputs: list[Value | None] = [inner, *qdq_op.inputs[1:]]
            for index in there.numbers:
                inputs[index] = _moved_numbers(graph, use.op, qdq_op.inputs[index])
            outer = graph.new_value(f"{result.name}__dequantized", result.type)
            moved = _copy(graph, qdq_op, tuple(inputs), outer, there.attributes, name)
            _take_place(graph, result, outer)
            pending.append(moved)
        if not graph.is_read(value) and not graph.is_output(value):
            graph.remove_op(qdq_op)


def _on_integers(data_movement: Op, integers: Value, there: Commuted) -> tuple[Value | None, ...]:
    """The inputs of a data-movement op on integers."""
    inputs = [integers, *data_movement.inputs[1:]]
    if there.filling is not None:
        index, value = there.filling
        inputs += [None] * (index + 1 - len(inputs))
        inputs[index] = value
    return tuple(inputs)


def _moved_numbers(graph: Graph, view: Op, numbers: Value | None) -> Value | None:
    """Scales or zero points behind a copy of the view op."""
    rule = rule_of(view)
    assert isinstance(rule, View) and numbers is not None and numbers.shape is not None
    assert isinstance(numbers.type, TensorType)
    shape = list(numbers.shape)
    for before, dim in enumerate(numbers.shape):
        after = rule.axis_after(view, before)
        assert after is not None
        shape[after] = dim
    result = graph.new_value(f"{numbers.name}__moved", TensorType(numbers.type.dtype, tuple(shape)))
    _copy(graph, view, (numbers, *view.inputs[1:]), result, dict(view.attributes), "")
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
