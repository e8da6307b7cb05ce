"""The planning problem, without any notion of layouts.

Every *op* chooses one of its options. An option has a price, gives each tensor that the op produces a state, and needs each
tensor that it reads in a state. If a tensor is produced in state g and needed in state n, a *cast* may be required; several
consumers that require the same cast share it, and its price is paid once:

    minimise   sum of the prices of the chosen options  +  sum of the prices of the distinct required casts
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

TOLERANCE = 1e-6  # relative; a smaller gap counts as zero


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run an op: its price, and the states of its results and operands as pairs (tensor, state).

    All options of an op give and need the same tensors in the same order; they differ in states and prices.
    """

    price: float
    gives: tuple[tuple[int, int], ...] = ()
    needs: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class Tensor:
    """A tensor between ops.

    Attributes:
        casts: the number of the required cast for (given, needed); None if no cast is required. Missing pairs are impossible.
        prices: the price of each cast.
        given: the state of a tensor that no op produces.
        needed: the states that are needed for every choice.
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
        """An upper bound on the price of every choice without impossible casts."""
        most = sum(max(option.price for option in options) for options in self.ops)
        return most + sum(sum(tensor.prices) for tensor in self.tensors)

    def price(self, choice: Sequence[int]) -> float:
        """The price of a choice of one option per op; infinite if it needs an impossible cast."""
        given = {index: tensor.given for index, tensor in enumerate(self.tensors) if tensor.given is not None}
        needed: list[set[int]] = [set(tensor.needed) for tensor in self.tensors]
        total = 0.0
        for options, index in zip(self.ops, choice, strict=True):
            total += options[index].price
            given.update(options[index].gives)
            for read, state in options[index].needs:
                needed[read].add(state)
        for index, tensor in enumerate(self.tensors):
            required = set()
            for state in needed[index]:
                pair = (given[index], state)
                if pair not in tensor.casts:
                    return inf
                required.add(tensor.casts[pair])
            total += sum(tensor.prices[cast] for cast in required if cast is not None)
        return total


@dataclass(frozen=True, slots=True)
class Solution:
    """A choice of one option per op.

    Attributes:
        choice: the number of the chosen option, per op.
        price: its price.
        lower_bound: a lower bound on the price of every choice.
        optimal: whether the bound is equal to the price, within the tolerance.
    """

    choice: tuple[int, ...]
    price: float
    lower_bound: float
    optimal: bool

    def closed(self) -> "Solution":
        """The solution, marked as optimal if the gap is within the tolerance."""
        optimal = self.price < inf and self.price - self.lower_bound <= TOLERANCE * self.price
        return replace(self, optimal=True, lower_bound=self.price) if optimal else self

    @property
    def gap(self) -> float:
        """The largest possible distance to the best price, as a fraction of the price; 0 if the choice is proven optimal."""
        return 0.0 if self.optimal or self.price == 0 else max(0.0, (self.price - self.lower_bound) / self.price)
