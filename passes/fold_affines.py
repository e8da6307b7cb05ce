"""Fold per-channel affines (BatchNormalization; Sub, Mul, Add of constants along one axis) into weights.

before: x -> Conv(w, b) -> Transpose -> Mul(s) -> Add(t) -> ...
after:  x -> Conv(w * s, b * s + t) -> Transpose -> ...

Also on the way into a convolution or a matrix product, as far as that pads no zeros.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from layoutopt.cost import CostModel, sized
from layoutopt.cost.size_growth import NOTABLE, PassBudget
from layoutopt.ir.deferred import stored, stored_bytes
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, ArrayData, Data, DType, Op, TensorType, Value
from layoutopt.ops import Affine, Side, View, canonical_signature, rounded, rule_of
from layoutopt.ops.interfaces.affine import affine_of, folded_affine
from layoutopt.passes.base import Pass, PassContext

_HELD = 64 << 20  # bytes of folded constants that are held in memory; others are computed whenever they are read


@dataclass(frozen=True, slots=True)
class FoldAffines(Pass):
    """Fold per-channel affines into the weights of the op before or behind them."""

    name = "fold-affines"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Back in topological order, on against it: the next affine finds the op that took in the last one."""
        if context.mode == "training":
            return
        budget = _Budget.of(graph, context, self.name)
        left = [op for op in graph.ops if (affine := _affine(op)) and self._fold_back(graph, op, affine, budget)]
        for op in reversed(left):
            affine = _affine(op)
            assert affine is not None and op.outputs[0] is not None
            reason = self._fold_on(graph, op, affine, budget)
            if reason:
                context.note(self, op.name or op.outputs[0].name, reason)

    def _fold_back(self, graph: Graph, op: Op, affine: Affine, budget: "_Budget") -> str:
        """Into the op that computes the input. Returns why not; empty if done."""
        value = op.inputs[affine.index]
        assert value is not None
        axis, path = affine.axis, [value]
        while True:
            producer = graph.producer(value)
            if producer is None:
                return "its input is a graph input"
            if not graph.is_private(value):
                return f"{value.name} is read elsewhere too"
            rule = rule_of(producer)
            if not isinstance(rule, View):
                break
            before = producer.inputs[0]
            axes = {rule.axis_after(producer, each): each for each in range(before.rank or 0)} if before else {}
            if before is None or (axis is not None and axes.get(axis) is None):
                return f"{producer.kind} before it splits or merges the axis"
            axis = None if axis is None else axes[axis]
            value = before
            path.append(value)
        return _absorb(graph, op, producer, affine.moved(axis), "out", path[1:], budget)

    def _fold_on(self, graph: Graph, op: Op, affine: Affine, budget: "_Budget") -> str:
        """Into the op that reads the output."""
        value = op.outputs[0]
        assert value is not None
        axis, path = affine.axis, [value]
        while True:
            if not graph.is_private(value):
                return f"{value.name} is read more than once or is an output"
            (use,) = graph.uses(value)
            rule = rule_of(use.op)
            if use.index != 0:
                return f"{use.op.kind} reads it as a parameter"
            if not isinstance(rule, View):
                break
            axis = None if axis is None else rule.axis_after(use.op, axis)
            if affine.axis is not None and axis is None:
                return f"{use.op.kind} behind it splits or merges the axis"
            after = use.op.outputs[0]
            assert after is not None
            value = after
            path.append(value)
        return _absorb(graph, op, use.op, affine.moved(axis), "in", path[1:], budget)


def _affine(op: Op) -> Affine | None:
    """The affine that an op applies to one of its inputs; None if it is no affine."""
    affine = affine_of(op)
    return None if affine is None or op.outputs[0] is None or op.inputs[affine.index] is None else affine


