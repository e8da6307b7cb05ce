"""Passes that fold affines, pads, broadcasts and repeats into the ops that read or compute their operands."""

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from layoutopt.cost.size_growth import NOTABLE, PassBudget
from layoutopt.formats import Dim, Shape
from layoutopt.ir.constants import stored
from layoutopt.ir.graph import Graph, Use
from layoutopt.ir.types import Array, ArrayData, Data, DType, Op, Operands, TensorType, Value
from layoutopt.ops import Affine, Side, View, add_sum, canonical_signature, facts, flags, rounded, rule_of
from layoutopt.ops.interfaces import Pads
from layoutopt.ops.qdq import is_lossless_round_trip, paired_dequantizer
from layoutopt.ops.region_ops import regions_with_rule
from layoutopt.passes.base import Pass, PassContext
from layoutopt.patterns.repeats import fold_repeated_operand
from layoutopt.patterns.scores import Addends, factor_in_divisor, joint_addends
from layoutopt.record import Record

_IN_MEMORY = 64 << 20  # bytes of folded constants in memory; further ones are computed whenever they are read


class FoldAffines(Pass):
    """Fold per-channel affines into the weights of the convolution or matrix product before or behind them.

    before: x -> Conv(w, b) -> Transpose -> Mul(s) -> Add(t) -> ...        x -> MatMul(w) -> Reshape -> BatchNormalization
    after:  x -> Conv(w * s, b * s + t) -> Transpose -> ...                x -> MatMul(w * s) -> Add(t) -> Reshape

    A Reshape between the two ops must neither split nor merge the axis. An affine of the input of a convolution or a matrix
    product is folded too, unless the convolution pads with zeros.
    """

    name = "fold-affines"
    handles_bodies = True
    needs_constants = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Fold in all bodies, the innermost first, and in the main graph, within one budget."""
        budget = _Budget(context, self, context.budget(self, graph))
        for each in reversed(regions_with_rule(graph)):
            self._run(each, context, budget)

    def _run(self, graph: Graph, context: PassContext, budget: "_Budget") -> None:
        """Fold into producers in topological order, then into consumers in reverse order, so that chains fold into one op."""
        remaining = [op for op in graph.ops if _fold_across_views(graph, op, "out", budget)]
        for op in reversed(remaining):
            reason = _fold_across_views(graph, op, "in", budget)
            if reason:
                context.note(self, op.name or op.y.name, reason)


def _fold_across_views(graph: Graph, op: Op, side: Side, budget: "_Budget") -> str:
    """Fold an affine into the op that computes its input, or that reads its output, with view ops between them.

    Args:
        graph: the graph.
        op: the op that applies the affine.
        side: "out" for the op that computes its input, of whose output it is an affine.
        budget: the limit of the growth of the file.

    Returns:
        The reason why it stays; empty if it was folded, or if the op is no affine.
    """
    affine = facts(op).affine(op)
    if affine is None:
        return ""
    value = op.inputs[affine.index] if side == "out" else op.y
    assert value is not None
    axis, values = affine.axis, list[Value]()
    while True:
        other = graph.producer(value) if side == "out" else graph.only_reader(value)
        if not graph.has_one_use(value):
            return f"{value.name} has other readers or is an output"
        if other is None:
            return "its input is a graph input"
        rule = rule_of(other)
        if side == "in" and other.inputs[0] is not value:
            return f"{other.kind} reads it as a parameter"
        if not isinstance(rule, View):
            return _fold(graph, op, other, affine.with_axis(axis), side, values, budget)
        if axis is not None:
            axes = {before: rule.unmerged_axis(other, before) for before in range(other.x.rank or 0)}
            moved = axes if side == "in" else {after: before for before, after in axes.items()}
            axis = moved.get(axis)
            if axis is None:
                return f"{other.kind} splits or merges the axis"
        value = other.x if side == "out" else other.y
        values.append(value)


class _Budget(Struct):
    """The limits of folded weights: the growth of the file where the original weights stay in it, and memory.

    Attributes:
        context: the state that passes share.
        step: the pass.
        budget: the bytes that the file may still grow by.
        memory: the bytes that folded constants may still take in memory.
    """

    context: PassContext
    step: Pass
    budget: PassBudget
    memory: int = _IN_MEMORY

    def in_memory(self, array: Array) -> ArrayData | None:
        """An array as a constant in memory; None if it exceeds the bytes that are left."""
        if array.nbytes > self.memory:
            return None
        self.memory -= array.nbytes
        return ArrayData(array)

    def allows(self, graph: Graph, op: Op, linear_op: Op, numbers: Mapping[int, Array]) -> bool:
        """Whether an affine may be folded into the constants of an op, which `numbers` replaces by input index."""
        growth = 0
        for index, array in numbers.items():
            old = linear_op.input(index)
            is_alone = old is not None and graph.use_count(old) == 1 and not graph.is_output(old)
            growth += array.nbytes - (sum(stored(old).values()) if old is not None and is_alone else 0)
        if growth <= NOTABLE:
            return True
        seconds = self.context.prices_at(self.context.sizes).kernel_seconds(op, canonical_signature(op))
        return self.budget.request(op.name or op.kind, growth, seconds)


def _fold(
    graph: Graph, op: Op, linear_op: Op, affine: Affine, side: Side, between: list[Value], budget: _Budget
) -> str:
    """Fold an affine into the constants of `linear_op`, and remove its op.

    Args:
        graph: the graph.
        op: the op that applies the affine.
        linear_op: the convolution or matrix product.
        affine: the affine, along an axis of the input or output of `linear_op`.
        side: whether it is applied to the input or to the output of `linear_op`.
        between: the values between the two ops, which are renamed because they become other tensors.
        budget: the limit of the growth of the file, and the places where the pass may change rounding.

    Returns:
        The reason why the affine stays; empty if it was folded.
    """
    constants = facts(linear_op).fold_affine(linear_op, affine, side)
    behind = _shift_behind(linear_op, affine, side) if constants is None else None
    if behind is not None:
        affine = affine.without_shift()
        constants = facts(linear_op).fold_affine(linear_op, affine, side)
    weight = linear_op.inputs[1] if len(linear_op.inputs) > 1 else None
    if constants is None or weight is None or not isinstance(weight.type, TensorType):
        return f"{linear_op.kind} cannot absorb it"
    result = (op if side == "out" else linear_op).y
    if not budget.context.may_change_rounding(budget.step, result):
        return "the result differed with it"
    dtype = weight.type.dtype
    axis, shift = behind or (None, None)
    numbers, shifts = rounded(constants, dtype), rounded({} if shift is None else {0: shift}, dtype)
    if numbers is None or shifts is None:
        return "the folded weights would overflow"
    numbers = {index: array for index, array in numbers.items() if not _is_unchanged(linear_op, index, array)}
    if not budget.allows(graph, op, linear_op, numbers):
        return "the file may not grow by the folded weights"
    budget.context.changed_rounding(budget.step, result)
    before = linear_op.copy(linear_op.inputs, linear_op.outputs)
    for index, array in numbers.items():
        data = budget.in_memory(array) or _FoldedConstant(before, affine, side, index, dtype, array.nbytes)
        _set_constant(graph, linear_op, index, data, TensorType(dtype, array.shape))
    for array in shifts.values():
        shifted = _add_shift(graph, linear_op, axis, array)
        between = [shifted if value is linear_op.y else value for value in between]
    x = op.inputs[affine.index]
    assert x is not None
    if side == "out":
        graph.replace_value(op.y, x)  # which takes the name of the output, whose elements it now has
    else:
        graph.bypass(op, affine.index)
    for value in between:
        _rename_folded(graph, value)
    return ""


def _rename_folded(graph: Graph, value: Value) -> None:
    """Give a value that has become another tensor another name."""
    graph.rename(value, graph.fresh_name(f"{value.name}__folded"))
    value.tensor = value.name


def _shift_behind(linear_op: Op, affine: Affine, side: Side) -> tuple[int | None, Array] | None:
    """The numbers to add to the result of an op that folds the scale of an affine alone, and their axis.

    None if that saves no time.
    """
    if side == "out":
        return (affine.axis, affine.shift) if np.any(affine.scale != 1) else None
    map = facts(linear_op).linear_map(linear_op)
    if map is None or affine.axis not in (None, map.axis) or map.extents[0] > map.extents[1]:
        return None
    return map.axis, map.matrix @ affine.broadcast_to(map.extents[1])[1]


def _add_shift(graph: Graph, linear_op: Op, axis: int | None, shift: Array) -> Value:
    """The sum of the result of an op and numbers along an axis, right behind the op, where kernels may add them as a bias."""
    y, uses, name, tensor = linear_op.y, graph.uses(linear_op.y), linear_op.y.name, linear_op.y.tensor
    shape = (-1, *(1,) * (0 if axis is None else len(y.dims) - 1 - axis))
    constant = graph.new_constant(shift.reshape(shape), f"{name}__shift")
    shifted = add_sum(graph, y, constant, y.type, f"{name}__shifted", linear_op)
    graph.replace_uses(y, shifted, uses)
    graph.replace_output(y, shifted)
    graph.rename(y, graph.fresh_name(f"{name}__unshifted"))
    graph.rename(shifted, name)
    y.tensor, shifted.tensor = y.name, tensor
    return shifted


def _is_unchanged(linear_op: Op, index: int, array: Array) -> bool:
    """Whether a folded constant equals the one it replaces, such as the weight if the affine only adds a shift."""
    old = linear_op.constant(index)
    return old is not None and old.dtype == array.dtype and np.array_equal(old, array)


class _FoldedConstant(Record, eq=False):
    """A constant with a folded affine, which is computed whenever it is read."""

    linear_op: Op
    affine: Affine
    side: Side
    index: int
    dtype: DType
    nbytes: int

    def numpy(self) -> Array:
        """The elements."""
        constants = facts(self.linear_op).fold_affine(self.linear_op, self.affine, self.side)
        numbers = rounded({self.index: constants[self.index]}, self.dtype) if constants is not None else None
        assert numbers is not None
        return numbers[self.index]


def _set_constant(graph: Graph, linear_op: Op, index: int, data: Data, type: TensorType) -> None:
    old = linear_op.input(index)
    stem = old.tensor if old is not None else f"{linear_op.name or linear_op.kind}_bias"
    new = graph.new_value(stem if old is None else f"{stem}__folded", type, data=data)
    padding: Operands = (None,) * max(0, index + 1 - len(linear_op.inputs))
    inputs = [*linear_op.inputs, *padding]
    inputs[index] = new
    graph.set_inputs(linear_op, tuple(inputs))
    if old is not None and not graph.is_used(old):
        name = old.name
        graph.remove_value(old)
        graph.rename(new, name)
        new.tensor = old.tensor


class FoldPads(Pass):
    """Fold Pads into the convolutions behind them, also across metadata-only ops.

    before: x -> Pad(zeros) -> Transpose -> Conv(pads = 0)
    after:  x -> Transpose -> Conv(pads = 1)

    before: x -> Pad(zeros) -> QuantizeLinear -> DequantizeLinear -> Conv(pads = 0)
    after:  x -> QuantizeLinear -> DequantizeLinear -> Conv(pads = 1)

    Behind another op than a DequantizeLinear with their scale, Q/DQ ops stay behind the Pad: a runtime would fuse them with
    that op, or with the Q/DQ ops in front of it, and round to other integers.
    """

    name = "fold-pads"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Fold every op that only pads with zeros, and remove those that add no element."""
        for op in graph.ops:
            padding, reason = facts(op).zero_pads(op), ""
            if padding:
                reason = self._fold(graph, op, padding)
            elif padding is not None and graph.is_output(op.y):
                reason = f"{op.y.name} is an output"
            elif padding is not None:
                graph.bypass(op)
            if reason:
                context.note(self, op.name or op.kind, reason)

    def _fold(self, graph: Graph, pad: Op, padding: Pads) -> str:
        """Add the padding to the `pads` of the reader. Returns the reason why the Pad stays; empty if it was folded."""
        value, source = pad.y, graph.producer(pad.x)
        while source is not None and isinstance(rule_of(source), View):
            source = graph.producer(source.x)
        between: list[tuple[Value, Pads]] = []
        while True:
            if not graph.has_one_use(value):
                return f"{value.name} is read more than once or is an output"
            (use,) = graph.uses(value)
            rule, dequantizer = rule_of(use.op), paired_dequantizer(graph, use.op)
            if dequantizer is not None:  # zero stays zero
                if source is not None and not is_lossless_round_trip(use.op, source):
                    return f"{source.kind} in front of it would be next to Q/DQ ops"
                between += [(each.y, padding) for each in (use.op, dequantizer)]
                value = dequantizer.y
                continue
            if not isinstance(rule, View):
                break
            moved = {rule.permuted_axis(use.op, axis): ends for axis, ends in padding.items()}
            padding = {axis: ends for axis, ends in moved.items() if axis is not None}
            value = use.op.y
            if len(padding) < len(moved) or value.shape is None:
                return f"{use.op.kind} behind it splits or merges axes"
            between.append((value, padding))
        attributes = facts(use.op).fold_pads(use.op, padding) if use.index == 0 else None
        if attributes is None:
            return f"{use.op.kind} behind it does not pad with zeros"
        use.op.attributes = {**use.op.attributes, **attributes}
        for inner, ends in between:
            _shrink(graph, inner, ends)
        graph.bypass(pad)
        return ""


