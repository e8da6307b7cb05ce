"""The graph of a model, of a body or of a function: its ops and values, def-use chains, edits, and its text.

Graph inputs are values that no op computes; graph outputs are listed by position. The ops and values are the nodes of a
networkx MultiDiGraph:

    value --[key = input index]--> op --[key = output index]--> value

Every use is an edge: `Mul(x, x)` has two edges from x. Values without a predecessor are graph inputs and constants. CastData
(`insert_cast`) is the op that copies one logical tensor from one storage into another.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from typing import Any, Literal, TypeAlias

import networkx as nx

from layoutopt.ir.types import (
    Array,
    ArrayData,
    Attribute,
    DType,
    Function,
    Op,
    Opaque,
    OpaqueType,
    Operands,
    Padding,
    ReferenceAttribute,
    Signature,
    Storage,
    TensorType,
    Value,
)
from layoutopt.record import Record


class Use(Record):
    """One read of a value: input `index` of `op`."""

    op: Op
    index: int

    @property
    def required(self) -> Storage | None:
        """The storage in which the op reads the value, if it has a signature."""
        return None if self.op.signature is None else self.op.signature.inputs[self.index]


def _input_edges(op: Op) -> list[tuple[Value, Op, int]]:
    return [(value, op, index) for index, value in enumerate(op.inputs) if value is not None]


def _output_edges(op: Op) -> list[tuple[Op, Value, int]]:
    return [(op, value, index) for index, value in enumerate(op.outputs) if value is not None]


def _is_topological(ops: Sequence[Op]) -> bool:
    """Whether every op is behind the producers of its operands."""
    pending = {value for op in ops for value in op.present_outputs}
    for op in ops:
        if not pending.isdisjoint(op.inputs):
            return False
        pending.difference_update(op.outputs)
    return True


class UnusedNames:
    """Generates names that are not in a collection, to which the caller adds those that it uses."""

    def __init__(self, taken: Container[str]) -> None:
        self._taken = taken
        self._suffixes: dict[str, int] = {}

    def find(self, stem: str) -> str:
        """An unused name: `stem`, or else the first of `stem_2`, `stem_3`... that is unused."""
        name, count = stem, self._suffixes.get(stem, 1)
        while name in self._taken:
            count += 1
            name = f"{stem}_{count}"
        self._suffixes[stem] = max(count - 1, 1)  # the next search starts here: a weight may have thousands of copies
        return name


Stage: TypeAlias = Literal["plain", "assigned", "cast", "lowered"]
"""The compilation stage of a graph: before formats are assigned; with formats; with the casts between them; with arrays of
physical shape, which have no formats."""


class Graph:
    """A model's main graph, the body of an op, or the body of a function.

    Every change increments `version`, so that the pipeline detects whether a pass has changed the graph.

    Args:
        name: the graph's name.
        opsets: the version of every operator domain in use.
        origin: the onnx_ir object that the graph was lifted from, which has the fields that the IR does not model.
        root: for the body of an op, the main graph, whose opsets and functions it shares.

    Attributes:
        output_storages: the required storages of outputs, by position; canonical for positions that are missing.
        repairs: the faults of the model that the reader has repaired, as (name, reason).
        contradiction: the name of an op whose operands have contradictory types, and the fault; None if types agree. A graph
            with a contradiction is not rewritten.
    """

    def __init__(
        self,
        name: str = "",
        opsets: dict[str, int] | None = None,
        origin: object = None,
        root: "Graph | None" = None,
    ) -> None:
        self.name = name
        self.version = 0
        self._digraph: Any = nx.MultiDiGraph()
        self._names: dict[str, Value] = {}
        self._sorted: list[Op] = []
        self._sorted_at = -1
        self.opsets: dict[str, int] = dict(opsets or {}) if root is None else root.opsets
        self.origin = origin
        self._root = root  # None for a main graph: a link to itself would leave it to the cyclic garbage collector
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.functions: list[Function] = [] if root is None else root.functions
        self.output_storages: dict[int, Storage] = {}
        self.metadata: dict[str, str] = {}
        self.repairs: list[tuple[str, str]] = []
        self.contradiction: tuple[str, str] | None = None
        self.stage: Stage = "plain"
        self._unused = UnusedNames(self._names)
        self._counter = 0
        self._indexed: list[Value] = []
        self._indexed_count = 0
        self._positions_by_output: dict[Value, list[int]] = {}

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {len(self)} ops, {len(self._names)} values, {self.stage})"

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: everything but the origin, whose links run through the whole model."""
        return {**self.__dict__, "origin": None}

    @property
    def values(self) -> list[Value]:
        """Every value, in the order of creation."""
        return list(self._names.values())

    @property
    def ops(self) -> list[Op]:
        """Every op in topological order; ops that do not depend on each other are in the order of the file (`Op.order`).

        Raises:
            CycleError: there is a cycle.
        """
        self._sort()
        return list(self._sorted)

    def __len__(self) -> int:
        return int(self._digraph.number_of_nodes()) - len(self._names)

    def __contains__(self, node: Op | Value) -> bool:
        return node in self._digraph

    def value(self, name: str) -> Value:
        """The value of that name; KeyError if there is none."""
        return self._names[name]

    def find(self, name: str) -> Value | None:
        """The value of that name, if there is one."""
        return self._names.get(name)

    def producer(self, value: Value | None) -> Op | None:
        """The op that computes `value`; None for graph inputs, constants and no value."""
        return None if value is None else next(iter(self._digraph.pred[value]), None)

    def producers(self, op: Op) -> list[Op]:
        """The ops that compute the inputs of `op`, each once."""
        found = map(self.producer, op.present_inputs)
        return list(dict.fromkeys(each for each in found if each is not None))

    def uses(self, value: Value) -> list[Use]:
        """Every use of `value`, in the order of the ops and inputs."""
        uses = [Use(op, int(key)) for op, keys in self._digraph.succ[value].items() for key in keys]
        return sorted(uses, key=lambda use: (use.op.order, use.index)) if len(uses) > 1 else uses

    def readers(self, value: Value) -> Iterator[Op]:
        """The ops that read `value`, lazily and in no particular order."""
        return iter(self._digraph.succ[value])

    def use_count(self, value: Value) -> int:
        """The number of uses of `value`."""
        return sum(map(len, self._digraph.succ[value].values()))

    def is_read(self, value: Value) -> bool:
        """Whether an op reads the value."""
        return bool(self._digraph.succ[value])

    def find_cycle(self) -> list[str]:
        """The names of the ops and values of one cycle; empty if there is none."""
        try:
            self._sort()
        except CycleError as error:
            return [node.name or node.kind if isinstance(node, Op) else node.name for node in error.args[1][1:]]
        return []

    def _sort(self) -> None:
        """Sort the ops if the graph has changed since the last call; of several ops that may be next, `order` selects one.

        Raises:
            CycleError: there is a cycle.
        """
        if self._sorted_at == self.version:
            return
        found = sorted(self._all_ops(), key=lambda op: op.order)
        if not _is_topological(found):
            sorter = TopologicalSorter(self._digraph.pred)
            sorter.prepare()
            numbers = {op: number for number, op in enumerate(found)}
            ready: list[int] = []
            ordered: list[Op] = []
            while sorter.is_active():
                if nodes := sorter.get_ready():
                    sorter.done(*(node for node in nodes if node not in numbers))
                    for node in nodes:
                        if node in numbers:
                            heappush(ready, numbers[node])
                else:
                    ordered.append(found[heappop(ready)])
                    sorter.done(ordered[-1])
            found = ordered
        self._sorted, self._sorted_at = found, self.version

    def _all_ops(self) -> Iterator[Op]:
        return (node for node in self._digraph if isinstance(node, Op))

    @property
    def nx(self) -> Any:
        """The ops and values as a read-only networkx MultiDiGraph; the key of an edge is the index of the input or output."""
        return self._digraph.copy(as_view=True)

    def touch(self) -> None:
        """Record that an op or value was changed in place: an attribute, a storage, a constant."""
        self.version += 1

    # --- queries -------------------------------------------------------------------------------------------------

    @property
    def root(self) -> "Graph":
        """The main graph that contains this body; the graph itself if it is a main graph."""
        return self if self._root is None else self._root

    @root.setter
    def root(self, root: "Graph") -> None:
        self._root = None if root is self else root

    def is_output(self, value: Value) -> bool:
        """Whether `value` is an output of the graph."""
        return bool(self._outputs_with_positions().get(value))

    def is_used(self, value: Value) -> bool:
        """Whether an op reads the value or it is an output of the graph."""
        return self.is_read(value) or self.is_output(value)

    def has_one_use(self, value: Value) -> bool:
        """Whether the value has exactly one use and is no output of the graph."""
        readers = self._digraph.succ[value]
        return len(readers) == 1 and len(next(iter(readers.values()))) == 1 and not self.is_output(value)

    def only_producer(self, value: Value | None) -> Op | None:
        """The op that computes a value with exactly one use; None for other values, graph outputs and no value."""
        return self.producer(value) if value is not None and self.has_one_use(value) else None

    def only_reader(self, value: Value | None) -> Op | None:
        """The op that has the only use of a value; None for values with other uses, graph outputs and no value."""
        return next(self.readers(value)) if value is not None and self.has_one_use(value) else None

    def output_positions(self, value: Value) -> list[int]:
        """The positions at which `value` is an output of the graph, in ascending order."""
        return sorted(self._outputs_with_positions().get(value, ()))

    def _outputs_with_positions(self) -> dict[Value, list[int]]:
        """The positions of every output, computed again if another list of outputs has been assigned."""
        if self._indexed is not self.outputs or len(self._indexed) != self._indexed_count:
            self._indexed, self._indexed_count, self._positions_by_output = self.outputs, len(self.outputs), {}
            for index, output in enumerate(self.outputs):
                self._positions_by_output.setdefault(output, []).append(index)
        return self._positions_by_output

    def output_storage(self, index: int) -> Storage | None:
        """The storage that output `index` is required to have; None if its rank is unknown."""
        rank = self.outputs[index].rank
        return None if rank is None else self.output_storages.get(index, Storage.canonical(rank))

    def regions(self) -> "list[Graph]":
        """This graph and all bodies in it, at every depth, each behind the graph of its op."""
        found = [self]
        for graph in found:  # extended in the loop
            found += [body for op in graph._all_ops() for body in op.bodies.values()]
        return found

    def has_dtype(self, dtype: DType) -> bool:
        """Whether a value of this graph or of a body in it has an element type."""
        return any(value.dtype is dtype for graph in self.regions() for value in graph.values)

    # --- edits --------------------------------------------------------------------------------------------------

    def fresh_name(self, stem: str) -> str:
        """An unused name: `stem`, or else the first of `stem_2`, `stem_3`... that no value has."""
        return self._unused.find(stem)

    def add_value(self, value: Value) -> Value:
        """Add a value, whose name no other value has."""
        if value.name in self._names:
            raise ValueError(f"duplicate value name {value.name!r}")
        self._names[value.name] = value
        self._digraph.add_node(value)
        self.version += 1
        return value

    def new_value(self, stem: str, type: TensorType | OpaqueType, **fields: Any) -> Value:
        """Add a new value with an unused name."""
        return self.add_value(Value(self.fresh_name(stem), type, **fields))

    def new_constant(self, array: Array, stem: str) -> Value:
        """Add a constant with the elements, the shape and the element type of an array, and an unused name."""
        return self.new_value(stem, TensorType(DType.of(array), array.shape), data=ArrayData(array))

    def new_result(
        self,
        kind: str,
        inputs: Operands,
        type: TensorType | OpaqueType,
        stem: str,
        near: Op | None = None,
        *,
        first: bool = False,
        name: str = "",
        **fields: Any,
    ) -> Value:
        """Add an op with one output, and return the output.

        Args:
            kind: the op type, with its domain in front unless it is ai.onnx.
            inputs: the values that the op reads.
            type: the type of the output.
            stem: the name of the output, with a number behind it if it is used.
            near: the op that it follows, as for `add_op`.
            first: whether it precedes all ops, as for `add_op`.
            name: the name of the op; that of the output by default.
            fields: further arguments of `Op`; the version is the opset of the domain by default.
        """
        result = self.new_value(stem, type)
        domain, _, op_type = kind.rpartition("::")
        fields = {"version": self.opsets.get(domain, 1), **fields}
        self.add_op(
            Op(op_type, inputs, (result,), domain=domain, name=name or result.name, **fields), near, first=first
        )
        return result

    def add_op(self, op: Op, near: Op | None = None, *, first: bool = False) -> Op:
        """Add an op whose operands are in the graph: right behind the op `near`, or before all ops if `first`."""
        self._counter += 1
        if not op.order:
            order_before = near.order if near is not None else (-1,) if first else ()
            op.order = (*order_before, self._counter)
        self._digraph.add_node(op)
        for edge in (*_input_edges(op), *_output_edges(op)):
            self._digraph.add_edge(*edge)  # in half the time of `add_edges_from`
        self.version += 1
        return op

    def add_copy(self, op: Op, outputs: Operands, inputs: Operands | None = None, **changes: Any) -> Op:
        """Add an op like `op`, which has no bodies, right behind it.

        Args:
            op: the op to copy; it is in the graph.
            outputs: the values that the copy computes.
            inputs: the values that the copy reads; those of `op` by default.
            changes: further arguments of `Op` in which the copy differs. It has no name by default.
        """
        changes = {"name": "", "order": ()} | changes
        return self.add_op(op.copy(op.inputs if inputs is None else inputs, outputs, **changes), op)

    def new_copy(self, op: Op, inputs: Operands, type: TensorType | OpaqueType, stem: str, **changes: Any) -> Value:
        """Add an op like `op`, which has no bodies, right behind it, on other inputs, and return its only output."""
        result = self.new_value(stem, type)
        self.add_copy(op, (result,), inputs, **changes)
        return result

    def remove_op(self, op: Op) -> None:
        """Remove an op and its outputs, which have no uses."""
        outputs = op.present_outputs
        self._digraph.remove_edges_from(_output_edges(op))
        for value in outputs:
            self.remove_value(value)
        self._digraph.remove_node(op)
        self.version += 1

    def remove_if_dead(self, op: Op) -> None:
        """Remove an op if its outputs are unused, then the producers of its inputs that become dead."""
        pending = [op]
        while pending:
            each = pending.pop()
            if each not in self or any(map(self.is_used, each.present_outputs)):
                continue
            self.remove_op(each)
            pending += self.producers(each)

    def remove_value(self, value: Value) -> None:
        """Remove a value that no op computes or reads."""
        if self.producer(value) is not None or self.is_used(value):
            raise ValueError(f"{value.name!r} is still in use")
        self._digraph.remove_node(value)
        del self._names[value.name]
        self.version += 1

    def rename(self, value: Value, name: str) -> None:
        """Give a value a name that no other value has. The value is then the last of `values`."""
        if self._names.get(name, value) is not value:
            raise ValueError(f"duplicate value name {name!r}")
        del self._names[value.name]
        value.name = name
        self._names[name] = value
        self.version += 1

    def set_input(self, op: Op, index: int, value: Value | None) -> None:
        """Let input `index` of `op` read another value."""
        self.change_inputs(op, {index: value})

    def change_inputs(self, op: Op, values: Mapping[int, Value | None]) -> None:
        """Let inputs of `op`, by index, read other values. It copies the list of inputs once, however many change."""
        inputs = list(op.inputs)
        for index, value in values.items():
            old, inputs[index] = inputs[index], value
            if old is value:
                continue
            if old is not None:
                self._digraph.remove_edge(old, op, index)
            if value is not None:
                self._digraph.add_edge(value, op, index)
            self.version += 1
        op.inputs = tuple(inputs)

    def set_inputs(self, op: Op, inputs: Operands) -> None:
        """Give an op another list of inputs."""
        self._digraph.remove_edges_from(_input_edges(op))
        op.inputs = inputs
        self._digraph.add_edges_from(_input_edges(op))
        self.version += 1

    def set_outputs(self, op: Op, outputs: Operands) -> None:
        """Give an op another list of outputs; the values that it computed before have no producer then."""
        self._digraph.remove_edges_from(_output_edges(op))
        op.outputs = outputs
        self._digraph.add_edges_from(_output_edges(op))
        self.version += 1

    def replace_uses(self, old: Value, new: Value, uses: Iterable[Use] | None = None) -> None:
        """Let every listed use of `old` (all of them, by default) read `new`; graph outputs stay."""
        positions: dict[Op, list[int]] = {}
        for use in self.uses(old) if uses is None else uses:
            positions.setdefault(use.op, []).append(use.index)
        for op, indices in positions.items():
            self.change_inputs(op, dict.fromkeys(indices, new))

    def capture(self, op: Op, value: Value) -> list[Value]:
        """Let the bodies of an op read a value. Returns the new input of each body, in the order of the bodies."""
        captured = []
        for body in op.bodies.values():
            body_input = body.new_value(value.name, value.type, storage=value.storage, tensor=value.tensor)
            body_input.axis_letters = value.axis_letters
            body.inputs.append(body_input)
            captured.append(body_input)
        self.set_inputs(op, (*op.inputs, value))
        op.captured += 1
        if op.signature is not None:
            op.signature = Signature((*op.signature.inputs, value.storage), op.signature.outputs)
        return captured

    def remove_capture(self, op: Op, index: int) -> None:
        """Remove the captured input `index` of an op, which none of its bodies reads, from the op and its bodies."""
        assert index >= op.uncaptured_input_count
        for body in op.bodies.values():
            body_input = body.inputs.pop(index - len(op.inputs))
            body.remove_value(body_input)
        op.captured -= 1
        self.set_inputs(op, (*op.inputs[:index], *op.inputs[index + 1 :]))
        if op.signature is not None:
            inputs = op.signature.inputs
            op.signature = Signature((*inputs[:index], *inputs[index + 1 :]), op.signature.outputs)

    def set_output(self, index: int, value: Value) -> None:
        """Let another value be output `index` of the graph."""
        positions = self._outputs_with_positions()
        positions[self.outputs[index]].remove(index)
        positions.setdefault(value, []).append(index)
        self.outputs[index] = value
        self.version += 1

    def replace_output(self, old: Value, new: Value) -> None:
        """Let `new` replace `old` at every position of the graph's outputs."""
        for index in self.output_positions(old):
            self.set_output(index, new)

    def replace_value(self, old: Value, new: Value) -> None:
        """Replace all uses of `old` by `new`, which takes its name; remove `old` and the ops that become dead."""
        name, producer = old.name, self.producer(old)
        self.replace_uses(old, new)
        self.replace_output(old, new)
        new.tensor, new.origin = old.tensor, old.origin
        if producer is None:
            self.remove_value(old)
        else:
            self.remove_op(producer)
        self.rename(new, name)
        if producer is not None and self.is_used(new):  # if not, `new` would be removed as well
            for before in self.producers(producer):
                self.remove_if_dead(before)

    def bypass(self, op: Op, index: int = 0) -> None:
        """Let the readers of an op's first output, which is no output of the graph, read its input `index`; remove the op."""
        x, y = op.inputs[index], op.outputs[0]
        assert x is not None and y is not None
        self.replace_uses(y, x)
        self.remove_op(op)