@dataclass(slots=True)
class _Budget:
    """The growth of the file by folded weights whose originals stay, because others read them or they are narrower.

    Attributes:
        budget: the bytes.
        cost_model: prices the ops that would be saved.
        room: bytes of folded constants that may still be held in memory.
    """

    budget: PassBudget
    cost_model: CostModel
    room: int = _HELD

    @classmethod
    def of(cls, graph: Graph, context: PassContext, name: str) -> Self:
        """The budget of a pass on one graph."""
        remaining = context.growth.limit - stored_bytes(graph.root.nest())
        return cls(PassBudget(context.growth, name, remaining), sized(context.cost_model, context.sizes))

    def held(self, array: Array) -> ArrayData | None:
        """An array as a constant that is held; None if there is no room for it."""
        if array.nbytes > self.room:
            return None
        self.room -= array.nbytes
        return ArrayData(array)

    def allows(self, graph: Graph, op: Op, host: Op, numbers: Mapping[int, Array]) -> bool:
        """Whether an op may be folded into other constants of its host."""
        growth = 0
        for index, array in numbers.items():
            old = host.inputs[index] if index < len(host.inputs) else None
            is_alone = old is not None and graph.use_count(old) == 1 and not graph.is_output(old)
            growth += array.nbytes - (sum(stored(old).values()) if old is not None and is_alone else 0)
        if growth <= NOTABLE:
            return True
        seconds = self.cost_model.kernel_seconds(op, canonical_signature(op))
        return self.budget.request(op.name or op.kind, growth, seconds)


def _absorb(graph: Graph, op: Op, host: Op, affine: Affine, side: Side, between: list[Value], budget: _Budget) -> str:
    """Give `host` new constants and take `op` out. Returns why not; empty if done.

    The values `between` them are other tensors from now on, so they get names of their own.
    """
    constants = folded_affine(host, affine, side)
    weight = host.inputs[1] if len(host.inputs) > 1 else None
    if constants is None or weight is None or not isinstance(weight.type, TensorType):
        return f"{host.kind} cannot take it in"
    dtype = weight.type.dtype
    numbers = rounded(constants, dtype)
    if numbers is None:
        return "the folded weights would overflow"
    numbers = {index: array for index, array in numbers.items() if not _is_same(host, index, array)}
    if not budget.allows(graph, op, host, numbers):
        return "the file may not grow by other weights"
    before = host.copy(host.inputs, host.outputs)
    for index, array in numbers.items():
        data = budget.held(array) or _Absorbed(before, affine, side, index, dtype, array.nbytes)
        _set_constant(graph, host, index, data, TensorType(dtype, array.shape))
    _take_out(graph, op, affine, side)
    for value in between:
        graph.rename(value, graph.fresh_name(f"{value.name}__folded"))
        value.tensor = value.name
    return ""


def _is_same(host: Op, index: int, array: Array) -> bool:
    """Whether a constant of the host stays what it is, as weights do where something is only added."""
    old = host.constant(index)
    return old is not None and old.dtype == array.dtype and np.array_equal(old, array)


@dataclass(frozen=True, slots=True, eq=False)
class _Absorbed:
    """A constant into which an affine is folded whenever it is read."""

    host: Op
    affine: Affine
    side: Side
    index: int
    dtype: DType
    nbytes: int

    def numpy(self) -> Array:
        """The elements, computed."""
        constants = folded_affine(self.host, self.affine, self.side)
        numbers = rounded({self.index: constants[self.index]}, self.dtype) if constants is not None else None
        assert numbers is not None
        return numbers[self.index]


def _set_constant(graph: Graph, host: Op, index: int, data: Data, type: TensorType) -> None:
    old = host.inputs[index] if index < len(host.inputs) else None
    stem = old.tensor if old is not None else f"{host.name or host.kind}_bias"
    new = graph.new_value(stem if old is None else f"{stem}__folded", type, data=data)
    padding: tuple[Value | None, ...] = (None,) * max(0, index + 1 - len(host.inputs))
    inputs = [*host.inputs, *padding]
    inputs[index] = new
    graph.set_inputs(host, tuple(inputs))
    if old is not None and not graph.is_used(old):
        name = old.name
        graph.remove_value(old)
        graph.rename(new, name)
        new.tensor = old.tensor


def _take_out(graph: Graph, op: Op, affine: Affine, side: Side) -> None:
    """Let the readers of the affine's output read its input. Computed before it, the input is what the output was."""
    x, y = op.inputs[affine.index], op.outputs[0]
    assert x is not None and y is not None
    if side == "out":
        graph.replace_value(y, x)
    else:
        graph.bypass(op, affine.index)
