"""The planning problem, without any word about layouts.

Every *op* chooses one of its options. An option has a price, gives each tensor that the op produces a state, and needs each
tensor that it reads in a state. Where a tensor is produced in state g and needed in state n, a *cast* may be due; several
consumers that are due the same cast share it and it is paid once:

    minimise   sum of the prices of the chosen options  +  sum of the prices of the distinct casts that are due
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

TOLERANCE = 1e-6  # relative; a smaller gap is none


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run an op: its price, what it gives and needs as (tensor, state) pairs.

    All options of an op give and need the same tensors in the same order; they differ in states and prices.
    """

    price: float
    gives: tuple[tuple[int, int], ...] = ()
    needs: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class Tensor:
    """A tensor between ops.

    Attributes:
        casts: for (given, needed) the number of the cast that is due; None if the given state will do as it is. Pairs that
            are missing are impossible.
        prices: the price of each cast.
        given: the state that it has from the start, if no op produces it.
        needed: states that are needed whatever the ops choose.
    """

    casts: dict[tuple[int, int], int | None]
    prices: list[float]
    given: int | None = None
    needed: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Problem:
    """The options of every op, and the tensors between them."""

    ops: list[list[Option]]
    tensors: list[Tensor]

    def ceiling(self) -> float:
        """No choice that needs no impossible cast costs more."""
        dearest = sum(max(option.price for option in options) for options in self.ops)
        return dearest + sum(sum(tensor.prices) for tensor in self.tensors)

    def price(self, choice: Sequence[int]) -> float:
        """What a choice of one option per op costs; infinite if it needs an impossible cast."""
        given = {index: tensor.given for index, tensor in enumerate(self.tensors) if tensor.given is not None}
        needed: list[set[int]] = [set(tensor.needed) for tensor in self.tensors]
        total = 0.0
        for options, index in zip(self.ops, choice, strict=True):
            total += options[index].price
            given.update(options[index].gives)
            for read, state in options[index].needs:
                needed[read].add(state)
        for index, tensor in enumerate(self.tensors):
            due = set()
            for state in needed[index]:
                pair = (given[index], state)
                if pair not in tensor.casts:
                    return inf
                due.add(tensor.casts[pair])
            total += sum(tensor.prices[cast] for cast in due if cast is not None)
        return total


@dataclass(frozen=True, slots=True)
class Solution:
    """A choice of one option per op.

    Attributes:
        choice: the number of the chosen option, per op.
        price: what it costs.
        lower_bound: no choice can cost less.
        optimal: whether the bound was proven to meet the price, within the tolerance.
    """

    choice: tuple[int, ...]
    price: float
    lower_bound: float
    optimal: bool

    def closed(self) -> "Solution":
        """The same, optimal if the gap is within the tolerance."""
        optimal = self.price < inf and self.price - self.lower_bound <= TOLERANCE * self.price
        return replace(self, optimal=True, lower_bound=self.price) if optimal else self

    @property
    def gap(self) -> float:
        """How far the price may be above the best one, as a fraction of the price; 0 if it is proven to be the best."""
        return 0.0 if self.optimal or self.price == 0 else max(0.0, (self.price - self.lower_bound) / self.price)
