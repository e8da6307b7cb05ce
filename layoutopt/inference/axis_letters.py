"""Letters of the axes of every value, by their roles: the axes of an image that an exporter declared as (N, H, W, C) are NHWC.

Ops that define the roles of their operands' axes (`LayoutRule.axis_letters`) assign letters. The letters are propagated,
forward and backward, to the axes of other values that are the same axis:

    image (N,H,W,C)  <-  Transpose  ->  (N,C,H,W)  ->  Conv      the convolution assigns letters, the Transpose propagates them

Each axis has the letter of the closest op that assigns one. A letter is not propagated to a value that has another axis of
that letter, nor from a constant, which ops of different roles may share.

An axis that no letter reaches is N if it is the first one, otherwise a spatial axis if the other letters are those of feature
maps, and in all other cases it has a letter from K on. A value has no letters if no letter reaches it, if it has fewer than
three axes, or if there are too few letters. Its formats are then printed with the default letters (`Format.text`).
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from layoutopt.ir.graph import Graph, is_cast
from layoutopt.ir.types import Op, Value
from layoutopt.ops import Inapplicable, flags, rule_of
from layoutopt.ops.axiswise import AxiswiseRule
from layoutopt.ops.matrix_product import MatrixProduct
from layoutopt.ops.region_ops import Link, boundary, regions_with_rule
from layoutopt.ops.view import Transpose

ValueAxis: TypeAlias = tuple[Value, int]
"""An axis of a value."""

_LEAST_RANK = 3
_OF_FEATURE_MAPS = "NCDHW"
_SPARE = "KLMPQRUVXYZ"


def infer_axis_letters(graph: Graph) -> None:
    """Set `axis_letters` of all values of known rank, in bodies too, that do not have any yet.

    Letters that were inferred before stay and are propagated to new values, so that a value keeps its letters in all passes.
    """
    letters: dict[Value, dict[int, str]] = {}
    groups: dict[ValueAxis, list[list[ValueAxis]]] = {}
    queue: deque[ValueAxis] = deque()

    def assign(value: Value | None, axes: Iterable[tuple[int, str]]) -> None:
        if value is None:
            return
        known = letters.setdefault(value, {})
        for axis, letter in axes:
            if axis not in known and letter not in known.values():
                known[axis] = letter
                queue.append((value, axis))

    regions = regions_with_rule(graph)
    for each in regions:
        for value in each.values:
            assign(value, enumerate(value.axis_letters or ""))
    for op in (op for each in regions for op in each.ops):
        for slot, text in flags(op).axis_letters(op).items():
            assign(op.operand(slot), enumerate(text))
        for group in _same_axes(op):
            for member in group:
                groups.setdefault(member, []).append(group)
    while queue:
        value, position = queue.popleft()
        for group in groups.get((value, position), ()) if not value.is_constant else ():
            for other, axis in group:
                assign(other, [(axis, letters[value][position])])
            group.clear()  # each group has one letter, that of the closest op
    for each in regions:
        for value in each.values:
            if value.axis_letters is None and value.rank is not None:
                value.axis_letters = _completed(letters.get(value, {}), value.rank)


def _same_axes(op: Op) -> Iterator[list[ValueAxis]]:
    """Sets of axes of the operands of an op that are the same axis."""
    rule = rule_of(op)
    if (links := boundary(op)) is not None:
        yield from _at_boundary(links)
    elif is_cast(op) or isinstance(rule, Transpose):
        x, y = op.inputs[0], op.outputs[0]
        if x is not None and y is not None and x.rank is not None:
            order = rule.perm(op) if isinstance(rule, Transpose) else range(x.rank)
            yield from ([(x, before), (y, after)] for after, before in enumerate(order))
    elif isinstance(rule, AxiswiseRule | MatrixProduct):
        axes = rule.iteration_axes(op)
        groups: dict[int, list[ValueAxis]] = {}
        for slot, numbers in axes.items() if not isinstance(axes, Inapplicable) else ():
            value = op.operand(slot)
            if value is not None and value.rank == len(numbers):
                for axis, number in enumerate(numbers):
                    groups.setdefault(number, []).append((value, axis))
        yield from groups.values()


def _at_boundary(links: Iterable[Link]) -> Iterator[list[ValueAxis]]:
    """The axes of the values at the boundary of an op's regions, except those that regions do not have."""
    for link in links:
        outer = [value for value in (link.operand, link.output) if value is not None and value.rank]
        rows = [
            [(value, axis) for axis in range(value.rank or 0) if link.scan_axis not in (axis, axis - (value.rank or 0))]
            for value in outer
        ]
        rows += [[(value, axis) for axis in range(value.rank or 0)] for value in (*link.inputs, *link.results)]
        if len({len(row) for row in rows}) == 1:
            yield from map(list, zip(*rows, strict=True))


def _completed(known: Mapping[int, str], rank: int) -> str:
    """The letters of a value, with unused letters for axes without; empty if no axis has one, or there are too few."""
    if not known or rank < _LEAST_RANK:
        return ""
    used = set(known.values())
    found = {**({0: "N"} if "N" not in used else {}), **known}
    usual = "DHW"[-(rank - 2) :] if used <= set(_OF_FEATURE_MAPS) else ""
    spare = iter(letter for letter in usual + _SPARE if letter not in used)
    letters = [found.get(axis) or next(spare, "") for axis in range(rank)]
    return "".join(letters) if all(letters) else ""
