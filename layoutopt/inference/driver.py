"""Type inference on a graph: op by op, in topological order, through bodies and calls of functions.

For each op, shape functions (`ops.shape_functions`) and onnx's inference for the one node find its results' types from those
of its operands (`one_op`), which are compared with what is declared (`merge`). `regions` hands types into bodies and out; a
call is inferred as the body of its function. An op keeps what was found, with the operands that it was found for, so that a
second run infers only what has changed.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from types import MappingProxyType

from layoutopt.errors import ModelError
from layoutopt.formats import Dim, Extent, is_unknown
from layoutopt.inference.bodied_node import infer_bodied_node
from layoutopt.inference.calls import Callee, Callees, bound
from layoutopt.inference.merge import NOTHING, Type, describe, merged, without_names
from layoutopt.inference.one_node import MISTYPED, REFUSALS, Found, as_found, small_array
from layoutopt.inference.one_op import Record, infer_elements, infer_results
from layoutopt.inference.regions import Boundary
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Attribute, DType, Op, TensorType, Value
from layoutopt.onnx_io.converter.inline_limits import MAX_INFERRED_OPS
from layoutopt.onnx_io.converter.vocabulary import DimNames
from layoutopt.onnx_io.onnx_messages import model_error
from layoutopt.ops.region_ops import ControlFlow, region_rule
from layoutopt.ops.shape_functions import MAX_ELEMENTS, Elements, Node, Operand, array_of, as_elements

_ATTEMPTS = 8  # at an induction; in each, an extent less is known of the state of a loop
_VISITS = 1000  # of bodies; past that nothing is assumed, as loops in loops multiply
_DEPTH = 100  # of calls in calls
_MOST_ELEMENTS = 1024  # of a constant that is looked into
_LARGE = 1 << 20  # a dimension that would have to be larger is none that a bound is sought for
_FOLLOWED = frozenset(
    (DType.INT64, DType.INT32, DType.BOOL, DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16)
)
"""Element types of small tensors whose elements are followed; floating-point ones because shapes are scaled by them."""
_NOWHERE: Mapping[str, int] = MappingProxyType({})


class Inference:
    """The types of the values of a graph, of its bodies, and the elements of small integer tensors.

    Args:
        graph: a main graph, which is not changed.
        names: for unknown dimensions.
        declared: the types that values are declared to have, as far as they count.
        inputs: types of the graph's inputs in the place of their own.
        bounds: lower bounds of dimensions of inputs, where these are above 1.
        follows_elements: whether to follow the elements of small tensors.
        is_lenient: whether shapes that contradict each other are ignored.
        keeps_records: whether ops keep what is found for them.
    """

    def __init__(
        self,
        graph: Graph,
        names: DimNames,
        declared: Mapping[Value, Type],
        *,
        inputs: Mapping[Value, Type] = MappingProxyType({}),
        bounds: Mapping[str, int] = _NOWHERE,
        follows_elements: bool = True,
        is_lenient: bool = False,
        keeps_records: bool = True,
    ) -> None:
        self.graph = graph
        self._names = names
        self._declared = declared
        self._bounds = bounds
        self._follows_elements = follows_elements
        self._is_lenient = is_lenient
        self._keeps_records = keeps_records
        self._callees = Callees(graph)
        self._operands: dict[Value, Operand] = {}
        self._aliases: dict[Value, Value | None] = {}
        self._attributes: list[Mapping[str, Attribute]] = []  # of the calls that are being inferred
        self._budget = 0
        self._visits = 0
        for value in graph.inputs:
            self._set(value, inputs.get(value, value.type))
        self._walk(graph)

    def operand(self, value: Value) -> Operand | None:
        """A value as an operand of type inference; None for an absent argument of a call."""
        while value in self._aliases:
            outer = self._aliases[value]
            if outer is None:
                return None
            value = outer
        found = self._operands.get(value)
        if found is None:
            found = Operand(self._declared.get(value, NOTHING)) if value.data is None else _constant(value)
            self._operands[value] = found
        return found

    def type_of(self, value: Value) -> Type:
        """The type of a value."""
        found = self.operand(value)
        return NOTHING if found is None else found.type

    def lower_bounds(self) -> dict[str, int]:
        """Sizes that dimensions of inputs need for every tensor that the results depend on to have elements."""
        bounds: dict[str, int] = {}
        needed = set(self.graph.outputs)
        for op in reversed(self.graph.ops):
            if needed.isdisjoint(op.outputs):
                continue
            needed.update(value for value in op.inputs if value is not None)
            types = [self.type_of(value) for value in op.outputs if value is not None]
            shapes = [type.shape for type in types if isinstance(type, TensorType) and type.shape is not None]
            for dim in {dim for shape in shapes for dim in shape if isinstance(dim, Extent)}:
                if len(dim.names) == 1 and all(coefficient > 0 for factors, coefficient in dim.terms if factors):
                    (name,) = dim.names
                    bounds[name] = max(bounds.get(name, 1), _least(dim, name))
        return {name: bound for name, bound in bounds.items() if bound > 1 and not is_unknown(name)}

    def commit(self) -> None:
        """Give the values of the graph the types that were found, and the elements of lists and numbers."""
        given = set(self.graph.inputs)
        for graph in self.graph.regions():
            for value in graph.values:
                if value.data is not None or value in given:
                    continue
                found = self.operand(value)
                assert found is not None
                if found.type != NOTHING and isinstance(found.type, TensorType | type(value.type)):
                    value.give_type(found.type)
                is_list = found.elements is not None and found.elements.ndim < 2 and value not in self._aliases
                value.elements = _as_dims(found.elements) if found.elements is not None and is_list else None

    # --- the walk ------------------------------------------------------------------------------------------------

    def _walk(self, graph: Graph) -> None:
        for op in graph.ops:
            rule = region_rule(op)
            callee = self._callees.of(op)
            if rule is not None:
                self._enter_bodies(op, rule)
            elif op.bodies:
                self._infer_with_onnx(op)
            elif callee is not None:
                self._call(op, callee)
            else:
                self._infer(op)

    def _infer(self, op: Op) -> None:
        """Infer an op without bodies that calls no function."""
        node = Node(
            op.op_type,
            op.domain,
            op.version,
            bound(op.attributes, self._attributes[-1]) if self._attributes else dict(op.attributes),
            [None if value is None else self.operand(value) for value in op.inputs],
            tuple(value is not None for value in op.outputs),
            self._bounds,
        )
        record = op.inferred if isinstance(op.inferred, Record) else None
        if record is None or not record.holds_for(node):
            record = Record(node, self._checked(op, lambda: infer_results(node, is_lenient=self._is_lenient)))
            if self._keeps_records and not self._is_lenient:
                op.inferred = record
        elif record.elements is None:
            record.bounded_by(node)
        self._take(op, record.types)
        if self._follows_elements:
            self._follow(op, record)

    def _follow(self, op: Op, record: Record) -> None:
        """Take in the elements of small results."""
        sizes = [self._followed_shape(value) for value in op.outputs]
        if op.domain or not any(size is not None for size in sizes):
            return
        if record.elements is None:
            record.elements = infer_elements(record.node)
        for value, size, elements in zip(op.outputs, sizes, record.elements, strict=True):
            if value is not None and size is not None and elements is not None and elements.size == prod(size):
                self._set(value, self.type_of(value), elements.reshape(size))

    def _followed_shape(self, value: Value | None) -> tuple[int, ...] | None:
        """The shape of a result whose elements are followed; None for others."""
        type = NOTHING if value is None else self.type_of(value)
        if not isinstance(type, TensorType) or type.shape is None or type.dtype not in _FOLLOWED:
            return None
        sizes = tuple(dim for dim in type.shape if isinstance(dim, int))
        return sizes if len(sizes) == len(type.shape) and prod(sizes) <= MAX_ELEMENTS else None

    def _take(self, op: Op, found: Sequence[Found]) -> None:
        """Give the outputs of an op their types."""
        for value, type in zip(op.outputs, found, strict=True):
            if value is not None:
                declared = self._declared.get(value, NOTHING)
                self._set(value, merged(type, declared, self._names, describe(op), is_lenient=self._is_lenient))

    def _set(self, value: Value, type: Type, elements: Elements | None = None) -> None:
        array = array_of(elements, type.dtype.numpy) if isinstance(type, TensorType) else None
        self._operands[value] = Operand(type, elements, array)

    def _checked(self, op: Op, infer: Callable[[], list[Found]]) -> list[Found]:
        """The record of an op; without types if its operands contradict each other and that is ignored.

        Raises:
            ModelError: the operands contradict each other.
        """
        try:
            return infer()
        except REFUSALS as error:
            if self._is_lenient:
                return [None] * len(op.outputs)
            raise model_error(error, describe(op)) from error
        except MISTYPED as error:
            raise model_error(error, describe(op)) from error

    # --- bodies and calls ----------------------------------------------------------------------------------------

    def _capture(self, op: Op) -> None:
        """Give the captured inputs of bodies the types of the outer values."""
        for body in op.bodies.values():
            formals = body.inputs[len(body.inputs) - op.captured :]
            self._aliases.update(zip(formals, op.inputs[op.own_inputs :], strict=True))

    def _enter_bodies(self, op: Op, rule: ControlFlow) -> None:
        """Infer the bodies of an op, again while they do not preserve what was assumed of the state of a loop.

        That is an induction: a type that the first iteration begins with and that an iteration preserves holds in all.
        """
        self._capture(op)
        boundary = Boundary(op, rule, self.type_of, self._declared, self._names)
        assumed = boundary.enter()
        for attempt in range(_ATTEMPTS + 1):
            if attempt == _ATTEMPTS or self._visits > _VISITS:
                assumed |= boundary.without_shapes(assumed)
            self._visits += 1
            for value, type in assumed.items():
                self._set(value, type)
            for body in op.bodies.values():
                self._walk(body)
            wider = boundary.widened(assumed)
            if not wider:
                break
            assumed |= wider
        left = boundary.leave()
        self._take(op, [None if value is None else as_found(left.get(value, NOTHING)) for value in op.outputs])

    def _infer_with_onnx(self, op: Op) -> None:
        """Infer an op whose bodies are not understood, as onnx does."""
        self._capture(op)
        for body in op.bodies.values():
            for value in body.inputs[: len(body.inputs) - op.captured]:
                self._set(value, without_names(self._declared.get(value, NOTHING), self._names))
            self._walk(body)
        types = [None if value is None else self.type_of(value) for value in op.inputs]
        self._take(op, self._checked(op, lambda: infer_bodied_node(op, types, self.graph.opsets)))

    def _call(self, op: Op, callee: Callee) -> None:
        """Infer the body of a function with the operands of a call. A call that expands to too many ops is not inferred."""
        body = callee.graph
        if not self._attributes:
            self._budget = MAX_INFERRED_OPS
        self._budget -= len(body)
        if self._budget < 0 or len(self._attributes) >= _DEPTH:
            self._take(op, [None] * len(op.outputs))
            return
        arguments: list[Value | None] = [*op.inputs, *[None] * len(body.inputs)]
        self._aliases.update(zip(body.inputs, arguments, strict=False))
        given = bound(op.attributes, self._attributes[-1]) if self._attributes else op.attributes
        self._attributes.append({**callee.defaults, **given})
        self._walk(body)
        self._attributes.pop()
        results = [*map(self.operand, body.outputs), *[None] * len(op.outputs)][: len(op.outputs)]
        self._take(op, [None if result is None else as_found(result.type) for result in results])
        for value, result in zip(op.outputs, results, strict=True):
            if value is not None and result is not None and result.elements is not None:
                self._set(value, self.type_of(value), result.elements)


def infer(
    graph: Graph,
    names: DimNames,
    declared: Mapping[Value, Type],
    *,
    inputs: Mapping[Value, Type] = MappingProxyType({}),
    keeps_records: bool = True,
) -> Inference:
    """Infer the types of a graph.

    The elements of small tensors are followed further than onnx and runtimes follow them, so that a contradiction counts only
    if it is there without that as well.

    Args:
        graph, names, declared, inputs, keeps_records: as for `Inference`.

    Raises:
        ModelError: shapes or element types contradict each other.
    """

    def run(*, follows_elements: bool = True, is_lenient: bool = False) -> Inference:
        make = partial(
            Inference,
            graph,
            names,
            declared,
            inputs=inputs,
            follows_elements=follows_elements,
            is_lenient=is_lenient,
            keeps_records=keeps_records and follows_elements,
        )
        found = make()
        bounds = found.lower_bounds()
        return make(bounds=bounds) if bounds else found

    try:
        return run()
    except ModelError:
        run(follows_elements=False)
        return run(is_lenient=True)


def _constant(value: Value) -> Operand:
    """A constant, with its elements if it is small."""
    shape = value.static_shape
    if shape is None or value.data is None or prod(shape) > _MOST_ELEMENTS or value.dtype is DType.STRING:
        return Operand(value.type)
    array = small_array(value.data.numpy())
    if array is None:
        return Operand(value.type)
    return Operand(value.type, as_elements(array) if array.size <= MAX_ELEMENTS else None, array)


def _as_dims(elements: Elements) -> tuple[Dim | None, ...]:
    return tuple(None if each is None else each.dim for each in elements.flat)


def _least(dim: Extent, name: str) -> int:
    """The smallest size of a dimension for which an extent that grows with it is not 0."""
    high = 1
    while (dim.at({name: high}) or 0) < 1 and high < _LARGE:
        high *= 2
    return bisect_left(range(high), 1, lo=1, key=lambda size: dim.at({name: size}) or 0) if high < _LARGE else 1


__all__ = ["Inference", "infer"]
