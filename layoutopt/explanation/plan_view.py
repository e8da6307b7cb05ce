"""A graph with its plan, in the terms of the planning problem: the op that produces a tensor, and the ops that read it.

Ops, tensors and states are the numbers of the planning problem; `GRAPH_OUTPUT` is the number of the graph as a reader.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from layoutopt.driver.job import Job
from layoutopt.explanation.schema import Participant, Side
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Storage, Value
from layoutopt.ops import View, rule_of
from layoutopt.planner import GRAPH_OUTPUT, FormulatedPlan, Option, PlanRequest, Repricer
from layoutopt.planner.problem import connected
from layoutopt.planner.propagation import Key, storage_key
from layoutopt.record import Record
from layoutopt.report.builder import first_output, located_ops, physical_bytes


class ViewBase(Record):
    """The tensor from whose bytes view ops make another one.

    Attributes:
        tensor: the number of the tensor.
        format: its format with the bytes of a given format of the other tensor; None if there is none.
        views: the view ops from it to the other tensor.
    """

    tensor: int
    format: Format | None
    views: tuple[int, ...]


class CastInPlan(Record):
    """A cast that a choice requires.

    Attributes:
        tensor: the number of the tensor.
        cast: the number of the cast among those of the tensor.
        source: the state in which the tensor is produced.
        readers: the readers that require the cast, and the state that each requires.
        seconds: its estimated time, of all its runs.
    """

    tensor: int
    cast: int
    source: int
    readers: tuple[tuple[int, int], ...]
    seconds: float

    @property
    def state(self) -> int:
        """The state that the first reader requires."""
        return self.readers[0][1]


class PlanView:
    """The graph of a model, unplanned, with its plan in the terms of the planning problem.

    Args:
        job: the job that read the model.
        graph: the graph before formats are assigned.
        request: the planning request.
        found: the plan and the problem that it solves.

    Attributes:
        plan: the plan.
        units: the ops, by number.
        values: the tensors, by number.
        writers: the number of the op that produces a tensor; no entry for graph inputs.
    """

    def __init__(self, job: Job, graph: Graph, request: PlanRequest, found: FormulatedPlan) -> None:
        self.job, self.graph, self.request = job, graph, request
        self.plan = found.plan
        self.formulation = found.formulation
        self.problem = self.formulation.problem
        self.choice = found.choice
        self._limits = found.limits
        self.units: Sequence[Op] = self.formulation.tree.ops
        self.values: list[Value] = list(self.formulation.index)
        self.writers = {
            tensor: op for op, options in enumerate(self.problem.ops) for tensor, _ in options[0].result_states
        }

    @cached_property
    def repricer(self) -> Repricer:
        """Prices edits of the planning problem, in the time that the deadline of the request leaves."""
        return Repricer(self.problem, self.choice, self.request.deadline.remaining, self._limits)

    def storage(self, tensor: int, state: int) -> Storage:
        """The storage of a state."""
        return self.formulation.storages[self.values[tensor]][state]

    def key(self, tensor: int, state: int) -> Key:
        """The key of a state: states with one key have the same bytes, apart from padding."""
        return storage_key(self.values[tensor], self.storage(tensor, state))

    def text(self, tensor: int, state: int) -> str:
        """The storage of a state with the letters of the tensor's axes, and its device."""
        return self.storage(tensor, state).placed_text(self.values[tensor].axis_letters or "")

    def nbytes(self, tensor: int, state: int) -> int:
        """The bytes of a tensor in a state, the mean over the sizes of symbolic dimensions; 0 if its shape is unknown."""
        return physical_bytes(self.values[tensor], self.job.context.sizes, self.storage(tensor, state))

    def percent(self, seconds: float) -> float:
        """Seconds in percent of the time of the plan."""
        return 100 * seconds / self.plan.seconds if self.plan.seconds else 0.0

    def option(self, op: int) -> Option:
        """The option of an op in the plan."""
        return self.problem.ops[op][self.choice[op]]

    def produced(self, tensor: int) -> int:
        """The state in which a tensor is produced."""
        source = self.problem.tensors[tensor].source_state
        return dict(self.option(self.writers[tensor]).result_states)[tensor] if source is None else source

    def required(self, tensor: int) -> list[tuple[int, int]]:
        """The readers of a tensor and the state that each requires; several for an op that reads it more than once."""
        return [
            *self._readers[tensor],
            *((GRAPH_OUTPUT, state) for state in self.problem.tensors[tensor].required_states),
        ]

    @cached_property
    def _readers(self) -> dict[int, dict[tuple[int, int], None]]:
        """The ops that read each tensor, and the state that each requires, as keys in the order of the ops."""
        found: dict[int, dict[tuple[int, int], None]] = defaultdict(dict)
        for op in range(len(self.units)):
            for tensor, state in self.option(op).operand_states:
                found[tensor][op, state] = None
        return found

    def casts(self) -> Iterator[CastInPlan]:
        """The casts of the plan with their readers."""
        for number, cast in self.problem.required_casts(self.choice) or []:
            tensor, source = self.problem.tensors[number], self.produced(number)
            readers = tuple(each for each in self.required(number) if tensor.casts.get((source, each[1])) == cast)
            yield CastInPlan(number, cast, source, readers, tensor.prices[cast])

    def view_base(self, tensor: int, format: Format) -> ViewBase:
        """The tensor that view ops make a tensor of, with the bytes of a format of it; the tensor itself if there are none."""
        views: list[int] = []
        found: Format | None = format
        while tensor in self.writers and (rule := self._view_rule(self.writers[tensor])) is not None:
            op, unit = self.writers[tensor], self.units[self.writers[tensor]]
            source = unit.inputs[0]
            if source is None or source not in self.formulation.index:
                break
            views.insert(0, op)
            found = None if found is None else rule.input_format(unit, found)
            tensor = self.formulation.index[source]
        return ViewBase(tensor, found, tuple(views))

    def view_tensors(self, tensor: int) -> set[int]:
        """The tensors that view ops connect with a tensor, which is one of them."""
        options = ((op, self.problem.ops[op][0]) for op in range(len(self.units)) if self._view_rule(op) is not None)
        tensors_of = (
            (op, {tensor for tensor, _ in (*each.result_states, *each.operand_states)}) for op, each in options
        )
        return next((set(tensors) for _, tensors in connected(tensors_of) if tensor in tensors), {tensor})

    def _view_rule(self, op: int) -> View | None:
        rule = rule_of(self.units[op])
        return rule if isinstance(rule, View) and len(self.problem.ops[op]) > 1 else None

    def formats_of(self, op: int, tensor: int, *, is_read: bool) -> dict[Key, tuple[Format, frozenset[int]]]:
        """The formats that an op may choose for a tensor that it reads or produces, by key, with the options that have each."""
        found: dict[Key, tuple[Format, set[int]]] = {}
        for number, option in enumerate(self.problem.ops[op]):
            for each, state in option.operand_states if is_read else option.result_states:
                if each == tensor:
                    format = self.storage(tensor, state).format
                    found.setdefault(self.key(tensor, state), (format, set()))[1].add(number)
        return {key: (format, frozenset(options)) for key, (format, options) in found.items()}

    def participant(self, side: Side, op: int | None, tensor: int, state: int) -> Participant:
        """The op that reads or produces a tensor in a state; the graph for `GRAPH_OUTPUT`, graph inputs and constants."""
        value, text = self.values[tensor], self.text(tensor, state)
        if op is None or op == GRAPH_OUTPUT:
            scope = "body" if self.body_of(value) else "graph"
            kind = f"{scope} output" if op == GRAPH_OUTPUT else "constant" if value.is_constant else f"{scope} input"
            return Participant(side=side, kind=kind, name=value.name, format=text, candidates=(text,))
        candidates = self.formats_of(op, tensor, is_read=side == "to").values()
        texts = tuple(value.format_text(format) for format, _ in candidates)
        return Participant(side=side, kind=self.units[op].kind, name=self.name(op), format=text, candidates=texts)

    def participants(self, base: int, tensor: int, readers: Iterable[tuple[int, int]]) -> tuple[Participant, ...]:
        """The producer of a tensor, and readers of the tensor that views make of it, with the states that they require."""
        producer = self.participant("from", self.writers.get(base), base, self.produced(base))
        return (producer, *(self.participant("to", op, tensor, state) for op, state in readers))

    def name(self, op: int) -> str:
        """The name of an op, or of its first output if it has none."""
        return self.units[op].name or first_output(self.units[op])

    def label(self, op: int) -> str:
        """An op with its type and name."""
        return f"{self.units[op].kind} {self.name(op)}"

    def body_of(self, value: Value) -> str:
        """The path of the body that a tensor is in: names of the enclosing ops and attributes; empty in the main graph."""
        owner = self.formulation.tree.graph_of[value]
        return next((located.body for located in located_ops(self.graph) if located.graph is owner), "")
