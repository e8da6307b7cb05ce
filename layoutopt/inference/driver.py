"""Type inference on a graph: op by op, in topological order, through bodies.

For each op, shape functions (`ops.shape_functions`) and onnx's inference for the one node infer the types of its results from
those of its operands (`op_inference`). Declared shapes are hints. onnx's results are memoised by the node and the types of its
operands, so that a second run infers only ops whose operands have changed.

The inputs of a body have the types of the op's operands, without the scan axes; the results of the op have the types of the
body's results. The state of a loop may have another shape in every iteration. It keeps its initial shape if no iteration
changes it: a type is assumed, the body is inferred with it, and the assumption is widened until the body preserves it.

    state (1,8,4,4) -> Conv, Relu -> (1,8,4,4)       the shape in every iteration, and of the result
    state (1,8) -> Concat(x) -> (2,8)                (?,8) -> Concat(x) -> (?,8)

Data propagation, in the sense of ONNX, is the inference of the elements of small tensors, from which shapes are computed.
"""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial, reduce
from math import prod
from types import MappingProxyType

from layoutopt.errors import ModelError
from layoutopt.formats import UNKNOWN, Dim, Extent, Shape, is_unknown
from layoutopt.inference.op_inference import (
    HINT,
    TYPE_ERROR,
    UNTYPED,
    InferredType,
    ValueType,
    as_inferred,
    contradicts,
    infer_elements,
    infer_results,
    merged_type,
    small_array,
    without_names,
    without_shape,
)
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes
from layoutopt.ir.types import DType, Op, TensorType, Value
from layoutopt.onnx_io.messages import display_name
from layoutopt.onnx_io.schema import model_error
from layoutopt.onnx_io.vocabulary import DimNames
from layoutopt.ops.region_ops import Link, boundary, trip_count
from layoutopt.ops.shape_functions import MAX_ELEMENTS, Elements, Node, Operand, array_of, as_elements

_LOCAL = re.compile(rf"{re.escape(UNKNOWN)}\d+")  # a dimension of unknown size; those of inputs have other names
_COUNTERS = (TensorType(DType.INT64, ()), TensorType(DType.BOOL, ()))  # the first inputs of the body of a Loop


def names_of(values: Iterable[Value]) -> frozenset[str]:
    """The names of dimensions in the shapes of some values."""
    dims = (dim for value in values for dim in value.shape or ())
    return frozenset(name for dim in dims if isinstance(dim, Extent) for name in dim.names)


def shape_of(type: ValueType) -> Shape | None:
    """The shape of a tensor type, if its rank is known."""
    return type.shape if isinstance(type, TensorType) else None


def _precision(dim: Dim) -> int:
    """The precision of an extent: 0 if it is unknown, 1 for an expression in extents of the model's inputs, 2 for a number."""
    return 2 if isinstance(dim, int) else 0 if any(map(_LOCAL.fullmatch, dim.names)) else 1


def _covers(type: TensorType, other: TensorType) -> bool:
    """Whether every tensor of type `other` is of type `type`."""
    if type.shape is None or other.shape is None:
        return type.shape is None
    return all(_precision(a) <= _precision(b) for a, b in zip(type.shape, other.shape, strict=True))


_MAX_ATTEMPTS = 8  # widenings of the type of a loop state before its shape is dropped
_MAX_VISITS = 1000
"""Visits of bodies in one inference after which shapes of loop states are dropped; nested loops multiply visits."""
_MAX_CONSTANT_ELEMENTS = 1024  # of a constant whose elements are read
_MAX_BOUND = 1 << 20  # no larger lower bound of a dimension is computed
_PROPAGATED_TYPES = frozenset(
    (DType.INT64, DType.INT32, DType.BOOL, DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16)
)
"""Element types of small tensors in data propagation; floating-point ones because shapes are scaled by them."""
_NO_BOUNDS: Mapping[str, int] = MappingProxyType({})


