"""From a planned graph, in which values have formats, to a plain one, in which they have physical shapes.

A dialect decides how the ops that one planned op becomes are written down; everything else is the same for all
dialects and stands here. Constants are packed when they are read, so lowering a large model holds nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from layoutopt.dialects.builder import OpBuilder
from layoutopt.formats import Format, Shape, pack
from layoutopt.ir.cast import is_cast
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, Data, Op, Slot, TensorType, Value
from layoutopt.ops import LayoutRule, X, Y, canonical_signature, elements, extent, is_canonical, rule_of


class Packed:
    """A constant in a format: packed every time it is read, held by nobody."""

    def __init__(self, data: Data, format: Format, shape: Shape, nbytes: int) -> None:
        """Remember what to pack, under which shape, and how large it will be."""
        self._data = data
        self._format = format
        self._shape = shape
        self.nbytes = nbytes

    def numpy(self) -> Array:
        """The physical array."""
        return pack(self._data.numpy(), self._format).reshape([extent(dim) for dim in self._shape])


class Dialect(ABC):
    """A way to spell planned graphs in ONNX.

    Attributes:
        name: what it is called.
        is_native: whether it is for onnxruntime alone, on one kind of machine.
    """

    name: str
    is_native: bool = False

    @property
    def kernels(self) -> frozenset[str]:
        """The kinds of op beyond ONNX that may be written in it, because the runtime has kernels for them."""
        return frozenset()

    def block(self, graph: Graph) -> int:
        """The number of channels that kernels of the runtime want together, if the planned graph is packed for one."""
        del graph
        return 0

    @abstractmethod
    def write(self, graph: Graph, op: Op, builder: OpBuilder, outputs: Sequence[Value | None]) -> None:
        """Put the ops that the builder recorded for `op` into the lowered graph, computing `outputs`."""

    def shape(self, format: Format, shape: Shape) -> Shape:
        """The shape that the array of a tensor in a format is given: one extent per part, unless the dialect knows better."""
        return format.physical_shape(shape)

    def native(self, op: Op, builder: OpBuilder) -> bool:
        """Write an op, or a CastData, with kernels that the runtime has for its formats; False where it has none."""
        del op, builder
        return False

    def lower(self, graph: Graph) -> Graph:
        """The lowered graph; `graph` is not changed."""
        return _Lowering(self, graph).run()


class _Lowering:
    def __init__(self, dialect: Dialect, graph: Graph) -> None:
        """Lower `graph` to a graph that is empty so far."""
        self.dialect = dialect
        self.source = graph
        self.target = Graph(graph.name, graph.opsets, graph.origin)
        self.target.metadata = dict(graph.metadata)
        self.opset = graph.opsets.get("", 0)
        self.interface = {*graph.inputs, *graph.outputs}
        self.values: dict[Value, Value] = {}

    def run(self) -> Graph:
        source, target = self.source, self.target
        for value in source.values:
            self.values[value] = target.add_value(self._physical(value))
        target.inputs = [self.values[value] for value in source.inputs]
        for op in source.ops:
            self._lower(op)
        target.outputs = [self.values[value] for value in source.outputs]
        return target

    def _physical(self, value: Value) -> Value:
        """The value as an array. One that lies as the model has it stays what it was lifted from."""
        storage = value.storage
        if storage is None or storage.format.is_canonical:
            return Value(value.name, value.type, data=value.data, origin=value.origin, tensor=value.tensor)
        assert isinstance(value.type, TensorType) and value.shape is not None
        shape = self.dialect.shape(storage.format, value.shape)
        if value in self.interface:
            shape = storage.format.physical_shape(value.shape)  # what callers see is no matter of the dialect
        data = None
        if value.data is not None:
            data = Packed(value.data, storage.format, shape, value.type.dtype.bits * elements(shape) // 8)
        return Value(value.name, TensorType(value.type.dtype, shape), data=data, tensor=value.tensor)

    def _lower(self, op: Op) -> None:
        inputs = tuple(value and self.values[value] for value in op.inputs)
        outputs = tuple(value and self.values[value] for value in op.outputs)
        rule = rule_of(op)
        if not is_cast(op) and (rule is None or _stands_as_it_is(op, rule)):
            captures = tuple(self.values[value] for value in op.captures)
            copy = Op(
                op.op_type,
                inputs,
                outputs,
                domain=op.domain,
                version=op.version,
                name=op.name,
                attributes=op.attributes,
                captures=captures,
                order=op.order,
                origin=op.origin,
            )
            self.target.add_op(copy)
            return
        formats = rule.physical_formats(op) if rule is not None else _formats_of_cast(op)
        builder = OpBuilder(op, inputs, outputs, formats, self.opset, op.name or _first_name(op), self.dialect.shape)
        if not self.dialect.native(op, builder):
            if rule is None:
                self._convert(op, builder)
            else:
                rule.lower(op, builder)
        if not self._alias(op, builder):
            self.dialect.write(self.target, op, builder, outputs)

    def _alias(self, op: Op, builder: OpBuilder) -> bool:
        """Whether the op came to nothing, so that its output is another value's array and its name is free."""
        output = op.outputs[0]
        if builder.ops or output is None or self.source.is_output(output):
            return False
        if any(use.is_capture for use in self.source.uses(output)):
            return False
        self.target.remove_value(self.values[output])
        self.values[output] = builder.outputs[0]
        return True

    def _convert(self, op: Op, builder: OpBuilder) -> None:
        source, copy = op.inputs[0], op.outputs[0]
        value = builder.input(0)
        assert source is not None and copy is not None and value is not None and source.shape is not None
        assert source.storage is not None and copy.storage is not None
        src, dst, shape = source.storage, copy.storage, source.shape
        extents = zip(src.format.padded_shape(shape), dst.format.padded_shape(shape), shape, strict=True)
        if src.lanes > dst.lanes and any(old == new != dim for old, new, dim in extents):
            # A conversion leaves an axis alone that both pad to the same extent.
            value = builder.mask(value, src, shape)
        builder.set_output(0, builder.convert(value, src.format, dst.format, shape))


