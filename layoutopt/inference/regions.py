"""How types cross into the bodies of ops and out of them.

A body reads what its op is given, without the axes that it does not see; the op hands out what its bodies leave. What a loop
carries on may have another shape in every iteration, which onnx's inference takes for granted. Here it keeps the shape that
it begins with where no iteration changes it; see `symbolic.walk` for the induction.

    state (1,8,4,4) -> Conv, Relu -> (1,8,4,4)       it has that shape in every iteration, and afterwards
    state (1,8) -> Concat(x) -> (2,8)                (?,8) -> Concat(x) -> (?,8)
"""

import re
from collections.abc import Mapping
from typing import TypeAlias

from layoutopt.formats import UNKNOWN, Dim, Extent
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, OpaqueType, TensorType, Value
from layoutopt.onnx_io.converter.vocabulary import DimNames
from layoutopt.ops.region_ops import BoundaryValue, ControlFlow, RegionPort, operand, region_rule, region_tree

Type: TypeAlias = TensorType | OpaqueType
Types: TypeAlias = Mapping[str, Type]

_LOCAL = re.compile(
    rf"{re.escape(UNKNOWN)}\d+"
)  # a dimension that nothing is known of; those of inputs have other names


class Crossings:
    """The boundaries of the bodies in a graph."""

    def __init__(self, graph: Graph, names: Mapping[Value, str], fresh: DimNames) -> None:
        """Go by the names that values have in ONNX; unknown dimensions get fresh ones."""
        self._names = names
        self._fresh = fresh
        self._ops: dict[str, tuple[Op, ControlFlow]] = {}
        for op in (op for each in region_tree(graph) for op in each.ops):
            rule = region_rule(op)
            first = next((names[value] for value in op.outputs if value is not None), "")
            if rule is not None and first:
                self._ops[first] = op, rule

    def enter(self, node: str, types: Types) -> dict[str, Type]:
        """The types that the inputs of bodies have at first; what stands for outer values is known anyway."""
        found: dict[str, Type] = {}
        for op, crossing in self._crossings(node):
            given = next((self._seen(op, each, types) for each in crossing.sources if not each.body), None)
            for place in crossing.targets:
                value = operand(op, place) if place.body else None
                if value is not None and not _is_captured(op, place):
                    name = self._names[value]
                    known = self._numbered(types.get(name, value.type))
                    found[name] = known if given is None else self._begun(known, given)
        return found

    def widened(self, node: str, types: Types) -> dict[str, Type]:
        """What is carried on and does not keep its type: what it has in common before and after an iteration."""
        found: dict[str, Type] = {}
        for op, crossing in self._crossings(node):
            if not crossing.is_loop_state:
                continue
            left = next(self._seen(op, each, types) for each in crossing.sources if each.body)
            states = (operand(op, each) for each in crossing.targets if each.body)
            for name in (self._names[value] for value in states if value is not None):
                assumed = types.get(name)
                if isinstance(assumed, TensorType) and not _covers(assumed, wider := self._common(assumed, left)):
                    found[name] = wider
        return found

    def leave(self, node: str, types: Types) -> dict[str, Type]:
        """What bodies leave. A loop may run not at all, so that what goes in comes out."""
        found: dict[str, Type] = {}
        for op, crossing in self._crossings(node):
            length = self._length(op, types)
            given = [(each, self._seen(op, each, types)) for each in crossing.sources]
            common = given[0][1] if given else None
            for _, other in given[1:]:
                common = None if common is None else self._common(common, other)
            outside = {dim for each, type in given if not each.body for dim in _dims(type)}
            for place in crossing.targets:
                value = operand(op, place) if not place.body else None
                if value is not None:
                    known = self._numbered(types.get(self._names[value], value.type))
                    found[self._names[value]] = (
                        known if common is None else self._handed(place, common, known, outside, length)
                    )
        return found

    def _crossings(self, node: str) -> list[tuple[Op, BoundaryValue]]:
        op, rule = self._ops.get(node, (None, None))
        return [] if op is None or rule is None else [(op, crossing) for crossing in rule.boundary_values(op)]

    def _seen(self, op: Op, place: RegionPort, types: Types) -> TensorType | None:
        """The type of an operand as a body sees it; None if it is no tensor, or not even that is known."""
        value = operand(op, place)
        type = None if value is None else types.get(self._names[value], value.type)
        if not isinstance(type, TensorType):
            return None
        if type.shape is None or not place.hidden_axes:
            return type
        return TensorType(
            type.dtype, tuple(dim for axis, dim in enumerate(type.shape) if axis not in place.hidden_axes)
        )

    def _handed(self, place: RegionPort, inner: TensorType, known: Type, outside: set[Dim], length: Dim | None) -> Type:
        """The type of a result that bodies see as `inner`. Extents that only a body knows get other names."""
        if inner.shape is None:
            return known if isinstance(known, TensorType) else inner
        dims = [dim if dim in outside or _knowledge(dim) else self._fresh.fresh() for dim in inner.shape]
        for axis in place.hidden_axes:
            dims.insert(axis, self._fresh.fresh() if length is None or len(place.hidden_axes) > 1 else length)
        return _merged(known, TensorType(inner.dtype, tuple(dims)))

    def _length(self, op: Op, types: Types) -> Dim | None:
        """The extent of the axis along which results of iterations are put together, by what is known of values now."""

        def shape_of(value: Value) -> tuple[Dim, ...] | None:
            type = types.get(self._names[value], value.type)
            return type.shape if isinstance(type, TensorType) else None

        rule = region_rule(op)
        return None if rule is None else rule.length(op, shape_of)

    def _begun(self, declared: Type, initial: TensorType) -> Type:
        """The type that an input begins with. Numbers that a body declares hold where nothing is known of what it is given."""
        if initial.shape is None or not isinstance(declared, TensorType) or declared.shape is None:
            return declared if isinstance(declared, TensorType) and declared.shape is not None else initial
        if len(declared.shape) != len(initial.shape):
            return TensorType(initial.dtype, None)
        pairs = zip(declared.shape, initial.shape, strict=True)
        return TensorType(initial.dtype, tuple(self._first(said, given) for said, given in pairs))

    def _first(self, said: Dim, given: Dim) -> Dim:
        """The extent that an input begins with: one that is said and another one that is given come to nothing known."""
        if isinstance(said, int) and isinstance(given, int) and said != given:
            return self._fresh.fresh()
        return given if _knowledge(given) else said

    def _numbered(self, type: Type) -> Type:
        """A type without the names that a model declares: the next iteration may have others."""
        if not isinstance(type, TensorType) or type.shape is None:
            return type
        return TensorType(type.dtype, tuple(dim if isinstance(dim, int) else self._fresh.fresh() for dim in type.shape))

    def _common(self, one: TensorType, other: TensorType | None) -> TensorType:
        """What two tensors of one element type have in common."""
        if other is None or one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
            return TensorType(one.dtype, None)
        pairs = zip(one.shape, other.shape, strict=True)
        return TensorType(one.dtype, tuple(a if a == b else self._fresh.fresh() for a, b in pairs))