def _shrink(graph: Graph, value: Value, padding: Pads) -> None:
    """Change the shape of a value to that without the padding, and rename it."""
    value.type = value.type_with(
        tuple(extent - sum(padding[axis]) if axis in padding else extent for axis, extent in enumerate(value.dims))
    )
    graph.rename(value, graph.fresh_name(f"{value.name}__unpadded"))
    value.tensor = value.name


class FoldBroadcasts(Pass):
    """Remove Expands whose readers broadcast, if the shape of the result stays the same.

    before: n (8, 64, 1) -> Expand -> (8, 64, 32) -> Div(x, .)
    after:  n (8, 64, 1) -> Div(x, .)
    """

    name = "fold-broadcasts"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Redirect the readers of every Expand that broadcast themselves to its input; `remove-dead` removes the Expand."""
        for op in graph.ops:
            for use in graph.uses(op.y) if flags(op).is_pure_broadcast else ():
                if _broadcasts(use, op.x):  # one Expand at a time: the other operands decide the shape of the result
                    graph.set_input(use.op, use.index, op.x)


def _broadcasts(use: Use, x: Value) -> bool:
    """Whether the reader gives a result of the same shape if it reads `x`."""
    op: Op = use.op
    result = op.outputs[0] if op.outputs else None
    if not flags(op).is_broadcasting or result is None or result.shape is None:
        return False
    operands = [x if index == use.index else value for index, value in enumerate(op.inputs)]
    shapes = [value.shape for value in operands if value is not None and value.shape is not None]
    return len(shapes) == len(operands) and _broadcast(shapes) == tuple(result.shape)


def _broadcast(shapes: list[Shape]) -> tuple[Dim | None, ...]:
    """The shape that shapes are broadcast to; None for an extent that is not certain."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    wide = ({*dims} - {1} or {1} for dims in zip(*padded, strict=True))
    return tuple(dims.pop() if len(dims) == 1 else None for dims in wide)


