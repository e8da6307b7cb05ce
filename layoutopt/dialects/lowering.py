"""Lowers a planned graph, whose values have formats, to a plain graph, whose values have physical shapes.

A dialect decides which ops implement a planned op; this module contains the part of lowering that all dialects share.
Constants are packed when they are read, so lowering does not allocate memory for them.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import prod

from layoutopt.dialects.passes import COMPACT, EqualizeMatmulRanks
from layoutopt.formats import Format, Shape
from layoutopt.ir.graph import DOMAIN, Graph, cast_storages, is_cast
from layoutopt.ir.types import DType, Op, Operands, Slot, Value
from layoutopt.ir.verify import invariant
from layoutopt.ops import (
    LayoutRule,
    View,
    X,
    Y,
    canonical_signature,
    estimated_volume,
    is_canonical,
    is_dequantizer,
    rule_of,
)
from layoutopt.ops.builder import OpBuilder, Packed, first_name, write_plain
from layoutopt.ops.qdq import is_per_tensor
from layoutopt.ops.region_ops import regions_with_rule
from layoutopt.passes.base import Pass

# Separates data movement from an int8 DequantizeLinear, because onnxruntime 1.31 cannot load the two at its default
# level.
#
#     q -> DequantizeLinear -> Transpose        becomes        q -> DequantizeLinear -> Flatten -> Reshape -> Transpose
#
# From opset 21 on it copies such a DequantizeLinear behind Transpose, Reshape and similar ops, with `output_dtype =
# INT8`, and then changes the zero points of int8 to uint8, but not that attribute: "output_dtype INT8 does not match
# y_zero_point type UINT8". It does not propagate past a Flatten, which moves no data. The DequantizeLinear itself is not
# changed, because QDQ groups contain it. This is not a pass on lowered graphs: the Flatten has to be part of the function
# that a dialect may write for the op. Source: onnxruntime, core/optimizer/qdq_transformer/qdq_propagation.cc and
# qdq_s8_to_u8.cc, pull request 28144.

_COPIED_SINCE = 21
_PROPAGATED_PAST = frozenset({"MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})


def stop_qdq_propagation(graph: Graph, builder: OpBuilder) -> None:
    """Insert a Flatten before the recorded data-movement ops that read the output of an int8 DequantizeLinear of the graph."""
    for op in tuple(builder.ops):
        value = op.inputs[0] if op.op_type in _PROPAGATED_PAST else None
        if value is None or value not in graph or not value.shape or 0 in value.shape:
            continue
        if _is_dequantized(graph, value):
            op.inputs = (builder.prepend_flatten(value), *op.inputs[1:])


def _is_dequantized(graph: Graph, value: Value) -> bool:
    """Whether a value is the output of such a DequantizeLinear, past view ops."""
    op = graph.producer(value)
    while op is not None and isinstance(rule_of(op), View):
        op = graph.producer(op.x)
    if op is None or not is_dequantizer(op) or op.domain or op.version < _COPIED_SINCE:
        return False
    scale, zero = op.input(1), op.input(2)  # a copy per tensor, of int8, with a zero point, is wrong
    return op.x.dtype is DType.INT8 and zero is not None and is_per_tensor(scale)


# Lowers a planned graph, whose values have formats, to a plain graph, whose values have physical shapes.
#
# A dialect decides which ops implement a planned op; this module contains the part of lowering that all dialects share.
# Constants are packed when they are read, so lowering does not allocate memory for them.


class Dialect:
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

    def write(self, graph: Graph, op: Op, builder: OpBuilder, outputs: Operands) -> None:
        """Add the ops that the builder recorded for `op`, which compute `outputs`, to the lowered graph."""
        write_plain(graph, op, builder, outputs)

    def shape(self, format: Format, shape: Shape) -> Shape:
        """The shape of the array of a tensor in a format; by default one extent per physical dimension."""
        return format.physical_shape(shape)

    def write_native(self, op: Op, builder: OpBuilder) -> bool:
        """Record an op with the runtime's kernels for its formats; returns False if there are none."""
        del op, builder
        return False

    def convert(self, builder: OpBuilder, value: Value, src: Format, dst: Format, shape: Shape) -> Value | None:
        """Record a conversion between formats with a kernel of the runtime; returns None if there is none.

        Args:
            builder: records the conversion, which is a CastData, or a part of an op without a kernel for its formats.
            value: the array of the tensor.
            src: its format.
            dst: the format of the result.
            shape: the shape of the tensor.
        """
        del builder, value, src, dst, shape
        return None

    def lower(self, graph: Graph) -> Graph:
        """The lowered graph, before the dialect's passes have run; `graph` is not changed."""
        main = Graph(graph.name, graph.opsets, graph.origin)
        main.metadata = dict(graph.metadata)
        bodies: dict[Graph, Graph] = {}
        for body in reversed(regions_with_rule(graph)[1:]):  # the innermost before those around it
            target = Graph(body.name, origin=body.origin, root=main)
            bodies[body] = _Lowering(self, body, target, bodies).run()
        return _Lowering(self, graph, main, bodies).run()