DOMAIN = "layoutopt"
CAST = "CastData"


def is_cast(op: Op | None) -> bool:
    """Whether an op is a CastData."""
    return op is not None and op.op_type == CAST and op.domain == DOMAIN


def cast_storages(cast: Op) -> tuple[Storage, Storage]:
    """The storages of the operand and the result of a CastData."""
    source, result = cast.x.storage, cast.y.storage
    assert source is not None and result is not None, cast
    return source, result


def storage_name(value: Value, storage: Storage) -> str:
    """The name of the copy of a value's tensor in a storage: with a format that is not canonical, and with another device."""
    name = value.tensor if storage.format.is_canonical else name_with_format(value, storage)
    is_there = value.storage is None or value.storage.device in ("", storage.device)
    return name if is_there else f"{name}__{storage.device}"


def name_with_format(value: Value, storage: Storage) -> str:
    """The name of a value's tensor, followed by a format with the letters of the value's axes: `x__NCHW16c`."""
    letters = value.axis_letters or ""
    return f"{value.tensor}__{storage.format.name(letters if len(letters) == storage.format.rank else None)}"


def moves(value: Value, required: Storage) -> bool:
    """Whether the conversion of a value to a storage, on any device, changes bytes: their order, or the padding elements."""
    if value.storage is None or value.shape is None:
        return False
    return not value.storage.placed(required.device).satisfies(required, value.shape)


