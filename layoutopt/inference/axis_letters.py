"""Letters of the axes of every value, by their roles: the axes of an image that an exporter declared as (N, H, W, C) are NHWC.

Ops that define the roles of their operands' axes (`LayoutRule.axis_letters`) assign letters. The letters are propagated,
forward and backward, to the axes of other values that are the same axis:

    image (N,H,W,C)  <-  Transpose  ->  (N,C,H,W)  ->  Conv      the convolution assigns letters, the Transpose propagates them

Each axis has the letter of the closest op that assigns one. A letter is not propagated to a value that has another axis of
that letter, nor from a constant, which ops of different roles may share.

The scores of attention are (N, H, S, T), with a second sequence axis T. Contracted axes of products with a matrix are C, if
no other letter reaches them.

An axis that no letter reaches is N if it is the first one. Otherwise it has an unused letter: that of a spatial axis if the
other letters are those of feature maps; C in (N, S, C), H and D in (N, H, S, D) if they are those of sequences; and in all
other cases a letter from K on. A value has no letters if these do not suffice, if no letter reaches it, or if it has fewer
than three axes. Its formats are then printed with the default letters (`Format.text`).
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

from layoutopt.formats import Shape, volume
from layoutopt.ir.graph import Graph, is_cast
from layoutopt.ir.types import Op, Slot, Value
from layoutopt.ops import Inapplicable, View, flags, rule_of
from layoutopt.ops.axiswise import Axes, AxiswiseRule
from layoutopt.ops.contraction import A, B, Contraction
from layoutopt.ops.region_ops import Link, boundary, regions_with_rule
from layoutopt.ops.signatures import Y
from layoutopt.ops.view import Transpose

ValueAxis: TypeAlias = tuple[Value, int]
"""An axis of a value."""


def same_axes(op: Op) -> Iterable[Sequence[ValueAxis]]:
    """Sets of axes of the operands of an op that are the same axis."""
    rule = rule_of(op)
    if is_cast(op):
        return _matched(op, ((axis, axis) for axis in range(_rank(op.inputs[0]))))
    if (links := boundary(op)) is not None:
        return _at_boundary(links)
    if isinstance(rule, Transpose):
        return _matched(op, ((axis, position) for position, axis in enumerate(rule.perm(op))))
    if isinstance(rule, View):
        x, y = op.inputs[0], op.outputs[0]
        if rule.axis_letters(op) or x is None or y is None or x.shape is None or y.shape is None:
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


def _at_boundary(links: Iterable[Link]) -> Iterator[Sequence[ValueAxis]]:
    """The axes of the values at the boundary of an op's regions, except those that regions do not have."""
    for link in links:
        outer = [value for value in (link.operand, link.output) if value is not None]
        rows = [link.without_scan_axis([(value, axis) for axis in range(_rank(value))]) for value in outer]
        rows += [[(value, axis) for axis in range(_rank(value))] for value in (*link.inputs, *link.results)]
        if len({len(row) for row in rows}) == 1:
            yield from zip(*rows, strict=True)


_LEAST_RANK = 3
_OF_FEATURE_MAPS = frozenset("NCDHW")
_SPARE_OF_FEATURE_MAPS = {3: "W", 4: "HW", 5: "DHW"}
_SPARE_OF_SEQUENCES = {3: "C", 4: "HD"}
_SPARE = "KLMPQRUVXYZ"
_QUERIES, _KEYS, _SCORES = "NHSD", "NHDS", "NHST"
_CHANNELS = "C"
_MAX_DISTANCE = 4  # ops between a softmax and the products in front of it and behind it


def infer_axis_letters(graph: Graph) -> None:
    """Set `axis_letters` of all values of known rank, in bodies too, that do not have any yet.

    Letters that were inferred before stay and are propagated to new values, so that a value keeps its letters in all passes.
    """
    propagation = _LetterPropagation()
    for each in regions_with_rule(graph):
        for value in each.values:
            propagation.assign(value, value.axis_letters or "")
    for each in regions_with_rule(graph):
        for op in each.ops:
            propagation.link(op)
            for named, letters in _assigned(each, op):
                propagation.assign(named, letters)
    propagation.run()
    propagation.assign_contracted()
    propagation.run()
    for each in regions_with_rule(graph):
        for value in each.values:
            if value.axis_letters is None and value.rank is not None:
                value.axis_letters = _completed([propagation.letters.get((value, axis)) for axis in range(value.rank)])


