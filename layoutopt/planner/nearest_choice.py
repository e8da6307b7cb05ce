"""Among the choices of one price, one that differs from a given choice in few places.

Solutions of one price are many, and a solver returns any of them. Groups of ops that differ from the given choice, and that
tensors connect, take their options in the given choice again, one group after the other, where that costs nothing.
"""

from collections.abc import Collection, Sequence
from math import inf
from typing import Any

import networkx as nx

from layoutopt.planner.problem import TIE_TOLERANCE, Choice, Problem, Tensor
from layoutopt.planner.problem_edit import ProblemEdit


class NearestChoice:
    """Sets a choice back to a given one, where that costs nothing.

    Args:
        problem: the planning problem.
        given: the choice to approach.
    """

    def __init__(self, problem: Problem, given: Choice) -> None:
        self.problem = problem
        self.given = given
        self._writers: dict[int, int] = {}
        self._readers: dict[int, list[int]] = {}
        for op, options in enumerate(problem.ops):
            for tensor, _ in options[0].result_states:
                self._writers[tensor] = op
            for tensor in dict.fromkeys(tensor for tensor, _ in options[0].operand_states):
                self._readers.setdefault(tensor, []).append(op)

    def approach(self, choice: Choice, edit: ProblemEdit) -> Choice:
        """A choice of the price of `choice`, or less, that differs from the given one in at most as many ops.

        Args:
            choice: a choice that an edit permits.
            edit: constraints that the result meets, too.
        """
        found = list(choice)
        for ops, tensors in self._differing(choice):
            attempt = list(found)
            for op in ops:
                attempt[op] = self.given[op]
            before, after = (self._price(each, ops, tensors, edit) for each in (found, attempt))
            is_permitted = all(edit.allows(op, self.given[op]) for op in ops)
            if is_permitted and after <= before + TIE_TOLERANCE * abs(before):
                found = attempt
        return tuple(found)

    def _differing(self, choice: Choice) -> list[tuple[list[int], list[int]]]:
        """The ops that differ from the given choice, in groups that tensors connect, and these tensors; small groups first."""
        links: Any = nx.Graph()
        for op, (option, own) in enumerate(zip(choice, self.given, strict=True)):
            if option != own:
                states = self.problem.ops[op][option]
                links.add_node(op)
                links.add_edges_from((op, (tensor,)) for tensor, _ in (*states.result_states, *states.operand_states))
        groups = []
        for group in nx.connected_components(links):
            ops = sorted(each for each in group if isinstance(each, int))
            groups.append((ops, sorted(tensor for (tensor,) in group.difference(ops))))
        return sorted(groups, key=lambda each: (len(each[0]), each[0]))

    def _price(self, choice: Sequence[int], ops: Collection[int], tensors: Collection[int], edit: ProblemEdit) -> float:
        """The price of some ops and of the casts of some tensors under a choice; infinite if one is impossible."""
        price = sum(self.problem.ops[op][choice[op]].price for op in ops)
        for number in tensors:
            tensor = self.problem.tensors[number]
            source, states = self._states(number, tensor, choice)
            casts = set()
            for state in states:
                cast = tensor.casts.get((source, state), -1)
                if cast == -1 or (number, cast) in edit.forbidden_casts:
                    return inf
                casts.add(cast)
            price += sum(tensor.prices[cast] for cast in sorted(each for each in casts if each is not None))
        return price

    def _states(self, number: int, tensor: Tensor, choice: Sequence[int]) -> tuple[int, set[int]]:
        """The state in which a tensor is produced, and those that are required."""
        states = set(tensor.required_states)
        for op in self._readers.get(number, ()):
            states |= {state for read, state in self.problem.ops[op][choice[op]].operand_states if read == number}
        if number not in self._writers:
            assert tensor.source_state is not None
            return tensor.source_state, states
        writer = self._writers[number]
        return dict(self.problem.ops[writer][choice[writer]].result_states)[number], states


__all__ = ["NearestChoice"]
