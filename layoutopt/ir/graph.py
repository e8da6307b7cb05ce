"""The graph of a model, of a body or of a function: its interface and the ways to edit it.

Graph inputs are values that no op computes; graph outputs are listed by position. The ops and values are the nodes of a
networkx MultiDiGraph (`ir.def_use`).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from typing_extensions import override

from layoutopt.formats import Format
from layoutopt.ir.def_use import DefUseNet, Use
from layoutopt.ir.functions import Function
from layoutopt.ir.types import Op, OpaqueType, Operands, Signature, Storage, TensorType, Value

Stage: TypeAlias = Literal["plain", "assigned", "cast", "lowered"]
"""How far a graph is: no formats yet; formats assigned; casts inserted, so that formats agree everywhere; arrays, which have no
formats."""

_FEW = 16  # outputs that are searched one by one; more have an index


class Graph(DefUseNet):
    """A model's main graph, the body of an op, or the body of a function.

    Args:
        name: the graph's name.
        opsets: the version of every operator domain in use.
        origin: what the graph was lifted from; carries everything that the IR does not model.
        root: for the body of an op, the main graph, whose opsets and functions it shares.

    Attributes:
        promised: the storage of an output, by position, where that is not the canonical one.
        repairs: the faults of the model that the reader has repaired, as (name, reason).
        contradiction: the op, by name, whose operands contradict each other, with the fault: such a graph is not to be
            rewritten.
    """

    def __init__(
        self,
        name: str = "",
        opsets: dict[str, int] | None = None,
        origin: object = None,
        root: "Graph | None" = None,
    ) -> None:
        super().__init__(name)
        self.opsets: dict[str, int] = dict(opsets or {}) if root is None else root.opsets
        self.origin = origin
        self._root = root  # None for a main graph: a link to itself would leave it to the cyclic garbage collector
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.functions: list[Function] = [] if root is None else root.functions
        self.promised: dict[int, Storage] = {}
        self.metadata: dict[str, str] = {}
        self.repairs: list[tuple[str, str]] = []
        self.contradiction: tuple[str, str] | None = None
        self.stage: Stage = "plain"
        self._suffixes: dict[str, int] = {}
        self._counter = 0
        self._indexed: list[Value] = []
        self._indexed_count = 0
        self._output_places: dict[Value, list[int]] = {}

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {len(self)} ops, {len(self._names)} values, {self.stage})"

    @override
    def __getstate__(self) -> dict[str, Any]:
        """Without the origin: doc strings and all else that the IR does not model are not copied."""
        return {**super().__getstate__(), "origin": None}

    # --- reading -------------------------------------------------------------------------------------------------

    @property
    def root(self) -> "Graph":
        """The main graph that this graph is a body in; the graph itself if it is one."""
        return self if self._root is None else self._root

    @root.setter
    def root(self, root: "Graph") -> None:
        self._root = None if root is self else root

    def is_output(self, value: Value) -> bool:
        """Whether `value` is an output of the graph."""
        if len(self.outputs) < _FEW:
            return any(output is value for output in self.outputs)
        return bool(self._places().get(value))

    def is_used(self, value: Value) -> bool:
        """Whether an op reads the value or it is an output of the graph."""
        return self.is_read(value) or self.is_output(value)

    def is_private(self, value: Value) -> bool:
        """Whether one op reads the value and nobody else knows it."""
        return self.use_count(value) == 1 and not self.is_output(value)

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

    def nest(self) -> "list[Graph]":
        """This graph and every body in it, however deep, each behind the graph that its op is in."""
        found = [self]
        for graph in found:  # it grows on the way
            found += [body for op in graph._all_ops() for body in op.bodies.values()]
        return found

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
        self._insert_value(value)
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
        self._insert_op(op)
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

    def remove_op(self, op: Op) -> None:
        """Take out an op and its outputs; nothing may read them any more."""
        for value in op.outputs:
            if value is None:
                continue
            if self.is_used(value):
                raise ValueError(f"{value.name!r} is still in use")
            self._delete_value(value)
        self._delete_op(op)
        self.version += 1

    def remove_unread(self, op: Op) -> None:
        """Take out an op if nothing reads its outputs, then those before it that nothing else reads."""
        doomed = [op]
        while doomed:
            each = doomed.pop()
            if each not in self or any(value is not None and self.is_used(value) for value in each.outputs):
                continue
            self.remove_op(each)
            doomed += self.producers(each)

    def remove_value(self, value: Value) -> None:
        """Take out a value that no op computes or reads."""
        if self.producer(value) is not None or self.is_used(value):
            raise ValueError(f"{value.name!r} is still in use")
        self._delete_value(value)
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
        self._unlink_outputs(op)
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
            formal.axis_letters = value.axis_letters
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

    def replace_value(self, old: Value, new: Value) -> None:
        """Let `new` take the place and the name of `old`, which is removed; ops that only `old` needed are removed with it."""
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
                self.remove_unread(before)

    def bypass(self, op: Op, index: int = 0) -> None:
        """Let the readers of an op's first output, which is no output of the graph, read its input `index`; remove the op."""
        x, y = op.inputs[index], op.outputs[0]
        assert x is not None and y is not None
        self.replace_uses(y, x)
        self.remove_op(op)


__all__ = ["Graph", "Stage"]