class Inference:
    """The types of the values of a graph and its bodies, and the elements of small tensors.

    Args:
        graph: a main graph; only `commit` changes its values.
        names: generates names of unknown dimensions.
        declared: the declared types to merge with the inferred ones.
        inputs: types of the graph's inputs that replace their own.
        bounds: lower bounds of dimensions of inputs, where these are above 1.
        propagates_data: whether to infer the elements of small tensors.

    Attributes:
        contradiction: the first contradiction between shapes; the types behind it are those that follow from element types.
        misdeclared: the results of If whose declared shapes contradict those of a branch.

    Raises:
        ModelError: element types contradict each other.
    """

    def __init__(
        self,
        graph: Graph,
        names: DimNames,
        declared: Mapping[Value, ValueType],
        *,
        inputs: Mapping[Value, ValueType] = MappingProxyType({}),
        bounds: Mapping[str, int] = _NO_BOUNDS,
        propagates_data: bool = True,
    ) -> None:
        self.graph = graph
        self.contradiction: ModelError | None = None
        self.misdeclared = set[Value]()
        self._names = names
        self._known = names_of(graph.inputs)
        self._declared = declared
        self._bounds = bounds
        self._propagates_data = propagates_data
        self._operands: dict[Value, Operand] = {}
        self._aliases: dict[Value, Value | None] = {}  # of captured values
        self._visits = 0
        for value in graph.inputs:
            self._set(value, inputs.get(value, value.type))
        self._walk(graph)

    def operand(self, value: Value) -> Operand | None:
        """A value as an operand of type inference; None for an absent operand that a body captures."""
        while value in self._aliases:
            outer = self._aliases[value]
            if outer is None:
                return None
            value = outer
        found = self._operands.get(value)
        if found is None:
            found = Operand(self._declared.get(value, UNTYPED)) if value.data is None else _constant(value)
            self._operands[value] = found
        return found

    def type_of(self, value: Value) -> ValueType:
        """The type of a value."""
        found = self.operand(value)
        return UNTYPED if found is None else found.type

    def lower_bounds(self) -> dict[str, int]:
        """Least sizes of input dimensions such that every tensor that the results depend on has elements.

        Extents of several dimensions, and of unknown ones, are ignored; sizes of 1 are left out.
        """
        bounds: dict[str, int] = {}
        needed = set(self.graph.outputs)
        for op in reversed(self.graph.ops):
            if needed.isdisjoint(op.outputs):
                continue
            needed.update(op.present_inputs)
            types = [*map(self.type_of, op.present_outputs)]
            shapes = [type.shape for type in types if isinstance(type, TensorType) and type.shape is not None]
            for dim in {dim for shape in shapes for dim in shape if isinstance(dim, Extent)}:
                if len(dim.names) == 1 and all(coefficient > 0 for factors, coefficient in dim.terms if factors):
                    (name,) = dim.names
                    bounds[name] = max(bounds.get(name, 1), _smallest_nonempty_size(dim, name))
        return {name: bound for name, bound in bounds.items() if bound > 1 and not is_unknown(name)}

    def commit(self) -> None:
        """Set the inferred types of the values of the graph and its bodies, and the elements of vectors and scalars."""
        given = set(self.graph.inputs)
        for graph in self.graph.regions():
            for value in graph.values:
                if value.data is not None or value in given:
                    continue
                found = self.operand(value)
                assert found is not None
                if found.type != UNTYPED and isinstance(found.type, TensorType | type(value.type)):
                    value.give_type(found.type)
                elements = found.symbolic_elements if value not in self._aliases else None
                is_scalar_or_vector = elements is not None and elements.ndim < 2
                value.elements = _as_dims(elements) if elements is not None and is_scalar_or_vector else None

    # --- the walk ------------------------------------------------------------------------------------------------

    def _walk(self, graph: Graph) -> None:
        for op in graph.ops:
            links = boundary(op)
            if links is not None:
                self._enter_bodies(op, links)
            elif op.bodies:
                self._walk_bodies(op)
            else:
                self._infer(op)

    def _infer(self, op: Op) -> None:
        """Infer an op without bodies."""
        node = Node(
            op.op_type,
            op.domain,
            op.version,
            dict(op.attributes),
            [None if value is None else self.operand(value) for value in op.inputs],
            tuple(value is not None for value in op.outputs),
            self._bounds,
        )
        try:
            types, fault = infer_results(node)
        except TYPE_ERROR as error:  # an operand has a type that the op does not take
            raise model_error(error, display_name(op)) from error
        if fault is not None:
            self._record(model_error(fault, display_name(op)))
        self._set_types(op, types)
        if self._propagates_data:
            self._set_elements(op, node)

    def _set_elements(self, op: Op, node: Node) -> None:
        """Set the elements of small results of a standard operator."""
        sizes = [self._propagated_shape(value) for value in op.outputs]
        if op.domain or not any(size is not None for size in sizes):
            return
        for value, size, elements in zip(op.outputs, sizes, infer_elements(node), strict=True):
            if value is not None and size is not None and elements is not None and elements.size == prod(size):
                self._set(value, self.type_of(value), elements.reshape(size))

    def _propagated_shape(self, value: Value | None) -> tuple[int, ...] | None:
        """The shape of a result that takes part in data propagation; None for other results."""
        type = UNTYPED if value is None else self.type_of(value)
        if not isinstance(type, TensorType) or type.shape is None or type.dtype not in _PROPAGATED_TYPES:
            return None
        sizes = tuple(dim for dim in type.shape if isinstance(dim, int))
        return sizes if len(sizes) == len(type.shape) and prod(sizes) <= MAX_ELEMENTS else None

    def _set_types(self, op: Op, found: Sequence[InferredType]) -> None:
        """Set the types of the outputs of an op."""
        for value, type in zip(op.outputs, found, strict=True):
            if value is not None:
                declared = self._declared.get(value, UNTYPED)
                self._set(value, merged_type(type, declared, self._names, self._known, display_name(op)))

    def _record(self, contradiction: ModelError) -> None:
        self.contradiction = self.contradiction or contradiction

    def _set(self, value: Value, type: ValueType, elements: Elements | None = None) -> None:
        constant = array_of(elements, type.dtype.numpy) if isinstance(type, TensorType) else None
        self._operands[value] = Operand(type, elements, constant)

    # --- bodies --------------------------------------------------------------------------------------------------

    def _capture(self, op: Op) -> None:
        """Make the captured inputs of bodies aliases of the outer values."""
        for body in op.bodies.values():
            self._aliases.update(zip(op.captured_inputs(body), op.inputs[op.uncaptured_input_count :], strict=True))

    def _enter_bodies(self, op: Op, links: Sequence[Link]) -> None:
        """Infer the bodies of an op, and again with wider types of the loop states until the bodies preserve them.

        This is a fixed-point iteration: an initial type that an iteration preserves holds in all iterations.
        """
        self._capture(op)
        assumed = self._body_input_types(op, links)
        states = [link for link in links if link.is_state]
        for attempt in range(_MAX_ATTEMPTS + 1):
            if attempt == _MAX_ATTEMPTS or self._visits > _MAX_VISITS:
                assumed |= {value: without_shape(assumed[value]) for link in states for value in link.inputs}
            self._visits += 1
            for value, type in assumed.items():
                self._set(value, type)
            for body in op.bodies.values():
                self._walk(body)
            wider = self._widened_states(op, states, assumed)
            if not wider:
                break
            assumed |= wider
        outputs = {link.output: self._output_type(op, link) for link in links if link.output is not None}
        self._set_types(
            op, [None if value is None else as_inferred(outputs.get(value, UNTYPED)) for value in op.outputs]
        )

    def _body_input_types(self, op: Op, links: Sequence[Link]) -> dict[Value, ValueType]:
        """The initial types of the inputs of bodies, without captured values."""
        found: dict[Value, ValueType] = {}
        for number, link in enumerate(links):
            given = UNTYPED if link.operand is None else self._inner_type(link, link.operand)
            for value in link.inputs:
                if value in self._aliases:
                    continue
                declared, where = self._declared.get(value, UNTYPED), display_name(op)
                found[value] = merged_type(as_inferred(given), declared, self._names, self._known, where)
                if link.operand is None and found[value] == UNTYPED:
                    found[value] = _COUNTERS[number]
        return found

    def _widened_states(
        self, op: Op, states: Sequence[Link], assumed: Mapping[Value, ValueType]
    ) -> dict[Value, ValueType]:
        """The widened types of the loop states that the body does not preserve."""
        found: dict[Value, ValueType] = {}
        for link in states:
            (value,), (result,) = link.inputs, link.results
            type = assumed[value]
            wider = self._common(op, type, self.type_of(result))
            if isinstance(type, TensorType) and isinstance(wider, TensorType) and not _covers(type, wider):
                found[value] = wider
        return found

    def _output_type(self, op: Op, link: Link) -> ValueType:
        """The type of an output. A loop may have no iteration, so the initial state is among the possible results.

        Extents that are defined only in the body get new names. A declared shape may be that of one branch of an If, whose
        results have other shapes; ranks often differ in models that are right.
        """
        if link.output is not None:
            self.misdeclared.discard(link.output)
        operands = () if link.operand is None else (link.operand,)
        types = [self.type_of(each) for each in (*operands, *link.results)]
        common = reduce(partial(self._common, op), types)
        if not isinstance(common, TensorType):
            return common if link.scan_axis is None else UNTYPED
        if common.shape is None:
            return common
        if link.output is not None and link.operand is None and link.scan_axis is None:
            declared = shape_of(self._declared.get(link.output, UNTYPED))
            if any(contradicts(declared, shape_of(each), self._known) for each in types):
                self.misdeclared.add(link.output)
        outside = {dim for each in operands for dim in shape_of(self.type_of(each)) or ()}
        dims = [dim if dim in outside or _precision(dim) else self._names.fresh() for dim in common.shape]
        if link.scan_axis is not None:
            count = trip_count(op, lambda value: shape_of(self.type_of(value)))
            dims.insert(link.scan_axis % (len(dims) + 1), self._names.fresh() if count is None else count)
        return TensorType(common.dtype, tuple(dims))

    def _inner_type(self, link: Link, value: Value) -> ValueType:
        """The type of an operand without the scan axis, which the body's operand lacks."""
        type = self.type_of(value)
        shape = shape_of(type)
        if not isinstance(type, TensorType) or shape is None:
            return type
        kept = (dim for axis, dim in enumerate(shape) if link.scan_axis not in (axis, axis - len(shape)))
        return TensorType(type.dtype, tuple(kept))

    def _common(self, op: Op, one: ValueType, other: ValueType) -> ValueType:
        """The most precise type that covers two types.

        Raises:
            ModelError: the element types differ.
        """
        if not isinstance(one, TensorType) or not isinstance(other, TensorType):
            return one if one == other else UNTYPED
        if one.dtype is not other.dtype:
            what = f"mismatched tensor element type: {one.dtype} vs {other.dtype}"
            raise ModelError(what, where=display_name(op), hint=HINT)
        if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
            return TensorType(one.dtype, None)
        pairs = zip(one.shape, other.shape, strict=True)
        return TensorType(one.dtype, tuple(a if a == b else self._names.fresh() for a, b in pairs))

    def _walk_bodies(self, op: Op) -> None:
        """Infer the bodies of an op without a region rule, such as SequenceMap, whose results have their declared types."""
        self._capture(op)
        for body in op.bodies.values():
            for value in body.inputs[: len(body.inputs) - op.captured]:
                self._set(value, without_names(self._declared.get(value, UNTYPED), self._names))
            self._walk(body)
        self._set_types(op, [None] * len(op.outputs))