def insert_cast(graph: Graph, value: Value, required: Storage) -> Value:
    """Add a CastData of `value` right behind its producer; the result is the same tensor in the storage `required`.

    Its padding is zero, or that of the source if the bytes need not move.
    """
    assert value.storage is not None
    padding = Padding.ZERO if moves(value, required) else value.storage.padding
    storage = Storage(required.format, padding, required.device)
    result = graph.new_value(
        storage_name(value, storage), value.type, storage=storage, tensor=value.tensor, origin=value.origin
    )
    result.axis_letters = value.axis_letters
    op = Op(CAST, (value,), (result,), domain=DOMAIN, version=1, name=f"{CAST}_{result.name}")
    op.signature = Signature((value.storage,), (storage,))
    producer = graph.producer(value)
    graph.add_op(op, near=producer, first=producer is None)
    return result


def to_text(graph: Graph) -> str:
    """The graph as text, with ops in topological order; equal graphs have equal texts."""
    return "\n".join(_lines(graph)) + "\n"


def _lines(graph: Graph) -> Iterator[str]:
    pending: list[tuple[str, str | Op | Graph]] = [("", graph)]  # indentation and item; the last one is the next
    while pending:
        indent, item = pending.pop()
        if isinstance(item, Op):
            yield indent + _op_text(item)
            bodies = [(f"{indent}  {name} ", body) for name, body in sorted(item.bodies.items())]
            pending += reversed(bodies)
        elif isinstance(item, Graph):
            yield _header(indent or "graph ", item)
            body_indent = " " * (len(indent) - len(indent.lstrip()) + 2)
            constants = [f"const {_declaration(value)}" for value in item.values if value.is_constant]
            pending += reversed([*((body_indent, line) for line in constants), *((body_indent, op) for op in item.ops)])
        else:
            yield indent + item


