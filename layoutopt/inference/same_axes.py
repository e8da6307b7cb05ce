"""Axes of the operands of an op that are the same axis, such as the channels of x and y of an Add."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from layoutopt.formats import Shape, volume
from layoutopt.ir.cast import is_cast
from layoutopt.ir.types import Op, Slot, Value
from layoutopt.ops import Inapplicable, View, rule_of
from layoutopt.ops.axiswise import Axes, AxiswiseRule
from layoutopt.ops.contraction import A, B, Contraction
from layoutopt.ops.interfaces import AxisLetters
from layoutopt.ops.region_ops import operand, region_rule
from layoutopt.ops.signatures import Y
from layoutopt.ops.view import Transpose

ValueAxis: TypeAlias = tuple[Value, int]
"""An axis of a value."""


def same_axes(op: Op) -> Iterable[Sequence[ValueAxis]]:
    """Sets of axes of the operands of an op that are the same axis."""
    rule = rule_of(op)
    if is_cast(op):
        return _matched(op, ((axis, axis) for axis in range(_rank(op.inputs[0]))))
    if region_rule(op) is not None:
        return _at_boundary(op)
    if isinstance(rule, Transpose):
        return _matched(op, ((axis, position) for position, axis in enumerate(rule.perm(op))))
    if isinstance(rule, View):
        x, y = op.inputs[0], op.outputs[0]
        if isinstance(rule, AxisLetters) or x is None or y is None or x.shape is None or y.shape is None:
            return ()
        return _matched(op, kept_axes(x.shape, y.shape))
    if isinstance(rule, AxiswiseRule | Contraction):
        axes = rule.iteration_axes(op)
        if isinstance(axes, Inapplicable):
            return ()
        product = product_with_matrix(op)
        return by_iteration_axis(op, axes if product is None else product.axes)
    return ()


def _rank(value: Value | None) -> int:
    return 0 if value is None or value.rank is None else value.rank


def _matched(op: Op, pairs: Iterable[tuple[int, int]]) -> Iterator[Sequence[ValueAxis]]:
    """The given pairs of an axis of the input and an axis of the output, as axes of values."""
    x, y = op.inputs[0], op.outputs[0]
    if x is not None and y is not None:
        yield from (((x, before), (y, after)) for before, after in pairs if before < _rank(x) and after < _rank(y))


def kept_axes(before: Shape, after: Shape) -> Iterator[tuple[int, int]]:
    """The axes that a Reshape keeps, by their positions before and after: equal extents, equal numbers of elements in front.

    Axes of extent 1 are kept only where both shapes have as many of them in a row, and in front.
    """
    if 0 in (volume(before)[0], volume(after)[0]):
        return
    positions: dict[object, list[int]] = {}
    for position, dim in enumerate(after):
        positions.setdefault((volume(after[:position]), dim), []).append(position)
    rows: dict[object, list[int]] = {}
    for axis, dim in enumerate(before):
        rows.setdefault((volume(before[:axis]), dim), []).append(axis)
    for key, axes in rows.items():
        found = positions.get(key, [])
        if len(found) == len(axes):
            yield from zip(axes, found, strict=True)
        elif found and axes[0] == found[0] == 0:
            yield 0, 0


def by_iteration_axis(op: Op, axes: Axes) -> Iterable[Sequence[ValueAxis]]:
    """The axes of the operands of an op, grouped by the iteration axis that they are."""
    groups: dict[int, list[ValueAxis]] = {}
    for slot, numbers in axes.items():
        value = op.operand(slot)
        if value is not None and value.rank == len(numbers):
            for axis, number in enumerate(numbers):
                groups.setdefault(number, []).append((value, axis))
    return groups.values()


@dataclass(frozen=True, slots=True)
class ProductWithMatrix:
    """A product of data and one matrix: a linear map over one axis of the data.

    Attributes:
        data: the operand that is no matrix.
        axis: its axis that is summed over.
        axes: the iteration axes of data and result, where the result has the summed axis in place of the mapped one.
    """

    data: Slot
    axis: int
    axes: Axes


def product_with_matrix(op: Op) -> ProductWithMatrix | None:
    """The op as a product with a matrix: a constant of rank 2, or any operand of rank 2 if the other one has a higher rank."""
    rule = rule_of(op)
    axes = rule.iteration_axes(op) if isinstance(rule, Contraction) else None
    if axes is None or isinstance(axes, Inapplicable):
        return None
    for matrix, data in ((B, A), (A, B)):
        value, other = op.operand(matrix), op.operand(data)
        if value is None or _rank(value) > 2 or not (value.is_constant or _rank(other) > 2):
            continue
        summed = [axis for axis in axes[data] if axis not in axes[Y]]
        mapped = [axis for axis in axes[Y] if axis not in axes[data]]
        if len(summed) == len(mapped) == 1:
            result = tuple(summed[0] if axis == mapped[0] else axis for axis in axes[Y])
            return ProductWithMatrix(data, axes[data].index(summed[0]), {data: axes[data], Y: result})
    return None


def _at_boundary(op: Op) -> Iterator[Sequence[ValueAxis]]:
    """The axes of the values at the boundary of an op's regions, except those that regions do not have."""
    rule = region_rule(op)
    for boundary_value in rule.boundary_values(op) if rule is not None else ():
        ports = [(value, port) for port in boundary_value.ports if (value := operand(op, port)) is not None]
        seen = [[axis for axis in range(_rank(value)) if axis not in port.scan_axes] for value, port in ports]
        if len({len(axes) for axes in seen}) == 1:
            for row in zip(*seen, strict=True):
                yield [(value, axis) for (value, _), axis in zip(ports, row, strict=True)]


__all__ = ["ProductWithMatrix", "ValueAxis", "by_iteration_axis", "kept_axes", "product_with_matrix", "same_axes"]
