"""Letters of the axes of every value, by their roles: the axes of an image that an exporter declared as (N, H, W, C) are NHWC.

Ops that define the roles of their operands' axes (`ops.interfaces.axis_letters`) name them. The letters spread, forward and
backward, to the axes of other values that are the same axis:

    image (N,H,W,C)  <-  Transpose  ->  (N,C,H,W)  ->  Conv          the convolution names its input, the Transpose spreads

Each axis has the letter of the closest op that names it. A letter does not spread to a value that has another axis of that
letter, nor from a constant, which ops of different roles may share.

Two axes of the sequence, T and S, are only in the scores of attention. Last, the axes that a product with a matrix sums over
are C.

An axis that no letter reaches is N if it is the first one, and else has an unused letter: in (N, ...) beside the letters of
feature maps that of a spatial axis, beside those of sequences C in (N, S, C), H and D in (N, H, S, D), and in all other cases a
letter from K on. A value has no letters if these do not suffice, if no letter reaches it, or if it has fewer than three
axes. Its formats are then printed with the default letters (`Format.text`).
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from layoutopt.inference.same_axes import Axis, product_with_matrix, same_axes
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Value
from layoutopt.ops import rule_of
from layoutopt.ops.contraction import Contraction
from layoutopt.ops.interfaces.axis_letters import AxisLetters
from layoutopt.ops.region_ops import region_tree

_LEAST_RANK = 3
_OF_FEATURE_MAPS = frozenset("NCDHW")
_SPARE_OF_FEATURE_MAPS = {3: "W", 4: "HW", 5: "DHW"}
_SPARE_OF_SEQUENCES = {3: "C", 4: "HD"}
_SPARE = "KLMPQRUVXYZ"
_QUERIES, _KEYS, _SCORES = "NHSD", "NHDS", "NHST"
_CHANNELS = "C"
_NEAR = 4  # ops between a softmax and the products in front of it and behind it


def infer_axis_letters(graph: Graph) -> None:
    """Set `axis_letters` of all values of known rank, in bodies too, that do not have any yet.

    Letters that were inferred before stay and spread to new values, so that a value keeps its letters through all passes.
    """
    spread = _Spread()
    for each in region_tree(graph):
        for value in each.values:
            spread.name(value, value.axis_letters or "")
    for each in region_tree(graph):
        for op in each.ops:
            spread.link(op)
            for named, letters in _named(each, op):
                spread.name(named, letters)
    spread.run()
    spread.name_summed_axes()
    spread.run()
    for each in region_tree(graph):
        for value in each.values:
            if value.axis_letters is None and value.rank is not None:
                value.axis_letters = _completed([spread.letters.get((value, axis)) for axis in range(value.rank)])


@dataclass(slots=True)
class _Spread:
    """The letters so far, and the sets of axes that are one axis.

    Attributes:
        letters: the letter of each axis that has one.
        taken: the letters of each value.
        groups: sets of axes, each of which is one axis of several values.
        groups_of: the indices of the sets that contain an axis.
        queue: named axes whose sets are still to be named.
        summed: the axes that products with a matrix sum over.
        named: the indices of the sets that have a letter.
    """

    letters: dict[Axis, str] = field(default_factory=dict)
    taken: dict[Value, set[str]] = field(default_factory=dict)
    groups: list[Sequence[Axis]] = field(default_factory=list)
    groups_of: dict[Axis, list[int]] = field(default_factory=dict)
    queue: deque[Axis] = field(default_factory=deque)
    summed: list[Axis] = field(default_factory=list)
    named: set[int] = field(default_factory=set)

    def name(self, value: Value | None, letters: str) -> None:
        """Give the axes of a value letters, if it has as many axes and they have none."""
        if value is not None and len(letters) == value.rank:
            for axis, letter in enumerate(letters):
                self._name((value, axis), letter)

    def link(self, op: Op) -> None:
        """Add the sets of axes that are one axis of several operands of an op and of its bodies."""
        for group in same_axes(op):
            for axis in group:
                self.groups_of.setdefault(axis, []).append(len(self.groups))
            self.groups.append(group)
        if (product := product_with_matrix(op)) is not None and (data := op.operand(product.data)) is not None:
            self.summed.append((data, product.axis))

    def name_summed_axes(self) -> None:
        """Name and spread the axes that products with a matrix sum over."""
        for axis in self.summed:
            self._name(axis, _CHANNELS)
        self.run()

    def run(self) -> None:
        """Spread the letters, in the order of the distance to the op that names them."""
        while self.queue:
            axis = self.queue.popleft()
            for index in self.groups_of.get(axis, ()):
                if index not in self.named and not axis[0].is_constant:
                    self.named.add(index)
                    for other in self.groups[index]:
                        self._name(other, self.letters[axis])

    def _name(self, axis: Axis, letter: str) -> None:
        taken = self.taken.setdefault(axis[0], set())
        if axis not in self.letters and letter not in taken:
            self.letters[axis] = letter
            taken.add(letter)
            self.queue.append(axis)


def _completed(letters: Sequence[str | None]) -> str:
    """The letters of a value, with letters for those that are missing; empty if there are not enough."""
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


def _named(graph: Graph, op: Op) -> Iterator[tuple[Value | None, str]]:
    """The values whose axes have letters by the definition of an op, or because the op is the softmax of attention."""
    rule = rule_of(op)
    if isinstance(rule, AxisLetters):
        yield from ((op.operand(slot), letters) for slot, letters in rule.axis_letters(op).items())
    if op.op_type == "Softmax" and op.integer("axis", -1) in (-1, len(_SCORES) - 1):
        yield from _of_attention(graph, op)


def _of_attention(graph: Graph, softmax: Op) -> Iterator[tuple[Value | None, str]]:
    """The operands and results of the products in front of a softmax and behind it, if there are both."""
    first = _product_in_front(graph, softmax.inputs[0])
    second = _product_behind(graph, softmax.outputs[0])
    if first is not None and second is not None:
        yield from ((first.inputs[0], _QUERIES), (first.inputs[1], _KEYS), (first.outputs[0], _SCORES))
        yield from ((second.inputs[0], _SCORES), (second.inputs[1], _QUERIES), (second.outputs[0], _QUERIES))


def _product_in_front(graph: Graph, value: Value | None) -> Op | None:
    """The product of two computed tensors that a value is, up to ops that keep its shape: scale and mask."""
    for _ in range(_NEAR):
        producer = None if value is None else graph.producer(value)
        if producer is None or value is None:
            return None
        if isinstance(rule_of(producer), Contraction):
            return producer if all(each is not None and not each.is_constant for each in producer.inputs[:2]) else None
        value = next((each for each in producer.inputs if each is not None and _is_like(each, value)), None)
    return None


def _product_behind(graph: Graph, value: Value | None) -> Op | None:
    """The product whose first operand a value is, up to ops that keep its shape: dropout, and zeros in the place of NaN."""
    for _ in range(_NEAR):
        if value is None:
            return None
        readers = list(islice(graph.readers(value), _NEAR))
        product = next((each for each in readers if isinstance(rule_of(each), Contraction)), None)
        if product is not None:
            return product if product.inputs[0] is value else None
        results = (result for each in readers for result in each.outputs if result is not None)
        value = next((each for each in results if _is_like(each, value)), None)
    return None


def _is_like(one: Value, other: Value) -> bool:
    """Whether two tensors have one type, and the first one is computed."""
    return one.type == other.type and not one.is_constant


__all__ = ["infer_axis_letters"]