def _header(title: str, graph: Graph) -> str:
    inputs = ", ".join(_declaration(value) for value in graph.inputs)
    outputs = ", ".join(value.name for value in graph.outputs)
    return f"{title}{graph.name}({inputs}) -> ({outputs})"


def _op_text(op: Op) -> str:
    results = ", ".join("_" if value is None else _declaration(value) for value in op.outputs)
    names = ["_" if value is None else value.name for value in op.inputs]
    own, captured = ", ".join(names[: op.uncaptured_input_count]), ", ".join(names[op.uncaptured_input_count :])
    operands = f"{own} | {captured}".lstrip() if captured else own
    attributes = ", ".join(f"{name}={_attribute_text(value)}" for name, value in sorted(op.attributes.items()))
    kind = op.op_type if op.domain in ("", "layoutopt") else op.kind
    device = f" on {op.device}" if op.device else ""
    return f"{results} = {kind}({operands})" + (f" {{{attributes}}}" if attributes else "") + device


def _declaration(value: Value) -> str:
    storage = "" if value.storage is None or value.storage.format.is_canonical else f" {value.storage_text}"
    return f"{value.name}: {value.type}{storage}"


def _attribute_text(value: Attribute) -> str:
    if isinstance(value, Opaque):
        return f"@{value.payload.name}" if isinstance(value.payload, ReferenceAttribute) else f"<{value.kind}>"
    return str(list(value)) if isinstance(value, tuple) else repr(value)
