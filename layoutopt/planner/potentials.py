"""A lower bound on the price of every choice of a planning problem, from the linear program of a part of its options.

A multiplier of a row of the linear program is a potential of a state of a tensor: the part of the price that the tensor's
producer (`a`) and each of its uses (`b`) pay for that state, and of a cast that several uses share (`g`, one part per use). If

    a(use, from) + b(use, to) <= the price of the cast from -> to, or g(use, cast) if uses share casts
    sum over uses of g(use, cast) <= the price of the cast

then every choice costs at least the sum over ops of the least price plus potentials of an option. The reduced cost of an
option is its price plus potentials, minus the least of its op; a choice with the option costs at least the bound plus the
reduced cost.

The linear program determines the potentials of the states in it. The other states have a range of potentials: `a` as large as
the states in the program allow, `b` as large as they allow, and every mean of these two.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from layoutopt.planner.problem import Problem, Tensor
from layoutopt.planner.program import Program

_SHARES = (
    0.5,
    0.0,
    1.0,
)  # of the potentials that are large for producers, in the mean with those that are large for uses

_Array: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound.

    Attributes:
        price: a lower bound on the price of every choice.
        reduced_costs: the reduced cost of every option, per op.
    """

    price: float
    reduced_costs: list[_Array]


@dataclass(slots=True)
class _Use:
    """A use of a tensor.

    Attributes:
        states: the required states.
        casts: the cast for each pair of a produced and a required state, as `_casts` returns them.
        produced: the potential of each produced state, one array per share.
        required: the potential of each required state, one array per share.
    """

    states: list[int]
    casts: _Array
    produced: list[_Array]
    required: list[_Array]


