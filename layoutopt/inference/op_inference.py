"""The types of the results of one op: by shape functions, and by onnx for the one node."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from layoutopt.formats import Dim, Extent
from layoutopt.inference.onnx_inference import (
    SHAPE_ERRORS,
    TYPE_ERROR,
    InferredType,
    PartialType,
    as_inferred,
    has_inference,
    infer_node,
    schema_dtypes,
    type_proto,
)
from layoutopt.ir.types import OpaqueType, TensorType
from layoutopt.onnx_io.onnx_messages import is_tolerated
from layoutopt.ops.shape_functions import (
    ContradictionError,
    Dims,
    Elements,
    Equivalent,
    Node,
    Operand,
    elements_of,
    results_of,
    shapes_of,
)

T = TypeVar("T")


@dataclass(slots=True)
class CachedInference:
    """The results of inference for an op, which the op stores.

    Attributes:
        node: the op with the operands that the results were inferred from.
        types: the types of its outputs.
        elements: the elements of its outputs, once they have been computed.
    """

    node: Node
    types: list[InferredType]
    elements: list[Elements | None] | None = None

    def is_valid_for(self, node: Node) -> bool:
        """Whether inference has the same results for another node."""
        old = self.node
        return (
            (old.op_type, old.version, old.outputs) == (node.op_type, node.version, node.outputs)
            and len(old.operands) == len(node.operands)
            and all(map(_is_same, old.operands, node.operands))
            and old.attributes == node.attributes
            and (not old.has_used_bounds or old.bounds == node.bounds)
        )

    def replace_bounds(self, node: Node) -> None:
        """Replace the node by an equal one with other bounds.

        The types hold for both, but `infer_elements` reads the bounds of the node.
        """
        node.has_used_bounds = self.node.has_used_bounds
        self.node = node


def _is_same(one: Operand | None, other: Operand | None) -> bool:
    return one is other or (one is not None and other is not None and one.is_same(other))


def infer_results(node: Node, *, is_lenient: bool = False) -> list[InferredType]:
    """The types of the outputs of a node.

    Args:
        node: the op and its operands.
        is_lenient: whether shapes of operands that contradict each other are ignored.

    Raises:
        SHAPE_ERRORS, TYPE_ERROR: as for `infer_node`.
    """
    if not has_inference(node):
        results = zip(results_of(node), schema_dtypes(node), strict=True)
        found = [only if each is None else _found(each) for each, only in results]
        return found if node.domain else _with_shapes(node, found)
    try:
        by_onnx = infer_node(node)
    except SHAPE_ERRORS as error:
        if any(each is not None and not type_proto(each.type).WhichOneof("value") for each in node.operands):
            return [None] * len(
                node.outputs
            )  # the result of an unknown operator, of which some functions need the type
        if not is_lenient and not is_tolerated(str(error)):
            raise
        by_onnx = _without_shapes(node)
    return by_onnx if node.domain or all(map(_is_static, by_onnx)) else _with_shapes(node, by_onnx)


def _with_shapes(node: Node, found: list[InferredType]) -> list[InferredType]:
    """The types of the outputs with the extents that the shape function adds."""
    return [_with_extents(one, other) for one, other in zip(found, _results_or_none(shapes_of, node), strict=True)]


def _without_shapes(node: Node) -> list[InferredType]:
    """The types of the outputs, inferred from the element types of the operands alone."""
    operands = (None if each is None else each.type for each in node.operands)
    bare = [Operand(TensorType(type.dtype, None)) if isinstance(type, TensorType) else None for type in operands]
    try:
        return infer_node(replace(node, operands=bare))
    except SHAPE_ERRORS:
        return [None] * len(node.outputs)


def infer_elements(node: Node) -> list[Elements | None]:
    """The elements of the outputs of a node."""
    return _results_or_none(elements_of, node)


def _results_or_none(function: Callable[[Node], list[T | None]], node: Node) -> list[T | None]:
    """The results of a shape function; None for each output if the operands contradict each other."""
    try:
        return function(node)
    except ContradictionError:
        return [None] * len(node.outputs)


def _found(result: TensorType | OpaqueType | Equivalent) -> InferredType:
    """The inferred type for a result of a type function; None if an equivalent node contradicts its operands."""
    if not isinstance(result, Equivalent):
        return as_inferred(result)
    try:
        (found,) = infer_results(result.node)
    except (*SHAPE_ERRORS, TYPE_ERROR):
        return None
    if not isinstance(found, PartialType):
        return found
    shape = found.shape
    if result.order and shape is not None:
        shape = tuple(shape[axis] for axis in result.order)
    return PartialType(result.dtype or found.dtype, shape)


def _is_static(found: InferredType) -> bool:
    if isinstance(found, PartialType):
        return found.shape is not None and all(isinstance(dim, int) for dim in found.shape)
    return isinstance(found, OpaqueType)


def _with_extents(by_onnx: InferredType, by_shape_function: Dims | None) -> InferredType:
    """The type by onnx with the extents of the shape function, except for extents that onnx inferred as numbers."""
    if isinstance(by_onnx, OpaqueType) or by_shape_function is None:
        return by_onnx
    shape = by_onnx.shape if by_onnx is not None else None
    if shape is None:
        shape = (None,) * len(by_shape_function)
    if len(shape) != len(by_shape_function):
        return by_onnx
    return PartialType(by_onnx.dtype if by_onnx is not None else None, tuple(map(_dim, shape, by_shape_function)))


def _dim(by_onnx: Dim | None, by_shape_function: Extent | None) -> Dim | None:
    return by_onnx if isinstance(by_onnx, int) or by_shape_function is None else by_shape_function.dim


__all__ = ["CachedInference", "infer_elements", "infer_results"]
