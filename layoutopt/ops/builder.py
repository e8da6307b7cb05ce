"""Records the ops on physical arrays that layout rules lower an op to, and writes them into a graph.

A value of the lowered graph has the shape of its physical array. Symbolic extents are computed from arrays and operands at run
time where an op requires them as numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import TypeAlias

import numpy as np

from layoutopt.formats import (
    Conversion,
    Dim,
    Format,
    Pad,
    Reshape,
    Shape,
    Slice,
    Transpose,
    pack,
    packed_view,
    product,
)
from layoutopt.ir.constants import Rearranged
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import (
    Array,
    ArrayData,
    Attribute,
    Attributes,
    Data,
    DType,
    Op,
    Operands,
    Slot,
    Storage,
    TensorType,
    Value,
)
from layoutopt.ops.signatures import estimated_extent, physical_type
from layoutopt.record import Record

# Element types that a data-movement op does not support, and the wider types to which they are promoted.
#
# Slice and Concat do not support element types of fewer than eight bits or float8, and Transpose does not support float8
# before opset 21. Of the types that ONNX allows, onnxruntime's CPU kernels lack Pad of float8 and Reshape of 4-bit
# integers.

_NARROW = {
    **dict.fromkeys((DType.INT4, DType.INT2), DType.INT8),
    **dict.fromkeys((DType.UINT4, DType.UINT2), DType.UINT8),
    DType.FLOAT4E2M1: DType.FLOAT32,
}
_MOVES_EIGHT_BITS = 21  # the opset from which Transpose takes float8


def promoted_type(dtype: DType, op_type: str, opset: int) -> DType | None:
    """The element type to which the operands of an op are promoted; None if the op supports this one."""
    if dtype in _NARROW:
        return _NARROW[dtype]
    is_supported = op_type in ("Reshape", "Transpose") and opset >= _MOVES_EIGHT_BITS
    return DType.FLOAT32 if dtype.label.startswith("float8") and not is_supported else None


class Packed(Record, Rearranged):
    """A constant in a format.

    Attributes:
        data: the elements in logical order.
        format: the format.
        shape: the shape of the packed array.
        nbytes: its size in bytes.
    """

    data: Data
    format: Format
    shape: Shape
    nbytes: int

    def numpy(self) -> Array:
        """The physical array."""
        return pack(self.data.numpy(), self.format).reshape([estimated_extent(dim) for dim in self.shape])

    def view(self) -> Array:
        """The physical array, one axis per part, as a view of the logical one if no axis is padded."""
        return packed_view(self.data.numpy(), self.format)

    def with_data(self, data: Data, nbytes: int) -> "Packed":
        """Another constant of that shape in this format."""
        return Packed(data, self.format, self.shape, nbytes)

    def elements_at(self, positions: Array) -> Array:
        """The elements at positions of the flattened physical array."""
        physical = self.view()
        found: Array = physical[np.unravel_index(positions, physical.shape)]
        return found


ArrayShape: TypeAlias = Callable[[Format, Shape], Shape]
WriteConversion: TypeAlias = Callable[["OpBuilder", Value, Format, Format, Shape], Value | None]
"""Records a conversion with a kernel of the runtime; None if there is none. Arguments are those of `OpBuilder.convert`."""

_ZERO_IS_ZERO_SINCE = 14
"""The opset since which Reshape has the attribute `allowzero`."""

_EXPAND_SINCE = 8

_PAD_TYPES = frozenset({DType.FLOAT16, DType.FLOAT32, DType.FLOAT64})
"""Element types that Pad supports at every opset and in onnxruntime; Concat supports all."""


class OpBuilder:
    """Records the lowered ops of one op of the planned graph.

    Args:
        op: the op, with its signature.
        inputs: its inputs in the lowered graph, in their storages.
        outputs: its outputs there.
        formats: the formats that the op is written in; they have the same bytes as those of the signature.
        opset: the version of ai.onnx to write in.
        prefix: the prefix of the names of new values.
        shape: returns the shape of the dialect's array for a format and a logical shape.
        write_conversion: records conversions with kernels of the dialect.
    """

    def __init__(
        self,
        op: Op,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value | None],
        formats: Mapping[Slot, Format],
        opset: int,
        prefix: str,
        shape: ArrayShape,
        write_conversion: WriteConversion = lambda *conversion: None,
    ) -> None:
        """Begin with no recorded ops."""
        self._op = op
        self._shape = shape
        self._write_conversion = write_conversion
        self._formats = formats
        self._inputs = inputs
        self._outputs = outputs
        self._opset = opset
        self._prefix = prefix
        self._count = 0
        self._promoted: dict[Value, Value] = {}
        self._reshaped: dict[Value, Value] = {}
        self.ops: list[Op] = []
        self.constants: list[Value] = []
        self.outputs: dict[int, Value] = {}

    # --- for layout rules -------------------------------------------------------------------------------------

    def format(self, slot: Slot) -> Format:
        """The format of an operand that the rule lowers for."""
        return self._formats[slot]

    def output_type(self, index: int) -> TensorType | None:
        """The type of the physical output; None if it is absent."""
        value, format = self._op.outputs[index], self._formats.get(Slot("out", index))
        return None if value is None else physical_type(value, None if format is None else Storage(format))

    def input(self, index: int) -> Value | None:
        """The physical input."""
        return self._input(index, Format.physical_shape)

    def given_input(self, index: int) -> Value | None:
        """The input in the shape that it has in the lowered graph."""
        return self._inputs[index]

    def declared_input(self, index: int) -> Value | None:
        """The input in the shape that the dialect gives to arrays of its format."""
        return self._input(index, self._shape)

    def _input(self, index: int, shape_of: ArrayShape) -> Value | None:
        value, format, logical = self._inputs[index], self._formats.get(Slot("in", index)), self._op.inputs[index]
        if value is None or logical is None or logical.shape is None or format is None:
            return value
        return self.reshape(value, shape_of(format, logical.shape))

    def declared_inputs(self) -> list[Value | None]:
        """All inputs in the shapes that the dialect gives to arrays of their formats."""
        return [self.declared_input(index) for index in range(len(self._inputs))]

    def declared(self, slot: Slot) -> Shape:
        """The shape that the dialect gives to the array of an operand."""
        value = self._op.operand(slot)
        assert value is not None
        return self._shape(self.format(slot), value.dims)

    def canonical(self, index: int) -> Value | None:
        """The input as an array of its logical shape, in the canonical format."""
        value, format, logical = self.input(index), self._formats.get(Slot("in", index)), self._op.inputs[index]
        if value is None or logical is None or logical.shape is None or format is None:
            return value
        return self.convert(value, format, Format.canonical(format.rank), logical.shape)

    def constant(self, array: Array, stem: str) -> Value:
        """A new constant."""
        dtype = TensorType(DType.of(array), array.shape)
        value = Value(self._name(stem), dtype, data=ArrayData(array))
        self.constants.append(value)
        return value

    def integers(self, numbers: Sequence[int], stem: str) -> Value:
        """A new constant list of integers."""
        return self.constant(np.asarray(numbers, dtype=np.int64), stem)

    def op(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        types: Sequence[TensorType | None],
        attributes: Mapping[str, Attribute] | None = None,
        domain: str | None = None,
    ) -> list[Value]:
        """The present outputs of a new op in `domain`, by default that of the op for its own type, else the standard domain."""
        own = domain is None and op_type == self._op.op_type
        outputs = [None if type is None else Value(self._name(op_type), type) for type in types]
        op = Op(
            op_type,
            tuple(inputs),
            tuple(outputs),
            domain=self._op.domain if own else domain or "",
            version=self._op.version if own else 1 if domain else self._opset,
            attributes=dict(attributes or {}),
        )
        self.ops.append(op)
        return [value for value in outputs if value is not None]

    def result(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        type: TensorType | None,
        attributes: Mapping[str, Attribute] | None = None,
        domain: str | None = None,
    ) -> Value:
        """The only output of a new op, as of `op`."""
        (result,) = self.op(op_type, inputs, [type], attributes, domain)
        return result

    def reshape(self, value: Value, shape: Shape) -> Value:
        """The same elements in another shape."""
        value = self._reshaped.get(value, value)
        if value.shape == shape:
            return value
        type = value.type_with(shape)
        if 0 in shape:  # there are no elements; Reshape copies an extent for a 0
            return self.result("Identity", [self._zeros(value, shape)], type)
        target = self._target(value, shape)
        # A computed extent may be 0, which must not copy an extent.
        literal = target.data is None and self._opset >= _ZERO_IS_ZERO_SINCE
        result = self._move("Reshape", value, [target], type, {"allowzero": 1} if literal else {})
        self._reshaped[result] = value
        return result

    def cast(self, value: Value, dtype: DType) -> Value:
        """The elements of a value in another element type."""
        attributes: Attributes = {"to": dtype.number}
        if dtype.label.startswith(("float8e4", "float8e5")):
            attributes["saturate"] = 0  # or infinities would become the largest numbers
        return self.result("Cast", [value], TensorType(dtype, value.shape), attributes)

    def expand(self, value: Value, like: Value, axes: int) -> Value:
        """The elements of `value`, repeated along the last `axes` axes to the extents of `like`."""
        extents, rank = like.dims[-axes:], len(like.dims)
        if value.dims[-axes:] == extents:
            return value
        type = value.type_with((*value.dims[:-axes], *extents))
        if self._opset < _EXPAND_SINCE:
            own = zip(value.dims[-axes:], extents, strict=True)
            copies = (*(1,) * (len(value.dims) - axes), *(1 if before == after else after for before, after in own))
            return self.result("Tile", [value, self._extents_tensor(like, copies)], type)
        known = [extent for extent in extents if isinstance(extent, int)]
        if len(known) == len(extents):
            target = self.integers(known, "extents")
        else:
            whole = self.result("Shape", [like], TensorType(DType.INT64, (rank,)))
            target = self._slice(whole, 0, rank - axes, rank, TensorType(DType.INT64, (axes,)))
        return self.result("Expand", [value, target], type)

    def prepend_flatten(self, value: Value) -> Value:
        """Record a Flatten of a value and a Reshape back, before all ops recorded so far; returns the result."""
        recorded, self.ops = self.ops, []
        flat = self.result("Flatten", [value], value.type_with((1, product(value.dims))), {"axis": 0})
        result = self.reshape(flat, value.dims)
        self.ops += recorded
        return result

    def transpose(self, value: Value, perm: Sequence[int]) -> Value:
        """The axes in another order."""
        if list(perm) == list(range(len(perm))):
            return value
        type = value.type_with(tuple(value.dims[axis] for axis in perm))
        return self._move("Transpose", value, [], type, {"perm": tuple(perm)})

    def convert(self, value: Value, src: Format, dst: Format, shape: Shape) -> Value:
        """A tensor of logical shape `shape`, converted from one format to another; the padding of the result is zero."""
        written = None if value.data is not None else self._write_conversion(self, value, src, dst, shape)
        if written is not None:
            return self.reshape(written, dst.physical_shape(shape))
        for step in Conversion(src, dst).steps(shape):
            match step:
                case Reshape():
                    value = self.reshape(value, step.after)
                case Transpose():
                    value = self.transpose(value, step.perm)
                case Pad() | Slice():
                    for axis, (before, after) in enumerate(zip(step.before, step.after, strict=True)):
                        if before != after:
                            assert isinstance(after, int)
                            value = self.resize_axis(value, axis, after)
        return value

    def resize_axis(self, value: Value, axis: int, extent: int) -> Value:
        """Cut or zero-pad the end of an axis."""
        shape = value.dims
        old = shape[axis]
        if old == extent:
            return value
        assert isinstance(old, int), f"the extent of axis {axis} of {value.name} is unknown"
        type = value.type_with((*shape[:axis], extent, *shape[axis + 1 :]))
        if extent < old:
            return self._slice(value, axis, 0, extent, type)
        if type.dtype not in _PAD_TYPES and promoted_type(type.dtype, "Pad", self._opset) is None:
            missing = (*shape[:axis], extent - old, *shape[axis + 1 :])
            return self.result("Concat", [value, self._zeros(value, missing)], type, {"axis": axis})
        pads = [0] * (2 * len(shape))
        pads[len(shape) + axis] = extent - old
        if self._opset < 11:
            return self._move("Pad", value, [], type, {"pads": tuple(pads)})
        return self._move("Pad", value, [self.integers(pads, "pads")], type)

    def set_output(self, index: int, value: Value) -> None:
        """Record the physical output, reshaped to the shape of the lowered graph's value, which the dialect declares."""
        target = self._outputs[index]
        self.outputs[index] = value if target is None or target.shape is None else self.reshape(value, target.shape)

    def set_outputs(self, values: Sequence[Value]) -> None:
        """Record all physical outputs that the op has."""
        present = (index for index, value in enumerate(self._op.outputs) if value is not None)
        for index, value in zip(present, values, strict=True):
            self.set_output(index, value)

    def set_canonical_output(self, index: int, value: Value) -> None:
        """Record an output that is an array of the logical shape in the canonical format; its padding becomes zero."""
        format, logical = self._formats.get(Slot("out", index)), self._op.outputs[index]
        if format is not None and logical is not None and logical.shape is not None:
            value = self.convert(value, Format.canonical(format.rank), format, logical.shape)
        self.set_output(index, value)

    def prune(self) -> None:
        """Remove the recorded ops and constants that no output depends on."""
        read = set(self.outputs.values())
        kept = []
        for op in reversed(self.ops):
            if not read.isdisjoint(op.outputs):
                kept.append(op)
                read.update(op.present_inputs)
        self.ops = kept[::-1]
        self.constants = [constant for constant in self.constants if constant in read]

    # --- helpers ----------------------------------------------------------------------------------------------

    def _move(
        self,
        op_type: str,
        value: Value,
        rest: Sequence[Value],
        type: TensorType,
        attributes: Mapping[str, Attribute] | None = None,
    ) -> Value:
        """The output of a new data-movement op, on a promoted element type if the op does not support this one."""
        wide = promoted_type(type.dtype, op_type, self._opset)
        if wide is None:
            return self.result(op_type, [value, *rest], type, attributes)
        source = self._promoted.get(value)
        if source is None or source.dtype is not wide:
            source = self.cast(value, wide)
        moved = self.result(op_type, [source, *rest], TensorType(wide, type.shape), attributes)
        result = self.cast(moved, type.dtype)
        self._promoted[result] = moved
        return result

    def _name(self, stem: str) -> str:
        self._count += 1
        return f"{self._prefix}/{stem}_{self._count}"

    def _slice(self, value: Value, axis: int, start: int, end: int, type: TensorType) -> Value:
        if self._opset < 10:
            return self._move("Slice", value, [], type, {"starts": (start,), "ends": (end,), "axes": (axis,)})
        numbers = [self.integers([number], "slice") for number in (start, end, axis)]
        return self._move("Slice", value, numbers, type)

    def _target(self, value: Value, shape: Shape) -> Value:
        """The shape input of a Reshape. One symbolic extent is -1; several are copied from the input or computed."""
        pairs = zip_longest(shape, value.dims[: len(shape)])
        numbers = [dim if isinstance(dim, int) else 0 if dim == source else -1 for dim, source in pairs]
        if numbers.count(-1) <= 1:
            return self.integers(numbers, "shape")
        return self._extents_tensor(value, shape)

    def _extents_tensor(self, value: Value, shape: Shape) -> Value:
        """Extents as a tensor, read from shapes and elements of operands; one that none of them has is -1, as for Reshape."""
        sources: dict[Dim | None, tuple[Value, int, bool]] = {}  # an array, and an axis or else the index of an element
        for array in filter(None, (value, *self._inputs)):
            for axis, dim in enumerate(array.shape or ()):
                sources.setdefault(dim, (array, axis, True))
        for operand, given in zip(self._op.inputs, self._inputs, strict=True):
            for position, element in enumerate((operand and operand.elements) or ()):
                if given is not None and given.shape and given.dtype is DType.INT64:
                    sources.setdefault(element, (given, position, False))
        found = [(dim, None) if isinstance(dim, int) else (-1, sources.get(dim)) for dim in shape]
        assert found.count((-1, None)) < 2, f"{shape} has several extents that no operand has"
        shapes: dict[Value, Value] = {}
        for array, _, is_axis in (source for _, source in found if source is not None):
            if is_axis and array not in shapes:
                shapes[array] = self.result("Shape", [array], TensorType(DType.INT64, (len(array.dims),)))
        return computed_list(
            self,
            [number if source is None else (shapes.get(source[0], source[0]), source[1]) for number, source in found],
        )

    def _zeros(self, value: Value, shape: Shape) -> Value:
        """Zeros of the element type of a value, symbolic extents being those of the value."""
        known, type = tuple(dim if isinstance(dim, int) else 1 for dim in shape), value.type_with(shape)
        zeros = self.constant(np.zeros(known, dtype=type.dtype.numpy), "zeros")
        if known == shape:
            return zeros
        repeats = tuple(1 if isinstance(dim, int) else dim for dim in shape)
        return self.result("Tile", [zeros, self._extents_tensor(value, repeats)], type)


