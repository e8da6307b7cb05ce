"""Edits of a planning problem: constraints that are added to it, and requirements that are removed from it.

An added constraint forbids a cast or leaves an op fewer options: the best price cannot fall. A removed requirement lets an op
read a tensor in every state, or lets a tensor have the state that each use requires: the best price cannot rise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from layoutopt.planner.problem import Option, Tensor

GRAPH_OUTPUT = -1
"""In place of the number of an op: the graph, which requires a state of a tensor that is its output."""

_ANY_STATE = -1  # of a tensor that is produced in the state that each use requires

Cast: TypeAlias = tuple[int, int]
"""A cast of a planning problem: the number of the tensor, and the number of the cast among those of the tensor."""


@dataclass(frozen=True, slots=True)
class ProblemEdit:
    """An edit of a planning problem.

    Attributes:
        forbidden_casts: casts that no choice may require.
        allowed_options: the options that an op may take, by the number of the op; ops that are missing may take any.
        free_reads: pairs of an op, or `GRAPH_OUTPUT`, and a tensor that it reads in every state.
        free_results: tensors that are produced in the state that each use requires.
    """

    forbidden_casts: frozenset[Cast] = frozenset()
    allowed_options: Mapping[int, frozenset[int]] = field(default_factory=lambda: MappingProxyType({}))
    free_reads: frozenset[tuple[int, int]] = frozenset()
    free_results: frozenset[int] = frozenset()

    @property
    def only_adds_constraints(self) -> bool:
        """Whether every choice of the edited problem is one of the problem."""
        return not self.free_reads and not self.free_results

    @property
    def tensors(self) -> set[int]:
        """The tensors whose casts change."""
        return (
            {tensor for tensor, _ in self.forbidden_casts}
            | {tensor for _, tensor in self.free_reads}
            | {*self.free_results}
        )

    def joined(self, other: "ProblemEdit") -> "ProblemEdit":
        """Both edits together."""
        allowed = dict(self.allowed_options)
        for op, options in other.allowed_options.items():
            allowed[op] = allowed[op] & options if op in allowed else options
        return ProblemEdit(
            self.forbidden_casts | other.forbidden_casts,
            allowed,
            self.free_reads | other.free_reads,
            self.free_results | other.free_results,
        )

    def allows(self, op: int, option: int) -> bool:
        """Whether an op may take an option."""
        return op not in self.allowed_options or option in self.allowed_options[op]

    def edited_option(self, op: int, option: Option) -> Option:
        """An option of an op, without the requirements that the edit removes."""
        operands = tuple(each for each in option.operand_states if (op, each[0]) not in self.free_reads)
        results = tuple(
            (tensor, _ANY_STATE if tensor in self.free_results else state) for tensor, state in option.result_states
        )
        return Option(option.price, results, operands)

    def edited_tensor(self, number: int, tensor: Tensor, source: int | None, required: list[int]) -> Tensor:
        """A tensor with the casts that the edit permits.

        Args:
            number: the number of the tensor.
            tensor: the tensor.
            source: the state in which it is produced, whatever is chosen; None if an op with a choice produces it.
            required: the states that are required, whatever is chosen.
        """
        casts = {pair: cast for pair, cast in tensor.casts.items() if (number, cast) not in self.forbidden_casts}
        if number in self.free_results:
            casts |= {(_ANY_STATE, state): None for _, state in tensor.casts} | {
                (_ANY_STATE, each): None for each in required
            }
            source = None if source is None else _ANY_STATE
        return Tensor(casts, tensor.prices, source, required, tensor.nbytes, tensor.depth)


__all__ = ["GRAPH_OUTPUT", "Cast", "ProblemEdit"]