class _Lowering:
    """The lowering of one graph to an empty target, after the bodies in it."""

    def __init__(self, dialect: Dialect, source: Graph, target: Graph, bodies: dict[Graph, Graph]) -> None:
        """Prepare to lower `source` to `target`; `bodies` has the lowered bodies in it."""
        self.dialect = dialect
        self.source = source
        self.target = target
        self.bodies = bodies
        self.opset = source.opsets.get("", 0)
        self.values: dict[Value, Value] = {}

    def run(self) -> Graph:
        source, target = self.source, self.target
        # Inputs and outputs of the model have one extent per physical dimension, in every dialect.
        exposed = {*source.inputs, *source.outputs} if source.root is source else set[Value]()
        for value in source.values:
            self.values[value] = target.add_value(self._physical(value, is_exposed=value in exposed))
        target.inputs = [self.values[value] for value in source.inputs]
        for op in source.ops:
            self._lower(op)
        target.outputs = [self.values[value] for value in source.outputs]
        target.stage = "lowered"
        return target

    def _physical(self, value: Value, *, is_exposed: bool) -> Value:
        """The value as a physical array. A value in canonical format keeps the tensor of the model."""
        storage = value.storage
        if storage is None or storage.format.is_canonical:
            return Value(value.name, value.type, data=value.data, origin=value.origin, tensor=value.tensor)
        format = storage.format
        shape = format.physical_shape(value.dims) if is_exposed else self.dialect.shape(format, value.dims)
        type = value.type_with(shape)
        nbytes = type.dtype.bits * estimated_volume(shape) // 8
        data = None if value.data is None else Packed(value.data, format, shape, nbytes)
        return Value(value.name, type, data=data, tensor=value.tensor)

    def _lower(self, op: Op) -> None:
        inputs = tuple(value and self.values[value] for value in op.inputs)
        outputs = tuple(value and self.values[value] for value in op.outputs)
        rule = rule_of(op)
        if not is_cast(op) and (rule is None or _is_unchanged(op, rule)):
            bodies = {name: self.bodies.get(body, body) for name, body in op.bodies.items()}
            self.target.add_op(op.copy(inputs, outputs, bodies=bodies))
            return
        op.signature = op.signature or canonical_signature(op)
        formats = rule.physical_formats(op) if rule is not None else _formats_of_cast(op)
        name, dialect = op.name or first_name(op), self.dialect
        builder = OpBuilder(op, inputs, outputs, formats, self.opset, name, dialect.shape, dialect.convert)
        if rule is None:
            self._convert(op, builder)
        elif not dialect.write_native(op, builder):
            rule.lower(op, builder)
        builder.prune()
        if not self._replace_by_input(op, builder):
            self.dialect.write(self.target, op, builder, outputs)

    def _replace_by_input(self, op: Op, builder: OpBuilder) -> bool:
        """Replace the output of an op that was lowered to no op by its input, and return whether that was possible."""
        output = op.outputs[0]
        if builder.ops or output is None or self.source.is_output(output):
            return False
        self.target.remove_value(self.values[output])
        self.values[output] = builder.outputs[0]
        return True

    def _convert(self, op: Op, builder: OpBuilder) -> None:
        value, (src, dst), shape = builder.input(0), cast_storages(op), op.x.dims
        assert value is not None
        extents = zip(src.format.padded_shape(shape), dst.format.padded_shape(shape), shape, strict=True)
        formats = [src.format, dst.format]
        if src.padding > dst.padding and any(old == new != dim for old, new, dim in extents):
            # A conversion does not change an axis that both formats pad to the same extent.
            formats.insert(1, Format.canonical(len(shape)))
        for before, after in pairwise(formats):
            value = builder.convert(value, before, after, shape)
        builder.set_output(0, value)


