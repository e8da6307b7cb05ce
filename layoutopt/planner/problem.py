"""The planning problem, without any notion of layouts.

Every *op* chooses one of its options. An option has a price, a state for each tensor that the op produces, and a state for
each tensor that it reads. If a tensor is produced in one state and required in another, a *cast* may be required; several
consumers that require the same cast share it, and its price is paid once:

    minimise   sum of the prices of the chosen options  +  sum of the prices of the distinct required casts

Choices of one price are distinguished by the bytes that their casts move, then by the number of casts, then by the depth of
their tensors, so that casts are as late as possible, then by the ranks of options, which depend on contents and not on order.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from time import monotonic
from types import MappingProxyType
from typing import Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace
from networkx.utils import UnionFind

from layoutopt.record import Record

TOLERANCE = 1e-6  # relative; a smaller gap counts as zero
_IMPOSSIBLE = -1  # in place of the number of a cast
TIE_TOLERANCE = 1e-9  # relative; prices that differ by less are one price
_MAX_NODES = 500  # of an integer program with additional rows, if the caller sets no time limit
_MAX_SECONDS = 120.0  # for such a program on a machine on which these nodes take longer

Choice: TypeAlias = tuple[int, ...]
"""The number of the chosen option, per op."""

Ranks: TypeAlias = Callable[[int, int], tuple[int, ...]]
"""The rank of an option, by the numbers of the op and of the option: integers of at most 9 digits, the first ones decide."""


def search_limit(seconds: float | None) -> dict[str, float]:
    """The settings that end the search of an integer program with additional rows.

    Args:
        seconds: the time that is left; None to end it after a number of nodes, with which every run finds the same choice.
    """
    if seconds is not None:
        return {"time_limit": seconds}
    return {"mip_max_nodes": _MAX_NODES, "time_limit": _MAX_SECONDS}


class Option(Record):
    """One way to run an op: its price, and the states of its results and operands as pairs (tensor, state).

    All options of an op have the same tensors in the same order; they differ in states and prices.
    """

    price: float
    result_states: tuple[tuple[int, int], ...] = ()
    operand_states: tuple[tuple[int, int], ...] = ()

    @property
    def tensors(self) -> list[int]:
        """The results and operands."""
        return [tensor for tensor, _ in (*self.result_states, *self.operand_states)]

    def without_read(self, tensor: int) -> "Option":
        """The option that reads a tensor in every state."""
        return replace(self, operand_states=tuple(each for each in self.operand_states if each[0] != tensor))

    def with_result(self, tensor: int, state: int) -> "Option":
        """The option that produces a tensor, if it is one of its results, in another state."""
        results = ((each, state if each == tensor else own) for each, own in self.result_states)
        return replace(self, result_states=tuple(results))

    def renumbered(self, number: Mapping[int, int]) -> "Option":
        """The option with other numbers for its tensors."""
        results, operands = (
            tuple((number[tensor], state) for tensor, state in states)
            for states in (self.result_states, self.operand_states)
        )
        return Option(self.price, results, operands)


class Tensor(Struct):
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

    def in_every_state(self) -> "Tensor":
        """The tensor, produced in the state that each use requires."""
        states = {state for _, state in self.casts} | {*self.required_states}
        source = None if self.source_state is None else _ANY_STATE
        return replace(self, casts=self.casts | {(_ANY_STATE, state): None for state in states}, source_state=source)


class Problem(Struct):
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
        prices = [[option.price for option in options] for options in self.ops]
        most = sum(max(each for each in of_op if each < inf) for of_op in prices)
        return most + sum(each for tensor in self.tensors for each in tensor.prices if each < inf)

    def price(self, choice: Sequence[int]) -> float:
        """The price of a choice of one option per op; infinite if it needs an impossible cast."""
        casts = self.required_casts(choice)
        if casts is None:
            return inf
        chosen = sum(options[index].price for options, index in zip(self.ops, choice, strict=True))
        return chosen + sum(self.tensors[tensor].prices[cast] for tensor, cast in casts)

    def restricted(self, numbers: Sequence[Sequence[int]]) -> "Problem":
        """The problem with some options of every op, by their numbers."""
        ops = [[options[number] for number in kept] for options, kept in zip(self.ops, numbers, strict=True)]
        return Problem(ops, self.tensors)

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


def greedy_choice(problem: Problem, has_kernels: Sequence[bool]) -> Choice:
    """The choice of a compiler that propagates states: each op, in order, decides with the states of its operands.

    An op takes the cheapest option, and among equal ones that with the cheapest new casts of its operands; an op without
    kernels of its own takes the option that is cheapest together with these casts.

    Args:
        problem: the problem.
        has_kernels: per op, whether some options are those of kernels.
    """
    states = [tensor.source_state for tensor in problem.tensors]
    made: set[tuple[int, int]] = set()
    chosen = []
    for options, decides_alone in zip(problem.ops, has_kernels, strict=True):
        ranked = []
        for number, option in enumerate(options):
            casts: set[tuple[int, int]] = set()
            price = 0.0
            for read, required in option.operand_states:
                state, tensor = states[read], problem.tensors[read]
                cast = None if state is None else tensor.casts.get((state, required), _IMPOSSIBLE)
                if cast is not None and (read, cast) not in made and (read, cast) not in casts:
                    casts.add((read, cast))
                    price += inf if cast == _IMPOSSIBLE else tensor.prices[cast]
            alone = option.price if decides_alone else option.price + price
            ranked.append(((price == inf, alone, price), number, casts))
        _, number, casts = min(ranked, key=lambda each: each[:2])
        made |= casts
        for result, produced in options[number].result_states:
            states[result] = produced
        chosen.append(number)
    return tuple(chosen)


class Solution(Record):
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


# --- Edits of a planning problem: constraints that are added to it, and requirements that are removed from it ---
#
# An added constraint forbids a cast or leaves an op fewer options: the best price cannot fall. A removed requirement lets
# an op read a tensor in every state, or lets a tensor have the state that each use requires: the best price cannot rise.


GRAPH_OUTPUT = -1
"""In place of the number of an op: the graph, which requires a state of a tensor that is its output."""

_ANY_STATE = -1  # of a tensor that is produced in the state that each use requires

Cast: TypeAlias = tuple[int, int]
"""A cast of a planning problem: the number of the tensor, and the number of the cast among those of the tensor."""


class ProblemEdit(Record):
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

    def ops(self, problem: Problem) -> set[int]:
        """The ops whose options or whose tensors' casts change."""
        changed = {tensor for tensor, _ in self.forbidden_casts} | {tensor for _, tensor in self.free_reads}
        changed |= self.free_results
        touched = {op for op, options in enumerate(problem.ops) if not changed.isdisjoint(options[0].tensors)}
        return touched | self.allowed_options.keys()

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

    def applied(self, problem: Problem) -> Problem:
        """The edited problem, with the same numbers: excluded options and casts have an infinite price."""
        ops, tensors = list(problem.ops), list(problem.tensors)
        for op, allowed in self.allowed_options.items():
            ops[op] = [each if number in allowed else replace(each, price=inf) for number, each in enumerate(ops[op])]
        for number, cast in self.forbidden_casts:
            prices = [inf if position == cast else each for position, each in enumerate(tensors[number].prices)]
            tensors[number] = replace(tensors[number], prices=prices)
        for op, number in self.free_reads:
            if op == GRAPH_OUTPUT:
                tensors[number] = replace(tensors[number], required_states=[])
            else:
                ops[op] = [each.without_read(number) for each in ops[op]]
        for number in self.free_results:
            tensors[number] = tensors[number].in_every_state()
            ops = [[each.with_result(number, _ANY_STATE) for each in options] for options in ops]
        return Problem(ops, tensors)


