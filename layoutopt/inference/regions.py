"""Type inference at the boundaries of regions.

The inputs of a body have the types of the op's operands, without the scan axes; the results of the op have the types of the
body's results. The state of a loop may have another shape in every iteration. It keeps its initial shape if no iteration
changes it: a type is assumed, the body is inferred with it, and the assumption is widened until the body preserves it.

    state (1,8,4,4) -> Conv, Relu -> (1,8,4,4)       the shape in every iteration, and of the result
    state (1,8) -> Concat(x) -> (2,8)                (?,8) -> Concat(x) -> (?,8)
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from layoutopt.errors import ModelError
from layoutopt.formats import UNKNOWN, Dim
from layoutopt.inference.merge import HINT, UNTYPED, ValueType, without_names
from layoutopt.ir.types import DType, Op, TensorType, Value
from layoutopt.onnx_io.converter.vocabulary import DimNames
from layoutopt.onnx_io.onnx_messages import display_name
from layoutopt.ops.region_ops import BoundaryValue, ControlFlow, RegionPort, operand

_LOCAL = re.compile(rf"{re.escape(UNKNOWN)}\d+")  # a dimension of unknown size; those of inputs have other names
_COUNTERS = (TensorType(DType.INT64, ()), TensorType(DType.BOOL, ()))  # the first inputs of the body of a Loop


@dataclass(frozen=True, slots=True)
class Boundary:
    """The boundary of the bodies of an op.

    Attributes:
        op: the op.
        rule: its rule.
        type_of: returns the inferred type of a value.
        declared: the declared types of values.
        names: the source of names for unknown dimensions.
    """

    op: Op
    rule: ControlFlow
    type_of: Callable[[Value], ValueType]
    declared: Mapping[Value, ValueType]
    names: DimNames

    def body_input_types(self) -> dict[Value, ValueType]:
        """The initial types of the inputs of bodies, without captured values."""
        found: dict[Value, ValueType] = {}
        for boundary_value in self.rule.boundary_values(self.op):
            given = next((self._inner_type(each) for each in boundary_value.sources if not each.body), UNTYPED)
            for port in boundary_value.targets:
                value = operand(self.op, port) if port.body else None
                if value is not None and not self._is_captured(port):
                    found[value] = self._initial_type(self._declared(value), given)
                    if not boundary_value.sources and found[value] == UNTYPED:
                        found[value] = _COUNTERS[port.slot.index]
        return found

    def widened_states(self, assumed: Mapping[Value, ValueType]) -> dict[Value, ValueType]:
        """The widened types of the loop states that the body does not preserve."""
        found: dict[Value, ValueType] = {}
        for boundary_value, value in self._states():
            after = next(self._inner_type(each) for each in boundary_value.sources if each.body)
            type = assumed[value]
            wider = self._common(type, after)
            if isinstance(type, TensorType) and isinstance(wider, TensorType) and not _covers(type, wider):
                found[value] = wider
        return found

    def without_shapes(self, assumed: Mapping[Value, ValueType]) -> dict[Value, ValueType]:
        """The types of the loop states without shapes."""
        states = {value: assumed[value] for _, value in self._states()}
        return {value: TensorType(type.dtype, None) for value, type in states.items() if isinstance(type, TensorType)}

    def _states(self) -> Iterator[tuple[BoundaryValue, Value]]:
        """The inputs of bodies that contain the state of a loop, each with its boundary value."""
        for boundary_value in self.rule.boundary_values(self.op):
            if boundary_value.is_loop_state:
                states = (operand(self.op, each) for each in boundary_value.targets if each.body)
                yield from ((boundary_value, value) for value in states if value is not None)

    def output_types(self) -> dict[Value, ValueType]:
        """The types of the op's outputs. A loop may have no iteration, so the initial state is among the possible results."""
        found: dict[Value, ValueType] = {}
        for boundary_value in self.rule.boundary_values(self.op):
            given = [(each, self._inner_type(each)) for each in boundary_value.sources]
            outside = {dim for each, type in given if not each.body for dim in _shape(type) or ()}
            for port in boundary_value.targets:
                value = operand(self.op, port) if not port.body else None
                if value is not None and given:
                    common = given[0][1]
                    for _, other in given[1:]:
                        common = self._common(common, other)
                    found[value] = self._outer_type(common, port, outside, self._scan_extents(boundary_value, port))
        return found

    def _scan_extents(self, boundary_value: BoundaryValue, port: RegionPort) -> list[Dim | None]:
        """The extents of a result along its scan axes: a batch, the iterations, or both in this order."""
        shapes = [
            (_shape(self.type_of(value)), each)
            for boundary_value in self.rule.boundary_values(self.op)
            for each in boundary_value.sources
            if not each.body and len(each.scan_axes) > 1 and (value := operand(self.op, each)) is not None
        ]
        batch = next((shape[each.scan_axes[0]] for shape, each in shapes if shape is not None), None)
        if boundary_value.is_loop_state or len(port.scan_axes) != 1:
            return [batch, self._trip_count()][: len(port.scan_axes)]
        return [self._trip_count()]

    def _trip_count(self) -> Dim | None:
        """The number of iterations."""
        return self.rule.trip_count(self.op, lambda value: _shape(self.type_of(value)))

    def _is_captured(self, port: RegionPort) -> bool:
        return port.slot.index >= len(self.op.bodies[port.body].inputs) - self.op.captured

    def _declared(self, value: Value) -> ValueType:
        """The declared type without names of dimensions, which may differ in the next iteration."""
        return without_names(self.declared.get(value, UNTYPED), self.names)

    def _inner_type(self, port: RegionPort) -> ValueType:
        """The type of an operand without the scan axes, which the body's operand lacks."""
        value = operand(self.op, port)
        type = UNTYPED if value is None else self.type_of(value)
        if not isinstance(type, TensorType) or type.shape is None or not port.scan_axes:
            return type
        return TensorType(type.dtype, tuple(dim for axis, dim in enumerate(type.shape) if axis not in port.scan_axes))

    def _initial_type(self, declared: ValueType, initial: ValueType) -> ValueType:
        """The type of an input in the first iteration: the declared extents where those of the operand are unknown."""
        if not isinstance(initial, TensorType) or initial.shape is None:
            return declared if initial == UNTYPED or _shape(declared) is not None else initial
        if not isinstance(declared, TensorType) or declared.shape is None:
            return initial
        if len(declared.shape) != len(initial.shape):
            return TensorType(initial.dtype, None)
        pairs = zip(declared.shape, initial.shape, strict=True)
        return TensorType(initial.dtype, tuple(self._initial_extent(*pair) for pair in pairs))

    def _initial_extent(self, declared: Dim, initial: Dim) -> Dim:
        """The extent in the first iteration; unknown if the declared number differs from that of the operand."""
        if isinstance(declared, int) and isinstance(initial, int) and declared != initial:
            return self.names.fresh()
        return initial if _precision(initial) else declared

    def _common(self, one: ValueType, other: ValueType) -> ValueType:
        """The most precise type that covers two types.

        Raises:
            ModelError: the element types differ.
        """
        if not isinstance(one, TensorType) or not isinstance(other, TensorType):
            return one if one == other else UNTYPED
        if one.dtype is not other.dtype:
            what = f"mismatched tensor element type: {one.dtype} vs {other.dtype}"
            raise ModelError(what, where=display_name(self.op), hint=HINT)
        if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
            return TensorType(one.dtype, None)
        pairs = zip(one.shape, other.shape, strict=True)
        return TensorType(one.dtype, tuple(a if a == b else self.names.fresh() for a, b in pairs))

    def _outer_type(
        self, inner: ValueType, port: RegionPort, outside: set[Dim], extents: Sequence[Dim | None]
    ) -> ValueType:
        """The type outside of a body of a result of type `inner`. Extents that are defined only in the body get new names."""
        if not isinstance(inner, TensorType):
            return UNTYPED if port.scan_axes else inner
        if inner.shape is None:
            return inner
        dims = [dim if dim in outside or _precision(dim) else self.names.fresh() for dim in inner.shape]
        for axis, dim in zip(port.scan_axes, extents, strict=True):
            dims.insert(axis, self.names.fresh() if dim is None else dim)
        return TensorType(inner.dtype, tuple(dims))


def _shape(type: ValueType) -> tuple[Dim, ...] | None:
    return type.shape if isinstance(type, TensorType) else None


def _precision(dim: Dim) -> int:
    """The precision of an extent: 0 if it is unknown, 1 for an expression in extents of the model's inputs, 2 for a number."""
    return 2 if isinstance(dim, int) else 0 if any(map(_LOCAL.fullmatch, dim.names)) else 1


def _covers(type: TensorType, other: TensorType) -> bool:
    """Whether every tensor of type `other` is of type `type`."""
    if type.shape is None or other.shape is None:
        return type.shape is None
    return all(_precision(a) <= _precision(b) for a, b in zip(type.shape, other.shape, strict=True))


__all__ = ["Boundary"]
