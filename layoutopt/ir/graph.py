"""The graph: ops and values as the nodes of one networkx MultiDiGraph.

    value --[key = input index]--> op --[key = output index]--> value

Both kinds of node make every use an edge of its own: `Mul(x, x)` is two edges from x. Graph inputs and constants are values
without a predecessor, graph outputs are listed by position. A value counts its uses, because thousands of ops may read one
constant. Every change counts up `version`, which is how a pass is known to have changed something.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import networkx as nx

from layoutopt.ir.functions import Function
from layoutopt.ir.types import Format, Op, OpaqueType, Signature, Storage, TensorType, Value

Stage: TypeAlias = Literal["plain", "assigned", "cast", "lowered"]
"""How far a graph is: no formats yet; formats assigned; casts inserted, so that formats agree everywhere; arrays, which have no
formats."""


_USES = "uses"  # attribute of a value in the net: the number of edges from it
_FEW = 16  # outputs that are searched one by one; more have an index


@dataclass(frozen=True, slots=True)
class Use:
    """One place where a value is read: input `index` of `op`."""

    op: Op
    index: int


_LINKS = ("_net", "_names")  # attributes of a graph that follow from its ops and values


class Graph:
    """A model's main graph, the body of an op, or the body of a function.

    Args:
        name: the graph's name.
        opsets: the version of every operator domain in use.
        origin: what the graph was lifted from; carries everything that the IR does not model.
        root: for the body of an op, the main graph, whose opsets and functions it shares.

    `promised` says in which storage outputs are handed out, by position, where that is not the canonical one. `repairs`
    lists the faults of the model that the reader has repaired, as (name, reason).
    """

    def __init__(
        self,
        name: str = "",
        opsets: dict[str, int] | None = None,
        origin: object = None,
        root: "Graph | None" = None,
    ) -> None:
        self.name = name
        self.opsets: dict[str, int] = dict(opsets or {}) if root is None else root.opsets
        self.origin = origin
        self._root = root  # None for a main graph: a link to itself would leave it to the cyclic garbage collector
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.functions: list[Function] = [] if root is None else root.functions
        self.promised: dict[int, Storage] = {}
        self.metadata: dict[str, str] = {}
        self.repairs: list[tuple[str, str]] = []
        self.stage: Stage = "plain"
        self.version = 0
        self._net: Any = nx.MultiDiGraph()
        self._names: dict[str, Value] = {}
        self._suffixes: dict[str, int] = {}
        self._counter = 0
        self._sorted: list[Op] = []
        self._sorted_at = -1
        self._indexed: list[Value] = []
        self._indexed_count = 0
        self._output_places: dict[Value, list[int]] = {}

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {len(self)} ops, {len(self._names)} values, {self.stage})"

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: lists of ops and values in place of the links between them, and no origin.

        What the intermediate representation does not model, such as doc strings, stays behind with the model.
        """
        kept = {name: each for name, each in self.__dict__.items() if name not in _LINKS}
        return {
            **kept,
            "origin": None,
            "_sorted": [],
            "_sorted_at": -1,
            "_copied": (list(self._all_ops()), self.values),
        }

    def __getattr__(self, name: str) -> Any:
        """Link a copy when it is first looked at: an op in it may be without its state until all of it is there."""
        if name not in _LINKS or "_copied" not in self.__dict__:
            raise AttributeError(name)
        ops, values = self.__dict__.pop("_copied")
        self._names = {value.name: value for value in values}
        self._net = nx.MultiDiGraph()
        self._net.add_nodes_from(values, **{_USES: 0})
        self._net.add_nodes_from(ops)
        for op in ops:
            self._link(op)
        return self.__dict__[name]

    # --- reading -------------------------------------------------------------------------------------------------

    @property
    def root(self) -> "Graph":
        """The main graph that this graph is a body in; the graph itself if it is one."""
        return self if self._root is None else self._root

    @root.setter
    def root(self, root: "Graph") -> None:
        self._root = None if root is self else root

    @property
    def values(self) -> list[Value]:
        """Every value, in the order of creation."""
        return list(self._names.values())

    @property
    def ops(self) -> list[Op]:
        """Every op in topological order; among ops that are ready, the one that stood first in the file."""
        if not self._is_sortable():
            raise ValueError(f"the ops of graph {self.name!r} have no order: there is a cycle")
        return list(self._sorted)

    def __len__(self) -> int:
        return int(self._net.number_of_nodes()) - len(self._names)

    def __contains__(self, node: Op | Value) -> bool:
        return node in self._net

    def value(self, name: str) -> Value:
        """The value of that name; KeyError if there is none."""
        return self._names[name]

    def find(self, name: str) -> Value | None:
        """The value of that name, if there is one."""
        return self._names.get(name)

    def producer(self, value: Value) -> Op | None:
        """The op that computes `value`; None for graph inputs and constants."""
        return next(iter(self._net.pred[value]), None)

    def output_index(self, value: Value) -> int:
        """Which output of its producer `value` is."""
        producer = self.producer(value)
        if producer is None:
            raise KeyError(value.name)
        return int(next(iter(self._net.succ[producer][value])))

    def uses(self, value: Value) -> list[Use]:
        """Every place where an op reads `value`, in a stable order."""
        uses = [Use(op, int(key)) for op, keys in self._net.succ[value].items() for key in keys]
        return sorted(uses, key=lambda use: (use.op.order, use.index)) if len(uses) > 1 else uses

    def readers(self, value: Value) -> Iterator[Op]:
        """The ops that read `value`, one by one; for questions that a few of thousands answer."""
        return iter(self._net.succ[value])

    def use_count(self, value: Value) -> int:
        """How many uses `value` has, without a list of them: thousands of ops may read one constant."""
        return int(self._net.nodes[value][_USES])

    def is_read(self, value: Value) -> bool:
        """Whether an op reads the value."""
        return bool(self._net.succ[value])

    def is_private(self, value: Value) -> bool:
        """Whether one op reads the value and nobody else knows it."""
        return self.use_count(value) == 1 and not self.is_output(value)

    def is_output(self, value: Value) -> bool:
        """Whether `value` is an output of the graph."""
        if len(self.outputs) < _FEW:
            return any(output is value for output in self.outputs)
        return bool(self._places().get(value))

    def output_places(self, value: Value) -> list[int]:
        """The positions at which `value` is an output of the graph, in ascending order."""
        return sorted(self._places().get(value, ()))

    def _places(self) -> dict[Value, list[int]]:
        """The positions of every output; `set_output` keeps them, another list of outputs has others."""
        if self._indexed is not self.outputs or len(self._indexed) != self._indexed_count:
            self._indexed, self._indexed_count, self._output_places = self.outputs, len(self.outputs), {}
            for index, output in enumerate(self.outputs):
                self._output_places.setdefault(output, []).append(index)
        return self._output_places

    def output_storage(self, index: int) -> Storage | None:
        """How output `index` is to be handed out: as promised, else canonical; None if its rank is unknown."""
        rank = self.outputs[index].rank
        return None if rank is None else self.promised.get(index, Storage(Format.canonical(rank)))

    def find_cycle(self) -> list[str]:
        """The names along one cycle, empty if there is none."""
        if self._is_sortable():
            return []
        tangle = next((part for part in nx.strongly_connected_components(self._net) if len(part) > 1), None)
        if tangle is None:
            return []
        edges = nx.find_cycle(self._net.subgraph(tangle))  # on the whole graph it takes quadratic time
        return [node.name or node.kind if isinstance(node, Op) else node.name for node, *_ in edges]

    def _is_sortable(self) -> bool:
        """Whether all ops have an order; sorts them if the graph has changed since the last time."""
        if self._sorted_at != self.version:
            key = lambda node: (1, node.order) if isinstance(node, Op) else (0, ())  # noqa: E731
            try:
                nodes = list(nx.lexicographical_topological_sort(self._net, key))
            except nx.NetworkXUnfeasible:
                return False
            self._sorted, self._sorted_at = [node for node in nodes if isinstance(node, Op)], self.version
        return True

    def _all_ops(self) -> Iterator[Op]:
        return (node for node in self._net if isinstance(node, Op))

    def nest(self) -> "list[Graph]":
        """This graph and every body in it, however deep, each behind the graph that its op is in."""
        found = [self]
        for graph in found:  # it grows on the way
            found += [body for op in graph._all_ops() for body in op.bodies.values()]
        return found

    def edges(self) -> Iterator[tuple[Op | Value, Op | Value, int]]:
        """Every edge with its key, for the verifier."""
        yield from self._net.edges(keys=True)

    # --- changing ------------------------------------------------------------------------------------------------

    def fresh_name(self, stem: str) -> str:
        """`stem`, or `stem_2`, `stem_3`... until no value has that name."""
        name, count = stem, self._suffixes.get(stem, 1)
        while name in self._names:
            count += 1
            name = f"{stem}_{count}"
        self._suffixes[stem] = max(count - 1, 1)  # where to go on looking: a weight may have thousands of copies
        return name

    def add_value(self, value: Value) -> Value:
        """Take in a value; its name must be free."""
        if value.name in self._names:
            raise ValueError(f"duplicate value name {value.name!r}")
        self._names[value.name] = value
        self._net.add_node(value, **{_USES: 0})
        self.version += 1
        return value

    def new_value(self, stem: str, type: TensorType | OpaqueType, **fields: Any) -> Value:
        """Make a value under a fresh name."""
        return self.add_value(Value(self.fresh_name(stem), type, **fields))

    def add_op(self, op: Op, near: Op | None = None, *, first: bool = False) -> Op:
        """Take in an op whose operands are in the graph; `near` places it right behind another, `first` before all."""
        self._counter += 1
        if not op.order:
            anchor = near.order if near is not None else (-1,) if first else ()
            op.order = (*anchor, self._counter)
        self._net.add_node(op)
        self._link(op)
        self.version += 1
        return op

    def add_copy(self, op: Op, outputs: tuple[Value | None, ...]) -> Op:
        """Take in another op like one without bodies, right behind it, that computes other values."""
        copy = Op(
            op.op_type,
            op.inputs,
            outputs,
            domain=op.domain,
            version=op.version,
            attributes=dict(op.attributes),
            origin=op.origin,
        )
        return self.add_op(copy, op)

    def remove_op(self, op: Op) -> None:
        """Take out an op and its outputs; nothing may read them any more."""
        for value in op.outputs:
            if value is None:
                continue
            if self.is_read(value) or self.is_output(value):
                raise ValueError(f"{value.name!r} is still in use")
            self._net.remove_node(value)
            del self._names[value.name]
        self._unlink_inputs(op)
        self._net.remove_node(op)
        self.version += 1

    def remove_unread(self, op: Op) -> None:
        """Take out an op if nothing reads its outputs, then those before it that nothing else reads."""
        doomed = [op]
        while doomed:
            each = doomed.pop()
            outputs = [value for value in each.outputs if value is not None]
            if each not in self or any(self.is_read(value) or self.is_output(value) for value in outputs):
                continue
            inputs = dict.fromkeys(value for value in each.inputs if value is not None)
            self.remove_op(each)
            doomed += [before for value in inputs if (before := self.producer(value)) is not None]

    def remove_value(self, value: Value) -> None:
        """Take out a value that no op computes or reads."""
        if self._net.pred[value] or self.is_read(value) or self.is_output(value):
            raise ValueError(f"{value.name!r} is still in use")
        self._net.remove_node(value)
        del self._names[value.name]
        self.version += 1

    def rename(self, value: Value, name: str) -> None:
        """Give a value another name, which must be free. The order of `values` does not keep its place."""
        if name in self._names:
            raise ValueError(f"duplicate value name {name!r}")
        del self._names[value.name]
        value.name = name
        self._names[name] = value
        self.version += 1

    def set_input(self, op: Op, index: int, value: Value | None) -> None:
        """Let input `index` of `op` read another value."""
        self.change_inputs(op, {index: value})

    def change_inputs(self, op: Op, values: Mapping[int, Value | None]) -> None:
        """Let some inputs of `op`, by index, read other values; one copy of the list of inputs, however many change."""
        inputs = list(op.inputs)
        for index, value in values.items():
            old, inputs[index] = inputs[index], value
            if old is value:
                continue
            if old is not None:
                self._remove_use(old, op, index)
            if value is not None:
                self._add_use(value, op, index)
            self.version += 1
        op.inputs = tuple(inputs)

    def set_inputs(self, op: Op, inputs: tuple[Value | None, ...]) -> None:
        """Give an op another list of inputs."""
        self._unlink_inputs(op)
        op.inputs = inputs
        self._link_inputs(op)
        self.version += 1

    def set_outputs(self, op: Op, outputs: tuple[Value | None, ...]) -> None:
        """Give an op another list of outputs; what it computed before is without a source then."""
        for index, value in enumerate(op.outputs):
            if value is not None:
                self._net.remove_edge(op, value, index)
        op.outputs = outputs
        self._link_outputs(op)
        self.version += 1

    def replace_uses(self, old: Value, new: Value, uses: Iterable[Use] | None = None) -> None:
        """Let every listed use of `old` (all of them, by default) read `new`; graph outputs stay."""
        places: dict[Op, list[int]] = {}
        for use in self.uses(old) if uses is None else uses:
            places.setdefault(use.op, []).append(use.index)
        for op, indices in places.items():
            self.change_inputs(op, dict.fromkeys(indices, new))

    def capture(self, op: Op, value: Value) -> list[Value]:
        """Let the bodies of an op read a value; what it is in each of them, in the order of the bodies."""
        formals = []
        for body in op.bodies.values():
            formal = body.new_value(value.name, value.type, storage=value.storage, tensor=value.tensor)
            body.inputs.append(formal)
            formals.append(formal)
        self.set_inputs(op, (*op.inputs, value))
        op.captured += 1
        if op.signature is not None:
            op.signature = Signature((*op.signature.inputs, value.storage), op.signature.outputs)
        return formals

    def release(self, op: Op, index: int) -> None:
        """Take back that the bodies of an op read its input `index`; none of them does any more."""
        assert index >= op.own_inputs
        for body in op.bodies.values():
            formal = body.inputs.pop(index - len(op.inputs))
            body.remove_value(formal)
        op.captured -= 1
        self.set_inputs(op, (*op.inputs[:index], *op.inputs[index + 1 :]))
        if op.signature is not None:
            inputs = op.signature.inputs
            op.signature = Signature((*inputs[:index], *inputs[index + 1 :]), op.signature.outputs)

    def set_output(self, index: int, value: Value) -> None:
        """Let another value be output `index` of the graph."""
        places = self._places()
        places[self.outputs[index]].remove(index)
        places.setdefault(value, []).append(index)
        self.outputs[index] = value
        self.version += 1

    def replace_output(self, old: Value, new: Value) -> None:
        """Let `new` be every output of the graph that `old` is."""
        for index in self.output_places(old):
            self.set_output(index, new)

    def touch(self) -> None:
        """Count a change that was made to an op or value in place: an attribute, a storage, a constant."""
        self.version += 1

    def _link(self, op: Op) -> None:
        self._link_inputs(op)
        self._link_outputs(op)

    def _link_inputs(self, op: Op) -> None:
        for index, value in enumerate(op.inputs):
            if value is not None:
                self._add_use(value, op, index)

    def _unlink_inputs(self, op: Op) -> None:
        for index, value in enumerate(op.inputs):
            if value is not None:
                self._remove_use(value, op, index)

    def _link_outputs(self, op: Op) -> None:
        for index, value in enumerate(op.outputs):
            if value is not None:
                self._net.add_edge(op, value, index)

    def _add_use(self, value: Value, op: Op, index: int) -> None:
        self._net.add_edge(value, op, index)
        self._net.nodes[value][_USES] += 1

    def _remove_use(self, value: Value, op: Op, index: int) -> None:
        self._net.remove_edge(value, op, index)
        self._net.nodes[value][_USES] -= 1


__all__ = ["Graph", "Stage", "Use"]
