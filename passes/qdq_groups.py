"""Passes on QDQ groups: data-movement ops are hoisted out of them, and every group gets its own DequantizeLinear."""

from collections.abc import Collection
from dataclasses import dataclass

from layoutopt.cost import priced_with
from layoutopt.ir.graph import Graph, Use
from layoutopt.ir.types import Op, TensorType, Value
from layoutopt.ops.base import rule_of
from layoutopt.ops.qdq import Commuted, commute, is_dequantizer, is_lossless_round_trip, is_quantizer
from layoutopt.ops.view import View
from layoutopt.passes.base import Pass, PassContext
from layoutopt.planner import planned_qdq_groups


@dataclass(frozen=True, slots=True)
class HoistFromQdqGroups(Pass):
    """Move Transposes, Reshapes, Pads and Slices out of QDQ groups, onto integers.

    before: q -> DequantizeLinear -> Transpose -> Conv -> Reshape -> QuantizeLinear -> p
    after:  q -> Transpose -> DequantizeLinear -> Conv -> QuantizeLinear -> Reshape -> p

    A runtime that looks for DequantizeLinear -> Conv -> QuantizeLinear then finds it. `ops.quantization.commute` decides
    which ops commute.

    Attributes:
        only_views: whether to move view ops only; Pad and Slice then stay in the groups.
    """

    only_views: bool = True

    name = "hoist-from-qdq-groups"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Move the ops, unless the context keeps QDQ groups as the model has them."""
        if not context.keeps_qdq_groups:
            _move_behind_quantizers(graph, self.only_views)
            _move_before_dequantizers(graph, self.only_views)


def _commuted(qdq_op: Op, data_movement: Op, only_views: bool) -> Commuted | None:
    if only_views and not isinstance(rule_of(data_movement), View):
        return None
    return commute(qdq_op, data_movement)


def _move_behind_quantizers(graph: Graph, only_views: bool) -> None:
    """Move the data-movement ops in front of every QuantizeLinear behind it."""
    pending = [op for op in graph.ops if is_quantizer(op)]
    while pending:
        moved = _quantize_first(graph, pending.pop(), only_views)
        if moved is not None:
            pending.append(moved)


def _quantize_first(graph: Graph, quantizer: Op, only_views: bool) -> Op | None:
    """Exchange a QuantizeLinear and the op in front of it; the new QuantizeLinear, or None if the two do not commute."""
    value, result = quantizer.inputs[0], quantizer.outputs[0]
    data_movement = graph.producer(value)
    if data_movement is None or value is None or result is None or not isinstance(result.type, TensorType):
        return None
    commuted = _commuted(quantizer, data_movement, only_views)
    source = data_movement.inputs[0] if data_movement.inputs else None
    if commuted is None or source is None or source.shape is None:
        return None
    quantized = graph.new_value(f"{source.name}__quantized", TensorType(result.type.dtype, source.shape))
    inputs = (source, *quantizer.inputs[1:])
    moved = graph.add_copy(quantizer, (quantized,), inputs, attributes=commuted.attributes, name=quantizer.name)
    new_result = graph.new_value(f"{result.name}__moved", result.type)
    name = data_movement.name if graph.has_one_use(value) else ""
    graph.add_copy(data_movement, (new_result,), _integer_inputs(data_movement, quantized, commuted), name=name)
    graph.replace_value(result, new_result)
    return moved


def _move_before_dequantizers(graph: Graph, only_views: bool) -> None:
    """Move the data-movement ops behind every DequantizeLinear in front of it."""
    pending = [op for op in graph.ops if is_dequantizer(op)]
    while pending:
        dequantizer = pending.pop()
        value = dequantizer.outputs[0]
        for use in graph.uses(value) if value is not None else ():
            moved = _dequantize_last(graph, dequantizer, use, only_views)
            if moved is not None:
                pending.append(moved)


def _dequantize_last(graph: Graph, dequantizer: Op, use: Use, only_views: bool) -> Op | None:
    """Exchange a DequantizeLinear and an op that reads it; the new DequantizeLinear, or None if they do not commute."""
    value, source, data_movement = dequantizer.outputs[0], dequantizer.inputs[0], use.op
    result = data_movement.outputs[0] if use.index == 0 and data_movement.outputs else None
    if value is None or source is None or result is None or not isinstance(source.type, TensorType):
        return None
    commuted = _commuted(dequantizer, data_movement, only_views)
    if commuted is None or result.shape is None:
        return None
    moved_source = graph.new_value(f"{source.name}__moved", TensorType(source.type.dtype, result.shape))
    name = dequantizer.name if graph.has_one_use(value) else ""
    integers = _integer_inputs(data_movement, source, commuted)
    graph.add_copy(data_movement, (moved_source,), integers, name=data_movement.name)
    inputs: list[Value | None] = [moved_source, *dequantizer.inputs[1:]]
    for index in commuted.moved_inputs:
        inputs[index] = _moved_parameter(graph, data_movement, dequantizer.inputs[index])
    new_result = graph.new_value(f"{result.name}__dequantized", result.type)
    moved = graph.add_copy(dequantizer, (new_result,), tuple(inputs), attributes=commuted.attributes, name=name)
    graph.replace_value(result, new_result)
    return moved


def _integer_inputs(data_movement: Op, integers: Value, commuted: Commuted) -> tuple[Value | None, ...]:
    """The inputs of a data-movement op on integers, with the zero point as the fill value of a Pad."""
    inputs = [integers, *data_movement.inputs[1:]]
    if commuted.pad_value is not None:
        index, value = commuted.pad_value
        inputs += [None] * (index + 1 - len(inputs))
        inputs[index] = value
    return tuple(inputs)


def _moved_parameter(graph: Graph, view: Op, parameter: Value | None) -> Value | None:
    """The result of a view op on the scale or the zero point of blocked quantisation."""
    rule = rule_of(view)
    assert isinstance(rule, View) and parameter is not None and parameter.shape is not None
    assert isinstance(parameter.type, TensorType)
    shape = list(parameter.shape)
    for before, dim in enumerate(parameter.shape):
        after = rule.permuted_axis(view, before)
        assert after is not None
        shape[after] = dim
    result = graph.new_value(f"{parameter.name}__moved", TensorType(parameter.type.dtype, tuple(shape)))
    graph.add_copy(view, (result,), (parameter, *view.inputs[1:]))
    return result


class IsolateQdqGroups(Pass):
    """Give each QDQ group its own DequantizeLinear, and remove pairs of DequantizeLinear and QuantizeLinear that cancel.

    before: q -> DequantizeLinear -> d -> Conv ... , d -> Add ...
    after:  q -> DequantizeLinear -> Conv ...       q -> DequantizeLinear -> Add ...

    A DequantizeLinear followed by a QuantizeLinear with the same parameters is removed.
    """

    name = "isolate-qdq-groups"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Isolate the groups, unless the context keeps QDQ groups as the model has them."""
        if context.keeps_qdq_groups:
            return
        for op in graph.ops:
            _remove_round_trip(graph, op)
        groups = planned_qdq_groups([graph], priced_with(context.cost_model, sizes=context.sizes))
        for op in graph.ops:
            if is_dequantizer(op):
                _isolate(graph, op, groups.integer_ops)


