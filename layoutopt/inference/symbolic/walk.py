"""The walk over a graph, node by node, in which types become more precise."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol, TypeAlias

import onnx
import onnx.checker
import onnx.helper
import onnx.numpy_helper
import onnx.shape_inference
import onnx_ir as ir

from layoutopt.errors import ModelError
from layoutopt.formats import UNKNOWN, Dim, Extent, is_unknown
from layoutopt.inference.symbolic.calls import bound_body, functions_of, inner_names, key_of, opsets_in
from layoutopt.inference.symbolic.elements import MOST, array_of, constant_of, elements_of
from layoutopt.inference.symbolic.node import Dims, Elements, Known, Node, as_elements
from layoutopt.inference.symbolic.shapes import shapes_of
from layoutopt.ir.types import Array, OpaqueType, TensorType
from layoutopt.onnx_io.converter.vocabulary import FROM_IR, TO_IR, DimNames
from layoutopt.onnx_io.reader.lossless import describe, inner_graphs, nodes
from layoutopt.onnx_io.schema import find_schema

Type: TypeAlias = TensorType | OpaqueType

_REFUSALS = (onnx.shape_inference.InferenceError, ValueError, IndexError, RuntimeError)
_GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
_ATTEMPTS = 8  # at an induction; in each, an extent less is known of what a loop carries on
_VISITS = 1000  # of bodies; past that nothing is assumed, as loops in loops multiply
_TOO_LARGE = 1 << 63  # an extent that no file can say, and no kernel computes
_LARGE = 1 << 20  # a dimension that would have to be larger is none that a bound is wanted for
_INTEGERS = {onnx.TensorProto.INT64, onnx.TensorProto.INT32}
_FRACTIONS = {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}


class Boundaries(Protocol):
    """Who knows how types cross into the bodies of nodes, and out of them. Types go by the names of values."""

    def enter(self, node: str, types: Mapping[str, Type]) -> Mapping[str, Type]:
        """The types that the inputs of bodies have at first; what is carried on may not keep them.

        Args:
            node: the first output of a node with bodies; of one that is not understood, nothing is known.
            types: what is known of values around.
        """

    def widened(self, node: str, types: Mapping[str, Type]) -> Mapping[str, Type]:
        """The types of the inputs that the bodies do not keep, as they came out of them; nothing if all are kept."""

    def leave(self, node: str, types: Mapping[str, Type]) -> Mapping[str, Type]:
        """The types of the node's outputs."""


@dataclass(slots=True)
class Refined:
    """What was found out.

    Attributes:
        types: of all values, by name.
        elements: of small integer tensors of rank 0 or 1 that are computed, as dimensions or numbers; None for each
            of which nothing is known.
    """

    types: dict[str, Type]
    elements: dict[str, tuple[Dim | None, ...]] = field(default_factory=dict)


def refine(model: onnx.ModelProto, types: Mapping[str, Type], names: DimNames, boundaries: Boundaries) -> Refined:
    """Walk over the main graph of a model and the bodies in it.

    Args:
        model: what onnx has inferred, with the types that it has found; nodes in topological order, no name twice.
        types: the same types in the graph's vocabulary, those of inputs included.
        names: for dimensions of which nothing is known.
        boundaries: what crosses into bodies and out.

    Raises:
        ModelError: a value is declared in another shape than its op gives it, where onnx has not looked.
    """
    has_bodies = any(attribute.type in _GRAPHS for node in model.graph.node for attribute in node.attribute)
    if not has_bodies and all(_is_static(each) for each in types.values()) and not _is_lenient(model):
        return Refined(dict(types))
    walk = _Walk(model, types, names, {}, boundaries)
    result = walk.run()
    bounds = walk.bounds()
    return _Walk(model, types, names, bounds, boundaries).run() if bounds else result


def _is_lenient(model: onnx.ModelProto) -> bool:
    """Whether onnx has believed what is declared: behind an operator that it does not infer, or does not know.

    In the latter case it takes every complaint for a consequence.
    """
    opsets = opsets_in(model)
    local = {(function.domain, function.name) for function in model.functions}
    kinds = {(node.domain, node.op_type) for node in nodes(model)} - local
    found = (("" if domain == "ai.onnx" else domain, op_type) for domain, op_type in kinds)
    schemas = (find_schema(op_type, domain, opsets.get(domain, 1)) for domain, op_type in found)
    return any(
        schema is None or not (schema.has_type_and_shape_inference_function or schema.has_function)
        for schema in schemas
    )


def _is_static(type: Type) -> bool:
    if not isinstance(type, TensorType):
        return type.text != UNKNOWN
    return type.shape is not None and not any(isinstance(dim, str) for dim in type.shape)


