"""Passes on QDQ groups: data-movement ops are hoisted out of them, and every group gets its own DequantizeLinear."""

from collections.abc import Collection
from dataclasses import dataclass

from layoutopt.cost import priced_with
from layoutopt.ir.graph import Graph, Use
from layoutopt.ir.types import Op, Value
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
    result, data_movement = quantizer.y, graph.producer(quantizer.x)
    commuted = _commuted(quantizer, data_movement, only_views) if data_movement is not None else None
    if data_movement is None or commuted is None or data_movement.x.shape is None:
        return None
    source, inputs = data_movement.x, (data_movement.x, *quantizer.inputs[1:])
    quantized = graph.new_value(f"{source.name}__quantized", result.type_with(source.shape))
    moved = graph.add_copy(quantizer, (quantized,), inputs, attributes=commuted.attributes, name=quantizer.name)
    name = data_movement.name if graph.has_one_use(quantizer.x) else ""
    integers = _integer_inputs(data_movement, quantized, commuted)
    new = graph.new_copy(data_movement, integers, result.type, f"{result.name}__moved", name=name)
    graph.replace_value(result, new)
    return moved


def _move_before_dequantizers(graph: Graph, only_views: bool) -> None:
    """Move the data-movement ops behind every DequantizeLinear in front of it."""
    pending = [op for op in graph.ops if is_dequantizer(op)]
    while pending:
        dequantizer = pending.pop()
        for use in graph.uses(dequantizer.y):
            moved = _dequantize_last(graph, dequantizer, use, only_views)
            if moved is not None:
                pending.append(moved)


def _dequantize_last(graph: Graph, dequantizer: Op, use: Use, only_views: bool) -> Op | None:
    """Exchange a DequantizeLinear and an op that reads it; the new DequantizeLinear, or None if they do not commute."""
    source, data_movement = dequantizer.x, use.op
    commuted = _commuted(dequantizer, data_movement, only_views) if use.index == 0 else None
    if commuted is None or data_movement.y.shape is None:
        return None
    result, name = data_movement.y, dequantizer.name if graph.has_one_use(dequantizer.y) else ""
    integers, type = _integer_inputs(data_movement, source, commuted), source.type_with(result.shape)
    inputs: list[Value | None] = [
        graph.new_copy(data_movement, integers, type, f"{source.name}__moved", name=data_movement.name),
        *dequantizer.inputs[1:],
    ]
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
    assert isinstance(rule, View) and parameter is not None
    extents = {rule.permuted_axis(view, axis): dim for axis, dim in enumerate(parameter.dims)}
    type = parameter.type_with(tuple(extents[axis] for axis in range(len(extents))))
    return graph.new_copy(view, (parameter, *view.inputs[1:]), type, f"{parameter.name}__moved")


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
    dequantizer = graph.producer(op.x) if is_quantizer(op) else None
    if dequantizer is not None and is_lossless_round_trip(op, dequantizer) and not graph.is_output(op.y):
        graph.replace_uses(op.y, dequantizer.x)
        graph.remove_if_dead(op)


def _isolate(graph: Graph, dequantizer: Op, grouped_ops: Collection[Op]) -> None:
    """Copy a DequantizeLinear for every op of a QDQ group that reads it.

    If no other op reads it, the first of these ops keeps the original.
    """
    value = dequantizer.y
    uses: dict[Op, list[Use]] = {}
    for use in graph.uses(value):
        uses.setdefault(use.op, []).append(use)
    readers = list(uses)
    grouped = [reader for reader in readers if reader in grouped_ops]
    if len(grouped) == len(readers) and not graph.is_output(value):
        grouped = grouped[1:]
    for reader in grouped:
        copy = graph.new_copy(dequantizer, dequantizer.inputs, dequantizer.y.type, value.name)
        graph.replace_uses(value, copy, uses[reader])
