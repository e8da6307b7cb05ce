"""Writes one op on physical arrays: the small language that layout rules lower to.

Everything here is shapes: a value of the lowered graph has the shape of the array that holds it, and symbolic extents
are read off the array at run time where an op needs them as numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from layoutopt.formats import Conversion, Dim, Format, Pad, Reshape, Shape, Slice, Transpose
from layoutopt.ir.types import Array, ArrayData, Attribute, DType, Op, Slot, Storage, TensorType, Value
from layoutopt.ops import physical_type

Spell: TypeAlias = Callable[[Format, Shape], Shape]


class OpBuilder:
    """Records the ops that one op of the planned graph becomes.

    Args:
        op: the op, with its signature.
        inputs: its inputs in the lowered graph, as they lie.
        outputs: its outputs there.
        formats: the formats that the op is written in; they have the same bytes as those of the signature.
        opset: the version of ai.onnx to write in.
        prefix: what names of new values begin with.
        spell: the shape that the dialect gives to the array of a logical shape in a format.
    """

    def __init__(
        self,
        op: Op,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value | None],
        formats: Mapping[Slot, Format],
        opset: int,
        prefix: str,
        spell: Spell,
    ) -> None:
        """Record nothing yet."""
        self._op = op
        self._spell = spell
        self._formats = formats
        self._inputs = inputs
        self._outputs = outputs
        self._opset = opset
        self._prefix = prefix
        self._count = 0
        self.ops: list[Op] = []
        self.constants: list[Value] = []
        self.outputs: dict[int, Value] = {}

    # --- what rules call -------------------------------------------------------------------------------------

    def format(self, slot: Slot) -> Format:
        """The format in which the rule sees an operand."""
        return self._formats[slot]

    def output_type(self, index: int) -> TensorType | None:
        """The type of the physical output; None if it is absent."""
        value, format = self._op.outputs[index], self._formats.get(Slot("out", index))
        return None if value is None else physical_type(value, None if format is None else Storage(format))

    def input(self, index: int) -> Value | None:
        """The physical input."""
        value, format, logical = self._inputs[index], self._formats.get(Slot("in", index)), self._op.inputs[index]
        if value is None or logical is None or logical.shape is None or format is None:
            return value
        return self.reshape(value, format.physical_shape(logical.shape))

    def raw(self, index: int) -> Value | None:
        """The input in the shape that the dialect gives to arrays of its format."""
        value, format, logical = self._inputs[index], self._formats.get(Slot("in", index)), self._op.inputs[index]
        if value is None or logical is None or logical.shape is None or format is None:
            return value
        return self.reshape(value, self._spell(format, logical.shape))

    def padded(self, index: int) -> Value | None:
        """The input in canonical order, its axes still padded up to their blocks."""
        value, format, logical = self.input(index), self._formats.get(Slot("in", index)), self._op.inputs[index]
        if value is None or logical is None or logical.shape is None or format is None or format.is_canonical:
            return value
        return self.reshape(self.transpose(value, _by_axis(format)), format.padded_shape(logical.shape))

    def constant(self, array: Array, stem: str) -> Value:
        """A new constant."""
        dtype = TensorType(DType.of(array), array.shape)
        value = Value(self._name(stem), dtype, data=ArrayData(array))
        self.constants.append(value)
        return value

    def op(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        types: Sequence[TensorType | None],
        attributes: Mapping[str, Attribute] | None = None,
        domain: str | None = None,
    ) -> list[Value]:
        """A new op of the domain of this one, or of the standard domain, and its outputs."""
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

    def reshape(self, value: Value, shape: Shape) -> Value:
        """The same elements under another shape."""
        assert isinstance(value.type, TensorType) and value.shape is not None
        if value.shape == shape:
            return value
        type = TensorType(value.type.dtype, shape)
        target = self._target(value, shape)
        (result,) = self.op("Reshape", [value, target], [type])
        return result

    def transpose(self, value: Value, perm: Sequence[int]) -> Value:
        """The axes in another order."""
        assert isinstance(value.type, TensorType) and value.shape is not None
        if list(perm) == list(range(len(perm))):
            return value
        type = TensorType(value.type.dtype, tuple(value.shape[axis] for axis in perm))
        (result,) = self.op("Transpose", [value], [type], {"perm": tuple(perm)})
        return result

    def convert(self, value: Value, src: Format, dst: Format, shape: Shape) -> Value:
        """A tensor of logical shape `shape` from one format in another; the lanes of the result are zero."""
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
        assert isinstance(value.type, TensorType) and value.shape is not None
        old = value.shape[axis]
        if old == extent:
            return value
        assert isinstance(old, int), f"the extent of axis {axis} of {value.name} is unknown"
        type = TensorType(value.type.dtype, (*value.shape[:axis], extent, *value.shape[axis + 1 :]))
        if extent < old:
            return self._slice(value, axis, extent, type)
        pads = [0] * (2 * len(value.shape))
        pads[len(value.shape) + axis] = extent - old
        if self._opset < 11:
            (result,) = self.op("Pad", [value], [type], {"pads": tuple(pads)})
        else:
            (result,) = self.op("Pad", [value, self.constant(np.asarray(pads, dtype=np.int64), "pads")], [type])
        return result

    def set_output(self, index: int, value: Value) -> None:
        """The physical output; in the lowered graph it may have other extents of 1, or the dialect's own shape."""
        target = self._outputs[index]
        self.outputs[index] = value if target is None or target.shape is None else self.reshape(value, target.shape)

    def set_padded_output(self, index: int, value: Value) -> None:
        """The output in canonical order, its axes padded up to their blocks."""
        format, logical = self._formats.get(Slot("out", index)), self._op.outputs[index]
        if format is not None and logical is not None and logical.shape is not None and not format.is_canonical:
            target = format.physical_shape(logical.shape)
            gather = _by_axis(format)
            value = self.reshape(value, tuple(target[place] for place in gather))
            value = self.transpose(value, [gather.index(place) for place in range(len(gather))])
        self.set_output(index, value)

    def mask(self, value: Value, storage: Storage, shape: Shape) -> Value:
        """The same format with the lanes set to zero: cut off and padded again."""
        format = storage.format
        gather = _by_axis(format)
        padded = format.padded_shape(shape)
        physical = value.shape
        assert physical is not None
        value = self.reshape(self.transpose(value, gather), padded)
        for axis in format.blocked_axes:
            logical, whole = shape[axis], padded[axis]
            assert isinstance(logical, int) and isinstance(whole, int)
            value = self.resize_axis(self.resize_axis(value, axis, logical), axis, whole)
        value = self.reshape(value, tuple(physical[place] for place in gather))
        return self.transpose(value, [gather.index(place) for place in range(len(gather))])

    # --- inside ----------------------------------------------------------------------------------------------

    def _name(self, stem: str) -> str:
        self._count += 1
        return f"{self._prefix}/{stem}_{self._count}"

    def _slice(self, value: Value, axis: int, extent: int, type: TensorType) -> Value:
        if self._opset < 10:
            (result,) = self.op("Slice", [value], [type], {"starts": (0,), "ends": (extent,), "axes": (axis,)})
            return result
        numbers = [self.constant(np.asarray([number], dtype=np.int64), "slice") for number in (0, extent, axis)]
        (result,) = self.op("Slice", [value, *numbers], [type])
        return result

    def _target(self, value: Value, shape: Shape) -> Value:
        """The shape input of a Reshape. One symbolic extent is -1; several are copied from the input or read off it."""
        source = value.shape
        assert source is not None
        unknown = [place for place, dim in enumerate(shape) if not isinstance(dim, int)]
        copied = [place for place in unknown if place < len(source) and source[place] == shape[place]]
        rest = [place for place in unknown if place not in copied]
        if len(rest) <= 1:
            numbers = [dim if isinstance(dim, int) else 0 if place in copied else -1 for place, dim in enumerate(shape)]
            return self.constant(np.asarray(numbers, dtype=np.int64), "shape")
        extents = _Extents(self, value, source)
        pieces: list[Value | None] = [
            self.constant(np.asarray([dim], dtype=np.int64), "extent") if isinstance(dim, int) else extents(dim)
            for dim in shape
        ]
        (result,) = self.op("Concat", pieces, [TensorType(DType.INT64, (len(shape),))], {"axis": 0})
        return result


class _Extents:
    """Symbolic extents of a value, read off it at run time."""

    def __init__(self, builder: OpBuilder, value: Value, source: Shape) -> None:
        self._builder = builder
        self._source = source
        (self._shape,) = builder.op("Shape", [value], [TensorType(DType.INT64, (len(source),))])

    def __call__(self, dim: Dim) -> Value:
        if dim not in self._source:  # one at most, which is what remains
            return self._builder.constant(np.asarray([-1], dtype=np.int64), "rest")
        place = self._builder.constant(np.asarray([self._source.index(dim)], dtype=np.int64), "place")
        (extent,) = self._builder.op("Gather", [self._shape, place], [TensorType(DType.INT64, (1,))])
        return extent


def _by_axis(format: Format) -> list[int]:
    """The places of the parts, axis by axis, each from major to minor."""
    return sorted(range(len(format.parts)), key=lambda place: (format.parts[place].axis, place))
