"""Letters of the axes of every value, by their roles: the axes of an image that an exporter declared as (N, H, W, C) are NHWC.

Ops that define the roles of their operands' axes (`ops.interfaces.axis_letters`) assign letters. The letters are propagated,
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from layoutopt.inference.same_axes import ValueAxis, product_with_matrix, same_axes
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Value
from layoutopt.ops import rule_of
from layoutopt.ops.contraction import Contraction
from layoutopt.ops.interfaces import AxisLetters
from layoutopt.ops.region_ops import regions_with_rule

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
            for operand, letters in _assigned(each, op):
                propagation.assign(operand, letters)
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
    rule = rule_of(op)
    if isinstance(rule, AxisLetters):
        yield from ((op.operand(slot), letters) for slot, letters in rule.axis_letters(op).items())
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


__all__ = ["infer_axis_letters"]
