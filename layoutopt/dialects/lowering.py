"""Lowers a planned graph, whose values have formats, to a plain graph, whose values have physical shapes.

A dialect decides which ops implement a planned op; this module contains the part of lowering that all dialects share.
Constants are packed when they are read, so lowering does not allocate memory for them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import partial

from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.packed import Packed
from layoutopt.dialects.passes import COMPACT, EqualizeMatmulRanks
from layoutopt.dialects.qdq_propagation import stop_qdq_propagation
from layoutopt.dialects.write_plain import first_name, write_plain
from layoutopt.formats import Format, Shape
from layoutopt.ir.graph import Graph, is_cast
from layoutopt.ir.types import Op, Slot, TensorType, Value
from layoutopt.ops import LayoutRule, X, Y, canonical_signature, estimated_volume, is_canonical, physical_type, rule_of
from layoutopt.ops.region_ops import ControlFlow, region_rule, regions_with_rule
from layoutopt.passes.base import Pass


class Dialect(ABC):
    """A form in which planned graphs are written as ONNX.

    Attributes:
        name: the name of the dialect.
        is_native: whether only onnxruntime runs the result, on one kind of machine.
        keeps_qdq_groups: whether QDQ groups stay as they are, because the runtime's own kernels for them are faster.
        passes: the passes on the lowered graph, in this order.
        baked_passes: the passes on the graph of a quantised model after the runtime's own optimisations, in this order.
    """

    name: str
    is_native: bool = False
    keeps_qdq_groups: bool = False
    passes: tuple[Pass, ...] = (EqualizeMatmulRanks(), *COMPACT)
    baked_passes: tuple[Pass, ...] = ()

    @property
    def kernels(self) -> frozenset[str]:
        """The op types beyond ONNX, with their domains, that the dialect may write because the runtime has kernels for them."""
        return frozenset()

    def block(self, graph: Graph) -> int:
        """The block size in channels that the filters of the planned graph are packed for; 0 if none is blocked."""
        del graph
        return 0

    @abstractmethod
    def write(self, graph: Graph, op: Op, builder: OpBuilder, outputs: Sequence[Value | None]) -> None:
        """Add the ops that the builder recorded for `op`, which compute `outputs`, to the lowered graph."""

    def shape(self, format: Format, shape: Shape) -> Shape:
        """The shape of the array of a tensor in a format; by default one extent per physical dimension."""
        return format.physical_shape(shape)

    def write_native(self, op: Op, builder: OpBuilder) -> bool:
        """Record an op, or a CastData, with the runtime's kernels for its formats; returns False if there are none."""
        del op, builder
        return False

    def lower(self, graph: Graph) -> Graph:
        """The lowered graph, before the dialect's passes have run; `graph` is not changed."""
        main = Graph(graph.name, graph.opsets, graph.origin)
        main.metadata = dict(graph.metadata)
        scanned = _scanned(graph)
        bodies: dict[Graph, Graph] = {}
        for body in reversed(regions_with_rule(graph)[1:]):  # the innermost before those around it
            target = Graph(body.name, origin=body.origin, root=main)
            bodies[body] = _Lowering(self, body, target, bodies, scanned.get(body, ())).run()
        interface = [Slot("in", index) for index in range(len(graph.inputs))]
        interface += [Slot("out", index) for index in range(len(graph.outputs))]
        return _Lowering(self, graph, main, bodies, interface).run()