def _stands_as_it_is(op: Op, rule: LayoutRule) -> bool:
    """Whether an op is one of the model, on operands as the model has them."""
    if op.signature is None and rule.is_virtual:
        op.signature = canonical_signature(op)
    return not rule.is_virtual and (op.signature is None or is_canonical(op.signature))


def _formats_of_cast(op: Op) -> dict[Slot, Format]:
    storages = {} if op.signature is None else {X: op.signature.inputs[0], Y: op.signature.outputs[0]}
    return {slot: storage.format for slot, storage in storages.items() if storage is not None}


def _first_name(op: Op) -> str:
    return next((value.name for value in op.outputs if value is not None), op.op_type)


def write_plain(graph: Graph, op: Op, builder: OpBuilder, outputs: Sequence[Value | None]) -> None:
    """Put the recorded ops into the graph as they are; their last results become the outputs."""
    final = {builder.outputs[index]: outputs[index] for index in builder.outputs}
    values: dict[Value, Value | None] = {}
    for constant in builder.constants:
        values[constant] = graph.new_value(constant.name, constant.type, data=constant.data)
    recorded = list(builder.ops)
    produced = {value for each in recorded for value in each.outputs if value is not None}
    for source, result in final.items():
        if source not in produced and result is not None:
            # Nothing to do but the name: the output is an input, under other axes.
            recorded.append(Op("Identity", (source,), (result,), version=graph.opsets.get("", 0)))
            values[result] = result
    for number, each in enumerate(recorded):
        for value in each.outputs:
            if value is not None and value not in values:
                target = final.get(value)
                values[value] = target if target is not None else graph.new_value(value.name, value.type)
        copy = Op(
            each.op_type,
            tuple(value and values.get(value, value) for value in each.inputs),
            tuple(value and values[value] for value in each.outputs),
            domain=each.domain,
            version=each.version,
            name=op.name if len(recorded) == 1 else f"{op.name or _first_name(op)}/{number}",
            attributes=each.attributes,
            order=(*op.order, number),
        )
        graph.add_op(copy)