class Potentials:
    """The states of a planning problem, and bounds from the multipliers of linear programs of a part of its options."""

    def __init__(self, problem: Problem) -> None:
        """Collect the states of every tensor."""
        self.problem = problem
        produced: list[dict[int, None]] = [{} for _ in problem.tensors]
        required: list[list[list[int]]] = [[[state] for state in tensor.required_states] for tensor in problem.tensors]
        self.uses_of_op: list[list[tuple[int, int]]] = []
        for options in problem.ops:
            for option in options:
                for tensor, state in option.result_states:
                    produced[tensor][state] = None
            self.uses_of_op.append([])
            for position, (tensor, _) in enumerate(options[0].operand_states):
                self.uses_of_op[-1].append((tensor, len(required[tensor])))
                required[tensor].append(list(dict.fromkeys(option.operand_states[position][1] for option in options)))
        for states, each in zip(produced, problem.tensors, strict=True):
            if each.source_state is not None:
                states.clear()
                states[each.source_state] = None
        self.produced = [list(states) for states in produced]
        self.uses = [
            [_Use(states, _casts(tensor, list(has), states), [], []) for states in uses]
            for tensor, has, uses in zip(problem.tensors, produced, required, strict=True)
        ]

    def bounds(self, program: Program, multipliers: _Array, ceiling: float) -> Iterator[Bound]:
        """The bounds that the multipliers of a linear program of a part of the options prove on all of them.

        Args:
            program: the linear program.
            multipliers: a multiplier of every row.
            ceiling: the price of a known choice, which is the potential of states that no cast leads to.
        """
        known: list[dict[tuple[str, int, int], float]] = [{} for _ in self.problem.tensors]
        scaled = multipliers[len(program.first) :] * program.limit
        for (kind, tensor, use, number), multiplier in zip(program.row_keys, scaled.tolist(), strict=True):
            known[tensor][kind, use, number] = multiplier
        for tensor in range(len(self.problem.tensors)):
            self._set_potentials(tensor, known[tensor], ceiling)
        for share in range(len(_SHARES)):
            yield self._bound(share)

    def _set_potentials(self, index: int, known: dict[tuple[str, int, int], float], ceiling: float) -> None:
        """Set the potentials of the states of a tensor for each of its uses."""
        tensor, uses = self.problem.tensors[index], self.uses[index]
        parts = self._parts(tensor, uses, known)
        for number, use in enumerate(uses):
            prices = np.append(np.asarray(parts[number], dtype=float), [np.inf, 0.0])[use.casts]
            a = np.asarray([known.get(("produced", number, state), np.nan) for state in self.produced[index]])
            b = np.asarray([known.get(("required", number, state), np.nan) for state in use.states])
            first = _extended(prices, a, b, ceiling)
            second = _extended(prices.T, b, a, ceiling)[::-1]
            pairs = list(zip(first, second, strict=True))
            use.produced, use.required = (
                [share * one + (1 - share) * other for share in _SHARES] for one, other in pairs
            )

    def _parts(
        self, tensor: Tensor, uses: Sequence[_Use], known: dict[tuple[str, int, int], float]
    ) -> list[Sequence[float]]:
        """The part of the price of every cast that each use pays; the sum over the uses is at most the price."""
        if len(uses) < 2:
            return [tensor.prices]
        parts = np.zeros((len(uses), len(tensor.prices)))
        can_use = np.zeros_like(parts)
        for number, use in enumerate(uses):
            can_use[number, np.unique(use.casts[use.casts < len(tensor.prices)])] = 1.0
        for (kind, number, cast), multiplier in known.items():
            if kind == "cast":
                parts[number, cast] = max(0.0, multiplier)
        prices, total = np.asarray(tensor.prices), parts.sum(axis=0)
        parts *= np.minimum(1.0, prices / np.where(total > 0, total, 1.0))
        rest = np.maximum(0.0, prices - parts.sum(axis=0)) / np.maximum(1.0, can_use.sum(axis=0))
        return list(parts + rest * can_use)

    def _bound(self, share: int) -> Bound:
        """The bound of one of the sets of potentials."""
        produced = [
            dict(zip(states, np.sum([use.produced[share] for use in uses], axis=0).tolist(), strict=True))
            if uses
            else {}
            for states, uses in zip(self.produced, self.uses, strict=True)
        ]
        required = [
            [dict(zip(use.states, use.required[share].tolist(), strict=True)) for use in uses] for uses in self.uses
        ]
        price, reduced_costs = 0.0, []
        for tensor, has, uses in zip(self.problem.tensors, produced, required, strict=True):
            if tensor.source_state is not None:
                price += has.get(tensor.source_state, 0.0)
            price += sum(uses[number][state] for number, state in enumerate(tensor.required_states))
        for options, places in zip(self.problem.ops, self.uses_of_op, strict=True):
            prices = np.asarray(
                [
                    option.price
                    + sum(produced[tensor].get(state, 0.0) for tensor, state in option.result_states)
                    + sum(
                        required[tensor][use][state]
                        for (tensor, use), (_, state) in zip(places, option.operand_states, strict=True)
                    )
                    for option in options
                ]
            )
            price += float(prices.min())
            reduced_costs.append(prices - prices.min())
        return Bound(price, reduced_costs)


def _casts(tensor: Tensor, produced: Sequence[int], required: Sequence[int]) -> _Array:
    """The cast of every pair of states: the number of casts if the pair is impossible, one more if no cast is required."""
    impossible = len(tensor.prices)
    free = impossible + 1
    found = [[tensor.casts.get((has, needs), impossible) for needs in required] for has in produced]
    return np.asarray([[free if cast is None else cast for cast in row] for row in found])


def _extended(prices: _Array, a: _Array, b: _Array, ceiling: float) -> tuple[_Array, _Array]:
    """Potentials of the two sides of a matrix of prices, of which no sum exceeds a price.

    Args:
        prices: the price of each pair; infinite if it is impossible.
        a: the potentials of the rows, NaN where they are unknown.
        b: the potentials of the columns, NaN where they are unknown.
        ceiling: the largest potential.

    Returns:
        The potentials of the rows, as large as the known columns allow, and those of the columns, the known ones unchanged.
    """
    is_known = ~np.isnan(b)
    rows = (prices[:, is_known] - b[is_known]).min(axis=1, initial=ceiling)
    columns = (prices - rows[:, None]).min(axis=0, initial=ceiling)
    return rows, np.where(is_known, b, columns)


__all__ = ["Bound", "Potentials"]