def connected(tensors: Iterable[tuple[int, Iterable[int]]]) -> list[tuple[list[int], list[int]]]:
    """Ops in groups that tensors connect, each with these tensors, as ascending numbers.

    Args:
        tensors: pairs of an op and its tensors.
    """
    links: Any = UnionFind()
    for op, of_op in tensors:
        links.union(op, *((tensor,) for tensor in of_op))
    found = []
    for group in links.to_sets():
        ops = sorted(each for each in group if isinstance(each, int))
        found.append((ops, sorted(tensor for (tensor,) in group.difference(ops))))
    return found


class Parts:
    """The parts of a problem, in which ops without a choice are constants.

    Attributes:
        components: the connected components of the ops that have a choice, and of their tensors.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.components = connected(
            (op, options[0].tensors) for op, options in enumerate(problem.ops) if len(options) > 1
        )
        self._produced: dict[int, int] = {}
        self._required: dict[int, list[int]] = {}
        for options in problem.ops:
            if len(options) == 1:
                self._produced.update(options[0].result_states)
                for tensor, state in options[0].operand_states:
                    self._required.setdefault(tensor, []).append(state)

    def part(self, ops: Sequence[int], tensors: Sequence[int]) -> Problem:
        """The problem of some ops and tensors, by their numbers."""
        number = {tensor: position for position, tensor in enumerate(tensors)}
        options = [[option.renumbered(number) for option in self.problem.ops[op]] for op in ops]
        ranks = self.problem.ranks
        renumbered = ranks and (lambda op, option: ranks(ops[op], option))
        return Problem(options, [self._tensor(each) for each in tensors], renumbered)

    def _tensor(self, number: int) -> Tensor:
        """A tensor with the states that ops without a choice produce and require."""
        tensor = self.problem.tensors[number]
        states = dict.fromkeys([*tensor.required_states, *self._required.get(number, ())])
        source = self._produced.get(number, tensor.source_state)
        return replace(tensor, source_state=source, required_states=list(states))


# --- deadline ---
#
# The time limit of planning, which ends the propagation of formats and the solver.


class Deadline(Record):
    """The end of the time for planning.

    Attributes:
        limit: seconds from now; None for no limit.
    """

    limit: float | None = None
    start: float = field(default_factory=monotonic)

    @property
    def remaining(self) -> float | None:
        """The remaining seconds; None if there is no limit."""
        return None if self.limit is None else max(0.0, self.start + self.limit - monotonic())

    @property
    def has_passed(self) -> bool:
        """Whether no time is left."""
        return self.remaining == 0.0


NO_DEADLINE = Deadline()
