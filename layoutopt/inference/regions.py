"""How types cross into the bodies of ops and out of them.

A body reads what its op is given, without the axes that it does not see; the op hands out what its bodies leave. The state of a
loop may have another shape in every iteration. It keeps the shape that it begins with where no iteration changes it: a type is
assumed, the body is inferred with it, and the assumption is widened until the body preserves it.

    state (1,8,4,4) -> Conv, Relu -> (1,8,4,4)       it has that shape in every iteration, and afterwards
    state (1,8) -> Concat(x) -> (2,8)                (?,8) -> Concat(x) -> (?,8)
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from layoutopt.errors import ModelError
from layoutopt.formats import UNKNOWN, Dim, Extent
from layoutopt.inference.merge import HINT, NOTHING, Type, describe, without_names
from layoutopt.ir.types import DType, Op, TensorType, Value
from layoutopt.onnx_io.converter.vocabulary import DimNames
from layoutopt.ops.region_ops import BoundaryValue, ControlFlow, RegionPort, operand

_LOCAL = re.compile(rf"{re.escape(UNKNOWN)}\d+")  # a dimension of unknown size; those of inputs have other names
_COUNTERS = (TensorType(DType.INT64, ()), TensorType(DType.BOOL, ()))  # the first inputs of the body of a Loop


@dataclass(frozen=True, slots=True)
class Boundary:
    """The boundary of the bodies of an op.

    Attributes:
        op: the op.
        rule: its rule.
        type_of: the type that a value has now.
        declared: the types that values are declared to have.
        names: for unknown dimensions.
    """

    op: Op
    rule: ControlFlow
    type_of: Callable[[Value], Type]
    declared: Mapping[Value, Type]
    names: DimNames

    def enter(self) -> dict[Value, Type]:
        """The types that the inputs of bodies have at first, captures aside; the state of a loop may not keep them."""
        found: dict[Value, Type] = {}
        for crossing in self.rule.boundary_values(self.op):
            given = next((self._seen(each) for each in crossing.sources if not each.body), NOTHING)
            for place in crossing.targets:
                value = operand(self.op, place) if place.body else None
                if value is not None and not self._is_captured(place):
                    found[value] = self._begun(self._declared(value), given)
                    if not crossing.sources and found[value] == NOTHING:
                        found[value] = _COUNTERS[place.slot.index]
        return found

    def widened(self, assumed: Mapping[Value, Type]) -> dict[Value, Type]:
        """The types of the states that bodies do not preserve: those that they have before and after an iteration."""
        found: dict[Value, Type] = {}
        for crossing, value in self._states():
            left = next(self._seen(each) for each in crossing.sources if each.body)
            type = assumed[value]
            wider = self._common(type, left)
            if isinstance(type, TensorType) and isinstance(wider, TensorType) and not _covers(type, wider):
                found[value] = wider
        return found

    def without_shapes(self, assumed: Mapping[Value, Type]) -> dict[Value, Type]:
        """The types of the states, of unknown rank."""
        states = {value: assumed[value] for _, value in self._states()}
        return {value: TensorType(type.dtype, None) for value, type in states.items() if isinstance(type, TensorType)}

    def _states(self) -> Iterator[tuple[BoundaryValue, Value]]:
        """The inputs of bodies that hold the state of a loop, with their boundary_values."""
        for crossing in self.rule.boundary_values(self.op):
            if crossing.is_loop_state:
                states = (operand(self.op, each) for each in crossing.targets if each.body)
                yield from ((crossing, value) for value in states if value is not None)

    def leave(self) -> dict[Value, Type]:
        """The types of the op's outputs. A loop may run not at all, so that its state may be the one that it is given."""
        found: dict[Value, Type] = {}
        for crossing in self.rule.boundary_values(self.op):
            given = [(each, self._seen(each)) for each in crossing.sources]
            outside = {dim for each, type in given if not each.body for dim in _shape(type) or ()}
            for place in crossing.targets:
                value = operand(self.op, place) if not place.body else None
                if value is not None and given:
                    common = given[0][1]
                    for _, other in given[1:]:
                        common = self._common(common, other)
                    found[value] = self._handed(common, place, outside, self._hidden(crossing, place))
        return found

    def _hidden(self, crossing: BoundaryValue, place: RegionPort) -> list[Dim | None]:
        """The extents of a result along the axes that bodies do not see: a batch, the iterations, or both in this order."""
        shapes = [
            (_shape(self.type_of(value)), each)
            for crossing in self.rule.boundary_values(self.op)
            for each in crossing.sources
            if not each.body and len(each.hidden_axes) > 1 and (value := operand(self.op, each)) is not None
        ]
        batch = next((shape[each.hidden_axes[0]] for shape, each in shapes if shape is not None), None)
        if crossing.is_loop_state or len(place.hidden_axes) != 1:
            return [batch, self._length()][: len(place.hidden_axes)]
        return [self._length()]

    def _length(self) -> Dim | None:
        """The number of iterations."""
        return self.rule.length(self.op, lambda value: _shape(self.type_of(value)))

    def _is_captured(self, place: RegionPort) -> bool:
        return place.slot.index >= len(self.op.bodies[place.body].inputs) - self.op.captured

    def _declared(self, value: Value) -> Type:
        """The declared type without names of dimensions: the next iteration may have others."""
        return without_names(self.declared.get(value, NOTHING), self.names)

    def _seen(self, place: RegionPort) -> Type:
        """The type of an operand as a body sees it."""
        value = operand(self.op, place)
        type = NOTHING if value is None else self.type_of(value)
        if not isinstance(type, TensorType) or type.shape is None or not place.hidden_axes:
            return type
        return TensorType(
            type.dtype, tuple(dim for axis, dim in enumerate(type.shape) if axis not in place.hidden_axes)
        )

    def _begun(self, declared: Type, initial: Type) -> Type:
        """The type that an input begins with. Numbers that a body declares hold where nothing is known of what it is given."""
        if not isinstance(initial, TensorType) or initial.shape is None:
            return declared if initial == NOTHING or _shape(declared) is not None else initial
        if not isinstance(declared, TensorType) or declared.shape is None:
            return initial
        if len(declared.shape) != len(initial.shape):
            return TensorType(initial.dtype, None)
        pairs = zip(declared.shape, initial.shape, strict=True)
        return TensorType(initial.dtype, tuple(self._first(said, given) for said, given in pairs))

    def _first(self, said: Dim, given: Dim) -> Dim:
        """The extent that an input begins with; unknown if another number is declared than is given."""
        if isinstance(said, int) and isinstance(given, int) and said != given:
            return self.names.fresh()
        return given if _knowledge(given) else said

    def _common(self, one: Type, other: Type) -> Type:
        """The type of a value that has one of two types.

        Raises:
            ModelError: the element types differ.
        """
        if not isinstance(one, TensorType) or not isinstance(other, TensorType):
            return one if one == other else NOTHING
        if one.dtype is not other.dtype:
            what = f"mismatched tensor element type: {one.dtype} vs {other.dtype}"
            raise ModelError(what, where=describe(self.op), hint=HINT)
        if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
            return TensorType(one.dtype, None)
        pairs = zip(one.shape, other.shape, strict=True)
        return TensorType(one.dtype, tuple(a if a == b else self.names.fresh() for a, b in pairs))

    def _handed(self, inner: Type, place: RegionPort, outside: set[Dim], hidden: Sequence[Dim | None]) -> Type:
        """The type of a result that bodies see as `inner`. Extents that only a body knows get other names."""
        if not isinstance(inner, TensorType):
            return NOTHING if place.hidden_axes else inner
        if inner.shape is None:
            return inner
        dims = [dim if dim in outside or _knowledge(dim) else self.names.fresh() for dim in inner.shape]
        for axis, dim in zip(place.hidden_axes, hidden, strict=True):
            dims.insert(axis, self.names.fresh() if dim is None else dim)
        return TensorType(inner.dtype, tuple(dims))


def _shape(type: Type) -> tuple[Dim, ...] | None:
    return type.shape if isinstance(type, TensorType) else None


def _knowledge(dim: Dim) -> int:
    """How much is known of an extent: nothing, how it follows from extents of the model's inputs, the number."""
    return 2 if isinstance(dim, int) else 0 if any(map(_LOCAL.fullmatch, Extent.of(dim).names)) else 1


def _covers(type: TensorType, other: TensorType) -> bool:
    """Whether a type says no more than another one."""
    if type.shape is None or other.shape is None:
        return type.shape is None
    return all(_knowledge(a) <= _knowledge(b) for a, b in zip(type.shape, other.shape, strict=True))


__all__ = ["Boundary"]