def infer(
    graph: Graph,
    names: DimNames,
    declared: Mapping[Value, ValueType],
    *,
    inputs: Mapping[Value, ValueType] = MappingProxyType({}),
) -> Inference:
    """Infer the types of a graph.

    A contradiction that only data propagation finds is none: onnx and runtimes propagate the elements of fewer tensors.

    Args:
        graph, names, declared, inputs: as for `Inference`.

    Raises:
        ModelError: element types contradict each other.
    """
    make = partial(Inference, graph, names, declared, inputs=inputs)
    found = make()
    if bounds := found.lower_bounds():
        found = make(bounds=bounds)
    if found.contradiction is not None:
        found.contradiction = make(propagates_data=False).contradiction
    return found


def _constant(value: Value) -> Operand:
    """A constant, with its elements if it is small."""
    shape = value.static_shape
    if shape is None or value.data is None or prod(shape) > _MAX_CONSTANT_ELEMENTS or value.dtype is DType.STRING:
        return Operand(value.type)
    array = small_array(value.data.numpy())
    if array is None:
        return Operand(value.type)
    return Operand(value.type, as_elements(array) if array.size <= MAX_ELEMENTS else None, array)


def _as_dims(elements: Elements) -> tuple[Dim | None, ...]:
    return tuple(None if each is None else each.dim for each in elements.flat)