@dataclass(slots=True)
class _LetterPropagation:
    """A breadth-first propagation of letters through sets of corresponding axes.

    Attributes:
        letters: the letter of each axis that has one.
        used: the letters of each value.
        groups: the sets of axes of several values that are the same axis.
        groups_of: the indices of the sets that contain an axis.
        queue: the axes with a letter whose sets are still to be visited.
        contracted: the contracted axes of products with a matrix.
        visited: the indices of the sets that have a letter.
    """

    letters: dict[ValueAxis, str] = field(default_factory=dict)
    used: dict[Value, set[str]] = field(default_factory=dict)
    groups: list[Sequence[ValueAxis]] = field(default_factory=list)
    groups_of: dict[ValueAxis, list[int]] = field(default_factory=dict)
    queue: deque[ValueAxis] = field(default_factory=deque)
    contracted: list[ValueAxis] = field(default_factory=list)
    visited: set[int] = field(default_factory=set)

    def assign(self, value: Value | None, letters: str) -> None:
        """Assign letters to the axes of a value, if it has as many axes; axes that have a letter keep it."""
        if value is not None and len(letters) == value.rank:
            for axis, letter in enumerate(letters):
                self._assign((value, axis), letter)

    def link(self, op: Op) -> None:
        """Add the sets of axes of operands and bodies of an op that are the same axis."""
        for group in same_axes(op):
            for axis in group:
                self.groups_of.setdefault(axis, []).append(len(self.groups))
            self.groups.append(group)
        if (product := product_with_matrix(op)) is not None and (data := op.operand(product.data)) is not None:
            self.contracted.append((data, product.axis))

    def assign_contracted(self) -> None:
        """Assign C to the contracted axes of products with a matrix."""
        for axis in self.contracted:
            self._assign(axis, _CHANNELS)

    def run(self) -> None:
        """Propagate the letters, in the order of the distance to the op that assigns them."""
        while self.queue:
            axis = self.queue.popleft()
            for index in self.groups_of.get(axis, ()):
                if index not in self.visited and not axis[0].is_constant:
                    self.visited.add(index)
                    for other in self.groups[index]:
                        self._assign(other, self.letters[axis])

    def _assign(self, axis: ValueAxis, letter: str) -> None:
        used = self.used.setdefault(axis[0], set())
        if axis not in self.letters and letter not in used:
            self.letters[axis] = letter
            used.add(letter)
            self.queue.append(axis)


def _completed(letters: Sequence[str | None]) -> str:
    """The letters of a value, with unused letters for axes that have none; empty if there are not enough."""
    known = {letter for letter in letters if letter is not None}
    if not known or len(letters) < _LEAST_RANK:
        return ""
    found = list(letters)
    if found[0] is None and "N" not in known:
        found[0] = "N"
    is_feature_map = known <= _OF_FEATURE_MAPS
    usual = (_SPARE_OF_FEATURE_MAPS if is_feature_map else _SPARE_OF_SEQUENCES).get(len(found), "")
    unused = _SPARE if found[0] != "N" else usual if is_feature_map else usual + _SPARE
    spare = iter(letter for letter in unused if letter not in known)
    complete = [next(spare, "") if letter is None else letter for letter in found]
    return "".join(complete) if all(complete) else ""


def _assigned(graph: Graph, op: Op) -> Iterator[tuple[Value | None, str]]:
    """The values to whose axes an op assigns letters, by its definition or because it is the softmax of attention."""
    yield from ((op.operand(slot), letters) for slot, letters in flags(op).axis_letters(op).items())
    if op.op_type == "Softmax" and op.integer("axis", -1) in (-1, len(_SCORES) - 1):
        yield from _of_attention(graph, op)


def _of_attention(graph: Graph, softmax: Op) -> Iterator[tuple[Value | None, str]]:
    """The letters of the operands and results of the products in front of a softmax and behind it, if there are both."""
    first = _product_in_front(graph, softmax.inputs[0])
    second = _product_behind(graph, softmax.outputs[0])
    if first is not None and second is not None:
        yield from ((first.inputs[0], _QUERIES), (first.inputs[1], _KEYS), (first.outputs[0], _SCORES))
        yield from ((second.inputs[0], _SCORES), (second.inputs[1], _QUERIES), (second.outputs[0], _QUERIES))


def _product_in_front(graph: Graph, value: Value | None) -> Op | None:
    """The product of two computed tensors in front of a value, past ops that keep the shape: scale and mask."""
    for _ in range(_MAX_DISTANCE):
        producer = None if value is None else graph.producer(value)
        if producer is None or value is None:
            return None
        if isinstance(rule_of(producer), Contraction):
            return producer if all(each is not None and not each.is_constant for each in producer.inputs[:2]) else None
        value = next((each for each in producer.inputs if each is not None and _has_same_type(each, value)), None)
    return None


def _product_behind(graph: Graph, value: Value | None) -> Op | None:
    """The product that reads a value as its first operand, past ops that keep the shape: Dropout, replacement of NaN."""
    for _ in range(_MAX_DISTANCE):
        if value is None:
            return None
        readers = list(islice(graph.readers(value), _MAX_DISTANCE))
        product = next((each for each in readers if isinstance(rule_of(each), Contraction)), None)
        if product is not None:
            return product if product.inputs[0] is value else None
        results = (result for each in readers for result in each.outputs if result is not None)
        value = next((each for each in results if _has_same_type(each, value)), None)
    return None


def _has_same_type(one: Value, other: Value) -> bool:
    """Whether two tensors have one type, and the first one is computed."""
    return one.type == other.type and not one.is_constant