def _remove_round_trip(graph: Graph, op: Op) -> None:
    """Remove an op and its producer if they are a QuantizeLinear and a DequantizeLinear that cancel."""
    value, result = op.inputs[0] if op.inputs else None, op.outputs[0] if op.outputs else None
    dequantizer = graph.producer(value)
    if dequantizer is None or result is None or value is None or not is_lossless_round_trip(op, dequantizer):
        return
    source = dequantizer.inputs[0]
    if source is None or graph.is_output(result):
        return
    graph.replace_uses(result, source)
    graph.remove_if_dead(op)


def _isolate(graph: Graph, dequantizer: Op, grouped_ops: Collection[Op]) -> None:
    """Copy a DequantizeLinear for every op of a QDQ group that reads it.

    If no other op reads it, the first of these ops keeps the original.
    """
    value = dequantizer.outputs[0]
    if value is None:
        return
    uses: dict[Op, list[Use]] = {}
    for use in graph.uses(value):
        uses.setdefault(use.op, []).append(use)
    readers = list(uses)
    grouped = [reader for reader in readers if reader in grouped_ops]
    if len(grouped) == len(readers) and not graph.is_output(value):
        grouped = grouped[1:]
    for reader in grouped:
        copy = graph.new_value(value.name, value.type)
        graph.add_copy(dequantizer, (copy,))
        graph.replace_uses(value, copy, uses[reader])


__all__ = ["HoistFromQdqGroups"]