def _smallest_nonempty_size(dim: Extent, name: str) -> int:
    """The least size of dimension `name` at which the extent `dim`, which grows with it, is not 0.

    1 if that size is above half of `_MAX_BOUND`.
    """
    high = 1
    while (dim.at({name: high}) or 0) < 1 and high < _MAX_BOUND:
        high *= 2
    return bisect_left(range(high), 1, lo=1, key=lambda size: dim.at({name: size}) or 0) if high < _MAX_BOUND else 1


def evaluate_extents(graph: Graph, sizes: Sizes) -> Sizes:
    """The sizes with those of the unknown dimensions whose value follows from the sizes of the inputs at every point.

    A point at which the shapes of the model contradict each other is ignored.
    """
    shapes = {value: value.shape for each in graph.regions() for value in each.values if value.shape is not None}
    named = {dim for value in graph.inputs for dim in value.shape or ()}
    unknown = {dim for shape in shapes.values() for dim in shape if is_unknown(dim) and dim not in named}
    if not unknown:
        return sizes
    return sizes.with_inferred([_found_at(graph, point, shapes, unknown) for point in (*sizes.points, *sizes.guards)])


def _found_at(
    graph: Graph, point: Mapping[str, int], shapes: Mapping[Value, Shape], unknown: Collection[Dim]
) -> dict[str, int]:
    """The sizes of unknown dimensions at one point, inferred from the inputs alone, not from other declared shapes."""
    inputs: dict[Value, ValueType] = {}
    for value in graph.inputs:
        if isinstance(value.type, TensorType) and value.shape is not None:
            inputs[value] = TensorType(value.type.dtype, (Extent.of(dim).at(point) or 1 for dim in value.shape))
    inferred = infer(graph, DimNames(), {}, inputs=inputs)
    if inferred.contradiction is not None:
        return {}
    found: dict[str, int] = {}
    for value, shape in shapes.items():
        type = inferred.type_of(value)
        if isinstance(type, TensorType) and type.shape is not None and len(type.shape) == len(shape):
            pairs = zip(shape, type.shape, strict=True)
            found |= {str(dim): size for dim, size in pairs if dim in unknown and isinstance(size, int)}
    return found