def computed_list(build: OpBuilder, entries: Sequence[int | tuple[Value, int]]) -> Value:
    """A list of integers; each entry is a number, or a list and the index of an element of it."""
    pieces: list[Value | None] = []
    for entry in entries:
        if isinstance(entry, int):
            pieces.append(build.integers([entry], "extent"))
        else:
            position = build.integers([entry[1]], "index")
            pieces.append(build.result("Gather", [entry[0], position], TensorType(DType.INT64, (1,))))
    if not pieces:
        return build.integers((), "extents")
    return build.result("Concat", pieces, TensorType(DType.INT64, (len(pieces),)), {"axis": 0})


def write_plain(graph: Graph, op: Op, builder: OpBuilder, outputs: Operands) -> None:
    """Add the recorded ops to the graph.

    Args:
        graph: the lowered graph.
        op: the planned op that they compute.
        builder: the builder that recorded them.
        outputs: the values of `graph` that become their results.
    """
    values = {each: graph.new_value(each.name, each.type, data=each.data) for each in builder.constants}
    recorded = list(builder.ops)
    produced = {value for each in recorded for value in each.outputs}
    for index, source in builder.outputs.items():
        result = outputs[index]
        if result is not None and source in produced:
            values[source] = result
        elif result is not None:
            # The output is an input: an Identity gives it the output's name.
            recorded.append(Op("Identity", (source,), (result,), version=graph.opsets.get("", 0)))
            values[result] = result
    for number, each in enumerate(recorded):
        for value in each.outputs:
            if value is not None and value not in values:
                values[value] = graph.new_value(value.name, value.type)
        inputs = tuple(value and values.get(value, value) for value in each.inputs)
        name = op.name if len(recorded) == 1 else f"{op.name or first_name(op)}/{number}"
        copy = each.copy(inputs, tuple(value and values[value] for value in each.outputs), name=name)
        copy.device = op.device
        copy.order = (*op.order, number)
        graph.add_op(copy)


def rewriting(graph: Graph, op: Op, stem: str) -> OpBuilder:
    """A builder of ops in place of an op of a lowered graph; `stem` is part of the names of new values."""
    prefix = f"{op.y.name}/{stem}"
    return OpBuilder(op, op.inputs, op.outputs, {}, graph.opsets.get("", 0), prefix, Format.physical_shape)


def replace_op(graph: Graph, op: Op, builder: OpBuilder) -> None:
    """Write the ops that a builder of `rewriting` recorded in place of the op, which has one output."""
    builder.prune()
    result = graph.new_value(op.y.name, op.y.type)
    write_plain(graph, op, builder, (result,))
    graph.replace_value(op.y, result)


def first_name(op: Op) -> str:
    """The name of the first output of an op, or its type."""
    return next((value.name for value in op.present_outputs), op.op_type)