class _Walk:
    def __init__(
        self,
        model: onnx.ModelProto,
        types: Mapping[str, Type],
        names: DimNames,
        bounds: Mapping[str, int],
        boundaries: Boundaries,
    ) -> None:
        """Start with what onnx has found, and with what names of dimensions are never below."""
        self.boundaries = boundaries
        self.visits = 0
        self.imports = list(model.opset_import)
        self.opsets = opsets_in(model)
        self.functions = functions_of(model)
        self.is_lenient = _is_lenient(model)
        self.names = names
        self.known_bounds = bounds
        self.result = Refined(dict(types))
        self.infos: dict[str, onnx.TypeProto] = {}
        self.elements: dict[str, Elements] = {}
        self.constants: dict[str, Array] = {}
        self.tensors: dict[str, onnx.TensorProto] = {}
        self.given: set[str] = set()
        self.graphs = [model.graph]
        for graph in self.graphs:  # it grows by the bodies of every graph
            self.graphs += inner_graphs(graph.node)
            self.infos |= {info.name: info.type for info in (*graph.input, *graph.value_info, *graph.output)}
            for tensor in graph.initializer:
                self._initializer(tensor)
        for name in self.infos:
            self._declare(name)
        self.begun = (dict(self.result.types), dict(self.infos))

    def run(self) -> Refined:
        for proto in self.graphs[0].node:
            self._node(proto)
            if self.is_lenient and not any(attribute.type in _GRAPHS for attribute in proto.attribute):
                self._compare(proto)
        for name, elements in self.elements.items():
            if elements.ndim < 2 and name not in self.given:
                self.result.elements[name] = tuple(None if each is None else each.dim for each in elements.flat)
        return self.result

    def bounds(self) -> dict[str, int]:
        """What the dimensions of inputs have to be for every tensor that the results depend on to have elements."""
        main, bounds = self.graphs[0], dict[str, int]()
        needed = {info.name for info in main.output}
        for proto in reversed(main.node):
            if needed.isdisjoint(proto.output):
                continue
            needed.update(proto.input)
            dims = {dim for name in proto.output for dim in self._dims(name) or () if dim is not None}
            for dim in dims:
                if len(dim.names) == 1 and all(coefficient > 0 for factors, coefficient in dim.terms if factors):
                    (name,) = dim.names
                    bounds[name] = max(bounds.get(name, 1), _least(dim, name))
        return {name: bound for name, bound in bounds.items() if bound > 1 and not is_unknown(name)}

    def _bodies(self, proto: onnx.NodeProto) -> None:
        """Walk over the bodies of a node, again while they do not keep what was assumed of what they carry on.

        That is an induction: what holds of the first iteration, and of the next one if it holds of one, holds of all.
        """
        node = next((name for name in proto.output if name), "")
        assumed = dict(self.boundaries.enter(node, self.result.types))
        for attempt in range(_ATTEMPTS + 1):
            if attempt == _ATTEMPTS or self.visits > _VISITS:
                assumed = {}
            self.visits += 1
            self._forget(proto)
            for name, type in assumed.items():
                self._set(name, type)
            for graph in inner_graphs([proto]):
                for inner in graph.node:
                    self._node(inner)
            wider = self.boundaries.widened(node, self.result.types) if assumed else {}
            if not wider:
                break
            assumed |= wider
        for name, type in self.boundaries.leave(node, self.result.types).items():
            self._set(name, type)

    def _forget(self, proto: onnx.NodeProto) -> None:
        """Go back to what onnx has found of the values in the bodies of a node, however deep."""
        types, infos = self.begun
        graphs = list(inner_graphs([proto]))
        for graph in graphs:  # it grows by the bodies of every graph
            graphs += inner_graphs(graph.node)
            constants = {tensor.name for tensor in graph.initializer}
            names = [*(info.name for info in graph.input), *(name for node in graph.node for name in node.output)]
            for name in (name for name in names if name and name not in constants):
                self.elements.pop(name, None)
                self.constants.pop(name, None)
                self.tensors.pop(name, None)
                self.result.types.pop(name, None)
                self.infos.pop(name, None)
                if name in types:
                    self.result.types[name] = types[name]
                if name in infos:
                    self.infos[name] = infos[name]

    def _set(self, name: str, type: Type) -> None:
        """Let a value have a type that follows from elsewhere."""
        self.result.types[name] = type
        if isinstance(type, TensorType):
            info = onnx.TypeProto()
            info.tensor_type.elem_type = int(TO_IR[type.dtype])
            self.infos[name] = info
            self._declare(name)

    def _initializer(self, tensor: onnx.TensorProto) -> None:
        self.infos[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
        self.tensors[tensor.name] = tensor
        dtype = FROM_IR.get(ir.DataType(tensor.data_type))
        if dtype is not None:
            self.result.types[tensor.name] = TensorType(dtype, tuple(tensor.dims))
        if prod(tensor.dims) <= MOST and tensor.data_type != onnx.TensorProto.STRING:
            self._constant(tensor.name, onnx.numpy_helper.to_array(tensor))

    def _constant(self, name: str, array: Array) -> None:
        self.given.add(name)
        self.constants[name] = array
        elements = as_elements(array)
        if elements is not None:
            self.elements[name] = elements

    def _declare(self, name: str) -> None:
        """Let onnx see the dimensions of a value under the names that they have here."""
        type = self.result.types.get(name)
        if not isinstance(type, TensorType) or type.shape is None:
            return
        if name not in self.infos or not self.infos[name].HasField("tensor_type"):
            return
        info = onnx.TypeProto()
        info.tensor_type.elem_type = self.infos[name].tensor_type.elem_type
        info.tensor_type.shape.SetInParent()
        for dim in type.shape:
            said = info.tensor_type.shape.dim.add()
            if isinstance(dim, int):
                said.dim_value = dim
            else:
                said.dim_param = dim
        self.infos[name] = info

    def _node(self, proto: onnx.NodeProto) -> None:
        if any(attribute.type in _GRAPHS for attribute in proto.attribute):
            self._bodies(proto)
            return
        if (array := constant_of(proto)) is not None:
            self._constant(proto.output[0], array)
            self.tensors[proto.output[0]] = onnx.numpy_helper.from_array(array)
            return
        outputs = [name for name in proto.output if name]
        is_open = not all(_is_static(self.result.types.get(name, OpaqueType(UNKNOWN))) for name in outputs)
        function = self.functions.get(key_of(proto))
        if function is not None:
            if is_open:
                self._call(proto, function)
            return
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        version = self.opsets.get(domain, 1)
        schema = find_schema(proto.op_type, domain, version)
        if schema is None or not (is_open or any(map(self._holds_numbers, outputs))):
            return
        node = self._seen(proto, version)
        if is_open:
            ours = _tried(shapes_of, node) if not domain else [None] * len(proto.output)
            theirs = self._inferred(schema, proto)
            for name, shape in zip(proto.output, ours, strict=True):
                if name:
                    self._refine(name, shape, theirs.get(name))
        if any(map(self._holds_numbers, outputs)) and not domain:
            for name, elements in zip(proto.output, _tried(elements_of, node), strict=True):
                if name and elements is not None and self._holds_numbers(name):
                    self._hold(name, elements)

    def _call(self, proto: onnx.NodeProto, function: onnx.FunctionProto) -> None:
        """Walk over the body of a function, at its own opsets, with the operands of a call."""
        body = bound_body(function, proto)
        for name in inner_names(body, proto):
            for known in (self.elements, self.constants, self.tensors, self.result.types, self.infos):
                known.pop(name, None)  # an earlier walk over the same body may have assumed more
        imports, opsets = self.imports, self.opsets
        self.imports, self.opsets = list(function.opset_import), opsets_in(function)
        for inner in body:
            self._node(inner)
        self.imports, self.opsets = imports, opsets

    def _seen(self, proto: onnx.NodeProto, version: int) -> Node:
        return Node(
            proto,
            version,
            [self._dims(name) for name in proto.input],
            [self.elements.get(name) for name in proto.input],
            [self.constants.get(name) for name in proto.input],
            any(self._element_type(name) in _FRACTIONS for name in proto.output),
            self.known_bounds,
        )

    def _dims(self, name: str) -> Dims | None:
        type = self.result.types.get(name)
        if not isinstance(type, TensorType) or type.shape is None:
            return None
        return tuple(Extent.of(dim) for dim in type.shape)

    def _element_type(self, name: str) -> int:
        info = self.infos.get(name)
        return int(info.tensor_type.elem_type) if info is not None else 0

    def _holds_numbers(self, name: str) -> bool:
        """Whether a value can be a small tensor of whole numbers. Fractions are followed because shapes are scaled by them."""
        if self._element_type(name) not in {*_INTEGERS, *_FRACTIONS, onnx.TensorProto.BOOL}:
            return False
        type = self.result.types.get(name)
        shape = type.shape if isinstance(type, TensorType) else None
        sizes = [dim for dim in shape if isinstance(dim, int)] if shape is not None else []
        return shape is not None and len(sizes) == len(shape) and prod(sizes) <= MOST

    def _hold(self, name: str, elements: Elements) -> None:
        """Take in elements under the shape that the tensor has."""
        type = self.result.types[name]
        assert isinstance(type, TensorType) and type.shape is not None
        sizes = [dim for dim in type.shape if isinstance(dim, int)]
        if elements.size != prod(sizes):
            return
        self.elements[name] = elements = elements.reshape(sizes)
        array = array_of(elements, type.dtype.numpy)
        if array is not None:
            self.constants[name] = array
            self.tensors.setdefault(name, onnx.numpy_helper.from_array(array, name))

    def _inferred(self, schema: Any, proto: onnx.NodeProto) -> Mapping[str, onnx.TypeProto]:
        """What onnx says of the one node; nothing if it refuses its shapes.

        Raises:
            ModelError: an operand has a type that the op does not take.
        """
        infos = {name: self.infos[name] for name in proto.input if name in self.infos}
        if not all(name in infos for name in proto.input if name):
            return {}
        data = {name: self.tensors[name] for name in proto.input if name in self.tensors}
        try:
            return onnx.shape_inference.infer_node_outputs(schema, proto, infos, data, None, self.imports)
        except _REFUSALS:
            return {}
        except onnx.checker.ValidationError as error:
            raise ModelError(
                " ".join(str(error).split()), where=describe(proto), hint="export the model again"
            ) from None

    def _compare(self, proto: onnx.NodeProto) -> None:
        """Refuse outputs in other shapes than the op gives them."""
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        schema = find_schema(proto.op_type, domain, self.opsets.get(domain, 1))
        for name, found in self._inferred(schema, proto).items() if schema is not None else ():
            type, shape = self.result.types.get(name), _shape_of(found)
            if not isinstance(type, TensorType) or type.shape is None or shape is None:
                continue
            if len(type.shape) != len(shape) or not all(map(_may_agree, type.shape, shape)):
                actual = ", ".join("?" if dim is None else str(dim) for dim in shape)
                what = f"{name!r} is declared as {type}, but has the shape [{actual}]"
                raise ModelError(what, where=describe(proto), hint="export the model again")

    def _refine(self, name: str, ours: Dims | None, theirs: onnx.TypeProto | None) -> None:
        """Numbers of the whole model first, then those of the node, then what is computed here, then names."""
        old = self.result.types.get(name, OpaqueType(UNKNOWN))
        if (
            not isinstance(old, TensorType)
            and old.text == UNKNOWN
            and theirs is not None
            and theirs.HasField("tensor_type")
        ):
            dtype = FROM_IR.get(ir.DataType(theirs.tensor_type.elem_type))
            old = old if dtype is None else TensorType(dtype, None)
            self._set(name, old)
        if not isinstance(old, TensorType):
            return
        found = _shape_of(theirs)
        rank = next((len(shape) for shape in (old.shape, found, ours) if shape is not None), None)
        if rank is None:
            return
        nothing = (None,) * rank
        whole = old.shape if old.shape is not None and len(old.shape) == rank else nothing
        single = found if found is not None and len(found) == rank else nothing
        own = ours if ours is not None and len(ours) == rank else nothing
        dims = (self._dim(*each) for each in zip(whole, single, own, strict=True))
        self.result.types[name] = TensorType(old.dtype, tuple(dims))
        self._declare(name)

    def _dim(self, whole: Dim | None, single: Dim | None, own: Known) -> Dim:
        computed = None if own is None else own.dim
        for dim in (whole, single, computed):
            if isinstance(dim, int) and 0 <= dim < _TOO_LARGE:
                return dim
        for dim in (computed, single):
            if isinstance(dim, str):
                return dim
        return whole if whole is not None and is_unknown(whole) else self.names.fresh()


def _least(dim: Extent, name: str) -> int:
    """The smallest size of a dimension for which an extent that grows with it is not 0."""
    high = 1
    while (dim.at({name: high}) or 0) < 1 and high < _LARGE:
        high *= 2
    return bisect_left(range(high), 1, lo=1, key=lambda size: dim.at({name: size}) or 0) if high < _LARGE else 1


def _tried(rules: Any, node: Node) -> list[Any]:
    """What the rules say; nothing where the operands contradict each other, which fails when it is run."""
    try:
        return list(rules(node))
    except _REFUSALS:
        return [None] * len(node.proto.output)


def _shape_of(type: onnx.TypeProto | None) -> tuple[Dim | None, ...] | None:
    """The shape that onnx gives a value, with None for what it leaves open."""
    if type is None or not type.HasField("tensor_type") or not type.tensor_type.HasField("shape"):
        return None
    return tuple(_known(dim) for dim in type.tensor_type.shape.dim)


def _may_agree(one: Dim, other: Dim | None) -> bool:
    return not isinstance(one, int) or not isinstance(other, int) or one == other


def _known(dim: Any) -> Dim | None:
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    return str(dim.dim_param) if dim.dim_param else None


__all__ = ["Refined", "refine"]
