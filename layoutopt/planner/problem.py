"""The planning problem, without any notion of layouts.

Every *op* chooses one of its options. An option has a price, a state for each tensor that the op produces, and a state for
each tensor that it reads. If a tensor is produced in one state and required in another, a *cast* may be required; several
consumers that require the same cast share it, and its price is paid once:

    minimise   sum of the prices of the chosen options  +  sum of the prices of the distinct required casts

Choices of one price are distinguished by the bytes that their casts move, then by the number of casts, then by the depth of
their tensors, so that casts are as late as possible, then by the ranks of options, which depend on contents and not on order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TypeAlias

TOLERANCE = 1e-6  # relative; a smaller gap counts as zero
TIE_TOLERANCE = 1e-9  # relative; prices that differ by less are one price
_MAX_NODES = 500  # of an integer program with additional rows, if the caller sets no time limit
_MAX_SECONDS = 120.0  # for such a program on a machine on which these nodes take longer

Choice: TypeAlias = tuple[int, ...]
"""The number of the chosen option, per op."""

Ranks: TypeAlias = Callable[[int, int], float]
"""The rank of an option, by the numbers of the op and of the option: an integer of at most 9 digits."""


def search_limit(seconds: float | None) -> dict[str, float]:
    """The settings that end the search of an integer program with additional rows.

    Args:
        seconds: the time that is left; None to end it after a number of nodes, with which every run finds the same choice.
    """
    if seconds is not None:
        return {"time_limit": seconds}
    return {"mip_max_nodes": _MAX_NODES, "time_limit": _MAX_SECONDS}


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run an op: its price, and the states of its results and operands as pairs (tensor, state).

    All options of an op have the same tensors in the same order; they differ in states and prices.
    """

    price: float
    result_states: tuple[tuple[int, int], ...] = ()
    operand_states: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class Tensor:
    """A tensor between ops.

    Attributes:
        casts: the number of the required cast for (produced state, required state); None if no cast is required. Missing pairs
            are impossible.
        prices: the price of each cast.
        source_state: the state of a tensor that no op produces.
        required_states: the states that are required for every choice.
        nbytes: the bytes that each cast moves; empty if they are not counted.
        depth: the number of ops on the longest path to the tensor.
    """

    casts: dict[tuple[int, int], int | None]
    prices: list[float]
    source_state: int | None = None
    required_states: list[int] = field(default_factory=list)
    nbytes: list[float] = field(default_factory=list)
    depth: int = 0


@dataclass(slots=True)
class Problem:
    """The options of every op, and the tensors between them.

    Attributes:
        ops: the options of every op.
        tensors: the tensors between them.
        ranks: the ranks of the options; None if choices of one price are equally good.
        prefers_start: whether the first choice is preferred to others of its price.
    """

    ops: list[list[Option]]
    tensors: list[Tensor]
    ranks: Ranks | None = None
    prefers_start: bool = False

    def lower_bound(self) -> float:
        """A lower bound on the price of every choice: the cheapest option of every op, without casts."""
        return sum(min(option.price for option in options) for options in self.ops)

    def upper_bound(self) -> float:
        """An upper bound on the price of every choice without impossible casts."""
        most = sum(max(option.price for option in options) for options in self.ops)
        return most + sum(sum(tensor.prices) for tensor in self.tensors)

    def price(self, choice: Sequence[int]) -> float:
        """The price of a choice of one option per op; infinite if it needs an impossible cast."""
        casts = self.required_casts(choice)
        if casts is None:
            return inf
        chosen = sum(options[index].price for options, index in zip(self.ops, choice, strict=True))
        return chosen + sum(self.tensors[tensor].prices[cast] for tensor, cast in casts)

    def movement(self, choice: Sequence[int]) -> tuple[float, int, int]:
        """The bytes that the casts of a choice move, the number of the casts, and minus the sum of the depths of their tensors.

        The bytes are infinite if a cast is impossible.
        """
        casts = self.required_casts(choice)
        if casts is None:
            return inf, 0, 0
        counted = (self.tensors[tensor].nbytes[cast] for tensor, cast in casts if self.tensors[tensor].nbytes)
        return sum(counted), len(casts), -sum(self.tensors[tensor].depth for tensor, _ in casts)

    def required_casts(self, choice: Sequence[int]) -> list[tuple[int, int]] | None:
        """The distinct casts that a choice requires, as pairs of a tensor and a cast of it; None if one is impossible."""
        produced = {
            index: tensor.source_state for index, tensor in enumerate(self.tensors) if tensor.source_state is not None
        }
        required: list[set[int]] = [set(tensor.required_states) for tensor in self.tensors]
        for options, index in zip(self.ops, choice, strict=True):
            produced.update(options[index].result_states)
            for read, state in options[index].operand_states:
                required[read].add(state)
        found = []
        for index, tensor in enumerate(self.tensors):
            casts = set()
            for state in required[index]:
                pair = (produced[index], state)
                if pair not in tensor.casts:
                    return None
                casts.add(tensor.casts[pair])
            found += [(index, cast) for cast in sorted(each for each in casts if each is not None)]
        return found


@dataclass(frozen=True, slots=True)
class Solution:
    """A choice of one option per op.

    Attributes:
        choice: the number of the chosen option, per op.
        price: its price.
        lower_bound: a lower bound on the price of every choice.
        optimal: whether the bound is equal to the price, within the tolerance.
    """

    choice: Choice
    price: float
    lower_bound: float
    optimal: bool

    def with_optimality(self) -> "Solution":
        """The solution, marked as optimal if the gap is within the tolerance."""
        optimal = self.price < inf and self.price - self.lower_bound <= TOLERANCE * self.price
        return replace(self, optimal=True, lower_bound=self.price) if optimal else self

    @property
    def gap(self) -> float:
        """The largest possible distance to the best price, as a fraction of the price; 0 if the choice is proven optimal."""
        return 0.0 if self.optimal or self.price == 0 else max(0.0, (self.price - self.lower_bound) / self.price)
