"""The types of the results of one op: by shape functions, and by onnx for the one node."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from layoutopt.formats import Dim, Extent
from layoutopt.inference.one_node import (
    MISTYPED,
    REFUSALS,
    Found,
    PartialType,
    as_found,
    has_inference,
    infer_node,
    only_types,
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
class Record:
    """The results of inference for an op.

    Attributes:
        node: the op and the operands that it was found for.
        types: the types of its outputs.
        elements: the elements of its outputs, once they have been computed.
    """

    node: Node
    types: list[Found]
    elements: list[Elements | None] | None = None

    def holds_for(self, node: Node) -> bool:
        """Whether the same would be found for another node."""
        old = self.node
        return (
            (old.op_type, old.version, old.outputs) == (node.op_type, node.version, node.outputs)
            and len(old.operands) == len(node.operands)
            and all(map(_is_same, old.operands, node.operands))
            and old.attributes == node.attributes
            and (not old.has_used_bounds or old.bounds == node.bounds)
        )

    def bounded_by(self, node: Node) -> None:
        """Let elements be computed with the bounds of another node that the record holds for."""
        node.has_used_bounds = self.node.has_used_bounds
        self.node = node


def _is_same(one: Operand | None, other: Operand | None) -> bool:
    return one is other or (one is not None and other is not None and one.is_same(other))


def infer_results(node: Node, *, is_lenient: bool = False) -> list[Found]:
    """The types of the outputs of a node.

    Args:
        node: the op and its operands.
        is_lenient: whether shapes of operands that contradict each other are ignored.

    Raises:
        REFUSALS, MISTYPED: as for `infer_node`.
    """
    if not has_inference(node):
        results = zip(results_of(node), only_types(node), strict=True)
        found = [only if each is None else _found(each) for each, only in results]
        return found if node.domain else _with_shapes(node, found)
    try:
        theirs = infer_node(node)
    except REFUSALS as error:
        if not is_lenient and not is_tolerated(str(error)):
            raise
        theirs = _without_shapes(node)
    return theirs if node.domain or all(map(_is_static, theirs)) else _with_shapes(node, theirs)


def _with_shapes(node: Node, found: list[Found]) -> list[Found]:
    """The types of the outputs with the extents that the shape function adds."""
    return [_both(one, other) for one, other in zip(found, _tried(shapes_of, node), strict=True)]


def _without_shapes(node: Node) -> list[Found]:
    """The types of the outputs where nothing is known of the operands but element types."""
    operands = (None if each is None else each.type for each in node.operands)
    bare = [Operand(TensorType(type.dtype, None)) if isinstance(type, TensorType) else None for type in operands]
    try:
        return infer_node(replace(node, operands=bare))
    except REFUSALS:
        return [None] * len(node.outputs)


def infer_elements(node: Node) -> list[Elements | None]:
    """The elements of the outputs of a node."""
    return _tried(elements_of, node)


def _tried(function: Callable[[Node], list[T | None]], node: Node) -> list[T | None]:
    """The results of a shape function; None for each output if the operands contradict each other, so that the op fails."""
    try:
        return function(node)
    except ContradictionError:
        return [None] * len(node.outputs)


def _found(result: TensorType | OpaqueType | Equivalent) -> Found:
    """A result of a type function. Where an equivalent node contradicts its operands nothing is known."""
    if not isinstance(result, Equivalent):
        return as_found(result)
    try:
        (found,) = infer_results(result.node)
    except (*REFUSALS, MISTYPED):
        return None
    if not isinstance(found, PartialType):
        return found
    shape = found.shape
    if result.order and shape is not None:
        shape = tuple(shape[axis] for axis in result.order)
    return PartialType(result.dtype or found.dtype, shape)


def _is_static(found: Found) -> bool:
    if isinstance(found, PartialType):
        return found.shape is not None and all(isinstance(dim, int) for dim in found.shape)
    return isinstance(found, OpaqueType)


def _both(theirs: Found, ours: Dims | None) -> Found:
    """Numbers first, then computed expressions, then names."""
    if isinstance(theirs, OpaqueType) or ours is None:
        return theirs
    shape = theirs.shape if theirs is not None else None
    if shape is None:
        shape = (None,) * len(ours)
    if len(shape) != len(ours):
        return theirs
    return PartialType(theirs.dtype if theirs is not None else None, tuple(map(_dim, shape, ours)))


def _dim(theirs: Dim | None, ours: Extent | None) -> Dim | None:
    return theirs if isinstance(theirs, int) or ours is None else ours.dim


__all__ = ["Record", "infer_elements", "infer_results"]