def _is_captured(op: Op, place: RegionPort) -> bool:
    return place.slot.index >= len(op.bodies[place.body].inputs) - op.captured


def _dims(type: TensorType | None) -> tuple[Dim, ...]:
    return () if type is None or type.shape is None else type.shape


def _knowledge(dim: Dim) -> int:
    """How much is known of an extent: nothing, how it follows from extents of the model's inputs, the number."""
    return 2 if isinstance(dim, int) else 0 if any(map(_LOCAL.fullmatch, Extent.of(dim).names)) else 1


def _covers(type: TensorType, other: TensorType) -> bool:
    """Whether a type says no more than another one."""
    if type.shape is None or other.shape is None:
        return type.shape is None
    return all(_knowledge(a) <= _knowledge(b) for a, b in zip(type.shape, other.shape, strict=True))


def _merged(known: Type, found: TensorType) -> Type:
    """What is known of a tensor of which both are true."""
    if not isinstance(known, TensorType) or known.shape is None:
        return found
    if found.shape is None or len(found.shape) != len(known.shape) or found.dtype is not known.dtype:
        return known
    pairs = zip(known.shape, found.shape, strict=True)
    return TensorType(known.dtype, tuple(b if _knowledge(b) > _knowledge(a) else a for a, b in pairs))