class _Lowering:
    """The lowering of one graph to an empty target, after the bodies in it."""

    def __init__(
        self, dialect: Dialect, source: Graph, target: Graph, bodies: dict[Graph, Graph], exposed: Iterable[Slot]
    ) -> None:
        """Prepare to lower `source` to `target`; `bodies` has the lowered bodies in it.

        The inputs and outputs in the slots `exposed` have one extent per physical dimension, in every dialect.
        """
        self.dialect = dialect
        self.source = source
        self.target = target
        self.bodies = bodies
        self.opset = source.opsets.get("", 0)
        self.exposed = set(exposed)
        self.values: dict[Value, Value] = {}

    def run(self) -> Graph:
        source, target = self.source, self.target
        exposed = {value for index, value in enumerate(source.inputs) if Slot("in", index) in self.exposed}
        if source.root is source:  # a body may output a copy; an output of the model keeps its name
            exposed |= {value for index, value in enumerate(source.outputs) if Slot("out", index) in self.exposed}
        for value in source.values:
            self.values[value] = target.add_value(self._physical(value, is_exposed=value in exposed))
        target.inputs = [self.values[value] for value in source.inputs]
        for op in source.ops:
            self._lower(op)
        target.outputs = [self._output(index, value) for index, value in enumerate(source.outputs)]
        target.stage = "lowered"
        return target

    def _output(self, index: int, value: Value) -> Value:
        """An output in the storage that it is required to have."""
        result = self.values[value]
        if Slot("out", index) not in self.exposed or value.storage is None or value.shape is None:
            return result
        shape = value.storage.format.physical_shape(value.shape)
        if result.shape == shape or value.storage.format.is_canonical or not isinstance(value.type, TensorType):
            return result
        exposed = self.target.new_value(f"{result.name}__exposed", TensorType(value.type.dtype, shape))
        op = Op(
            "Reshape", (result,), (exposed,), version=self.opset, name=exposed.name, order=(len(self.source), index)
        )
        builder = OpBuilder(op, [result], [exposed], {}, self.opset, exposed.name, self.dialect.shape)
        builder.set_output(0, builder.reshape(result, shape))
        stop_qdq_propagation(self.target, builder)
        write_plain(self.target, op, builder, [exposed])
        return exposed

    def _physical(self, value: Value, *, is_exposed: bool) -> Value:
        """The value as a physical array. A value in canonical format keeps the tensor of the model."""
        storage = value.storage
        if storage is None or storage.format.is_canonical:
            return Value(value.name, value.type, data=value.data, origin=value.origin, tensor=value.tensor)
        assert isinstance(value.type, TensorType) and value.shape is not None
        shape_of = storage.format.physical_shape if is_exposed else partial(self.dialect.shape, storage.format)
        shape = shape_of(value.shape)
        data = None
        if value.data is not None:
            data = Packed(value.data, storage.format, shape, value.type.dtype.bits * estimated_volume(shape) // 8)
        return Value(value.name, TensorType(value.type.dtype, shape), data=data, tensor=value.tensor)

    def _lower(self, op: Op) -> None:
        inputs = tuple(value and self.values[value] for value in op.inputs)
        outputs = tuple(value and self.values[value] for value in op.outputs)
        rule = rule_of(op)
        control = region_rule(op)
        if control is not None:
            self._lower_bodies(op, control, inputs, outputs)
            return
        if not is_cast(op) and (rule is None or _is_unchanged(op, rule)):
            self.target.add_op(op.copy(inputs, outputs))
            return
        op.signature = op.signature or canonical_signature(op)
        formats = rule.physical_formats(op) if rule is not None else _formats_of_cast(op)
        builder = OpBuilder(op, inputs, outputs, formats, self.opset, op.name or first_name(op), self.dialect.shape)
        if not self.dialect.write_native(op, builder):
            if rule is None:
                self._convert(op, builder)
            else:
                rule.lower(op, builder)
        builder.prune()
        if not self._replace_by_input(op, builder):
            self.dialect.write(self.target, op, builder, outputs)

    def _lower_bodies(
        self, op: Op, rule: ControlFlow, inputs: Sequence[Value | None], outputs: Sequence[Value | None]
    ) -> None:
        """Write an op with lowered bodies. A scanned operand has one extent per physical dimension."""
        signature = op.signature or canonical_signature(op)
        scanned = {port.slot for value in rule.boundary_values(op) for port in value.ports if port.scan_axes}
        storages = {slot: storage for slot in op.slots() if (storage := signature[slot]) is not None}
        formats = {slot: storage.format for slot, storage in storages.items()}
        builder = OpBuilder(op, inputs, outputs, formats, self.opset, op.name or first_name(op), self.dialect.shape)
        operands = (
            builder.input(index) if Slot("in", index) in scanned else builder.declared_input(index)
            for index in range(len(inputs))
        )
        results = (
            None if value is None else self._result(op, index, value, scanned) for index, value in enumerate(outputs)
        )
        attributes = dict(rule.physical_attributes(op, signature))
        bodies = {name: self.bodies[body] for name, body in op.bodies.items()}
        copy = op.copy(tuple(operands), tuple(results), name="", order=(), attributes=attributes, bodies=bodies)
        builder.ops.append(copy)
        for index, value in enumerate(copy.outputs):
            if value is not None:
                builder.set_output(index, value)
        write_plain(self.target, op, builder, outputs)

    def _result(self, op: Op, index: int, value: Value, scanned: set[Slot]) -> Value:
        """A new result of an op with bodies in place of `value`, with the physical shape if it is scanned."""
        logical, storage = op.outputs[index], None if op.signature is None else op.signature.outputs[index]
        if Slot("out", index) not in scanned or logical is None or storage is None:
            return Value(value.name, value.type)
        return Value(value.name, physical_type(logical, storage))

    def _replace_by_input(self, op: Op, builder: OpBuilder) -> bool:
        """Replace the output of an op that was lowered to no op by its input, and return whether that was possible."""
        output = op.outputs[0]
        if builder.ops or output is None or self.source.is_output(output):
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
        if src.padding > dst.padding and any(old == new != dim for old, new, dim in extents):
            # A conversion does not change an axis that both formats pad to the same extent.
            value = builder.mask(value, src, shape)
        builder.set_output(0, builder.convert(value, src.format, dst.format, shape))


def _is_unchanged(op: Op, rule: LayoutRule) -> bool:
    """Whether an op of the model is written as it is, on canonical operands."""
    return not rule.must_be_expanded(op) and (op.signature is None or is_canonical(op.signature))


def _scanned(graph: Graph) -> dict[Graph, list[Slot]]:
    """The inputs of bodies that are slices of scanned arrays, and the outputs that are concatenated to such arrays."""
    found: dict[Graph, list[Slot]] = {}
    for op in (op for each in regions_with_rule(graph) for op in each.ops):
        rule = region_rule(op)
        for value in rule.boundary_values(op) if rule is not None else ():
            if any(port.scan_axes for port in value.ports):
                for port in (port for port in value.ports if port.body):
                    found.setdefault(op.bodies[port.body], []).append(port.slot)
    return found


def _formats_of_cast(op: Op) -> dict[Slot, Format]:
    storages = {} if op.signature is None else {X: op.signature.inputs[0], Y: op.signature.outputs[0]}
    return {slot: storage.format for slot, storage in storages.items() if storage is not None}