class FoldRepeats(Pass):
    """Remove repeated heads from the right operands of matrix products.

    before: k (B, 2, T, 64) -> Expand, Reshape (B, 8, T, 64) -> product with q (B, 8, S, 64)
    after:  product of k with q (B, 2, 4 * S, 64)
    """

    name = "fold-repeats"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Every op; only matrix products change."""
        for op in graph.ops:
            fold_repeated_operand(graph, op, context.sizes)


class FoldScores(Pass):
    """Fold a factor per head of the scores of attention into the norm of the queries, and constant addends into one.

    before: MatMul(Div(q, |q|), k) -> Mul(s) -> Add(bias) -> Reshape -> Add(mask)
    after:  MatMul(Div(q, Div(|q|, s)), k) -> Add(bias + mask) -> Reshape
    """

    name = "fold-scores"
    handles_bodies = True
    needs_constants = True  # a parameter may become zero, and two parameters stay two

    def run(self, graph: Graph, context: PassContext) -> None:
        """Fold in the graph and its bodies: factors, then addends from the first to the last, within one budget."""
        budget = _Budget(context, self, context.budget(self, graph))
        for each in regions_with_rule(graph):
            for op in each.ops:
                scores = factor_in_divisor(each, op)
                if scores is not None and context.may_change_rounding(self, op.y):
                    context.changed_rounding(self, op.y)
                    each.replace_value(op.y, scores)
            for op in each.ops:
                addends = joint_addends(each, op)
                if addends is not None and context.may_change_rounding(self, op.y):
                    _join(each, op, addends, budget)


def _join(graph: Graph, op: Op, addends: Addends, budget: _Budget) -> None:
    """Let the first of two Adds add the constant for both, if the file may grow by it, and remove the second one, `op`."""
    first, index, total = addends.first, addends.index, addends.total
    data = budget.in_memory(total)
    if data is None or not budget.allows(graph, op, first, {index: total}):
        return
    budget.context.changed_rounding(budget.step, op.y)
    _set_constant(graph, first, index, data, TensorType(DType.FLOAT32, total.shape))
    graph.replace_value(op.y, addends.path[0])
    for value in addends.path[1:]:
        _rename_folded(graph, value)