def _is_unchanged(op: Op, rule: LayoutRule) -> bool:
    """Whether an op of the model is written as it is, on canonical operands."""
    return not rule.must_be_expanded(op) and (op.signature is None or is_canonical(op.signature))


def _formats_of_cast(op: Op) -> dict[Slot, Format]:
    storages = {} if op.signature is None else {X: op.signature.inputs[0], Y: op.signature.outputs[0]}
    return {slot: storage.format for slot, storage in storages.items() if storage is not None}


_BYTE = 8


def _ops(graph: Graph) -> Sequence[Op]:
    """The ops of a lowered graph; none of any other."""
    return graph.ops if graph.stage == "lowered" else ()


def _values(graph: Graph) -> Iterable[Value]:
    """The values of a lowered graph; none of any other."""
    return graph.values if graph.stage == "lowered" else ()


@invariant
def lowered_values_have_no_format(graph: Graph) -> Iterator[str]:
    """A lowered value is an array in row-major order; its shape is the physical one."""
    for value in _values(graph):
        if value.storage is not None and not value.storage.format.is_canonical:
            yield f"{value.name}: {value.storage}"


@invariant
def lowered_ops_have_no_signature(graph: Graph) -> Iterator[str]:
    """A lowered op has no signature; its formats are expanded to ops, or are attributes of a function call."""
    for op in _ops(graph):
        if op.signature is not None:
            yield f"{op!r}: {op.signature}"


@invariant
def lowered_ops_of_layoutopt_are_calls(graph: Graph) -> Iterator[str]:
    """An op in a domain of layoutopt is a call of a function in the graph, with the function's parameters and attributes."""
    functions = {(each.domain, each.name, each.overload): each for each in graph.functions}
    for op in _ops(graph):
        if op.domain != DOMAIN and not op.domain.startswith(f"{DOMAIN}."):
            continue
        function = functions.get((op.domain, op.op_type, op.overload))
        if function is None:
            yield f"{op!r}, which has no function"
        elif len(op.inputs) > len(function.body.inputs) or not set(op.attributes) <= set(function.attributes):
            yield f"{op!r}, whose function has other parameters"


@invariant
def lowered_ops_have_a_version(graph: Graph) -> Iterator[str]:
    """The model imports the domain of every op."""
    for op in _ops(graph):
        if op.domain not in graph.opsets:
            yield f"{op!r}: {op.domain or 'ai.onnx'}"


@invariant
def lowered_constants_fill_their_shapes(graph: Graph) -> Iterator[str]:
    """A constant that layoutopt created has the bytes of its shape; element types of less than a byte may be unpacked."""
    for value in _values(graph):
        dtype, shape = value.dtype, value.static_shape
        if value.data is None or value.origin is not None or shape is None or dtype is None:
            continue
        if dtype is DType.STRING or dtype.bits < _BYTE:
            continue
        if value.data.nbytes != prod(shape) * dtype.bits // _BYTE:
            yield f"{value.name}: {value.data.nbytes} bytes for {value.type}"


@invariant
def lowered_arrays_have_the_shapes_that_views_give_them(graph: Graph) -> Iterator[str]:
    """A Transpose that layoutopt created permutes the extents of its input, a Reshape keeps the number of elements."""
    for op in _ops(graph):
        if op.origin is None and op.kind in ("Reshape", "Transpose") and not _is_consistent(op):
            yield f"{op!r}"


def _is_consistent(op: Op) -> bool:
    before, after = op.x.static_shape, op.y.static_shape
    if before is None or after is None:
        return True
    if op.kind == "Reshape":
        return prod(before) == prod(after)
    return after == tuple(before[axis] for axis in op.integers("perm", tuple(reversed(range(len(before))))))
