"""Shape and Size, which read no element, so the tensor may have any format."""

from types import MappingProxyType

import numpy as np

from layoutopt.ir.types import DType, Op, Padding, Signature, TensorType, Value
from layoutopt.ops.base import Builder, LayoutRule, register
from layoutopt.ops.interfaces.shape_query import ShapeQuery
from layoutopt.ops.operands import rank_of, shape_of
from layoutopt.ops.padding_transfer import PADDING_REFUSED
from layoutopt.ops.signatures import Inapplicable, OperandFormats, X, signature_of


@register
class ShapeOp(LayoutRule, ShapeQuery):
    """The logical extents, for any physical format."""

    family = "shape_of"
    ops = ("Shape", "Size")
    formats = "any"
    padding = PADDING_REFUSED
    is_always_agnostic = True
    ranks = MappingProxyType({X: 0})

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """Any format of the input in which blocked extents are numbers."""
        format = known.get(X)
        if format is None:
            return Inapplicable("the format of the input is not given")
        if any(not isinstance(shape_of(op.inputs[0])[axis], int) for axis in format.blocked_axes):
            return Inapplicable("a blocked extent is unknown")
        return signature_of(op, {X: format})

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...]:
        """Zero: the op reads no elements."""
        return (Padding.ZERO,)

    def _selected(self, op: Op, rank: int) -> slice:
        """The axes whose extents Shape returns, an option since opset 15."""
        return slice(op.integer("start", 0), op.integer("end", rank)) if op.op_type == "Shape" else slice(None)

    def lower(self, op: Op, build: Builder) -> None:
        """Known extents as constants, the others gathered from the shape of the array."""
        shape, array = shape_of(op.inputs[0]), build.input(0)
        (extents,) = build.op("Shape", [array], [TensorType(DType.INT64, (rank_of(array),))])
        positions = {part.axis: position for position, part in enumerate(build.format(X).parts) if not part.block}
        pieces: list[Value | None] = []
        for axis in range(len(shape))[self._selected(op, len(shape))]:
            dim = shape[axis]
            if isinstance(dim, int):
                pieces.append(build.constant(np.asarray([dim], dtype=np.int64), "extent"))
                continue
            position = build.constant(np.asarray([positions[axis]], dtype=np.int64), "index")
            pieces += build.op("Gather", [extents, position], [TensorType(DType.INT64, (1,))])
        whole = TensorType(DType.INT64, (len(pieces),))
        result = (
            build.op("Concat", pieces, [whole], {"axis": 0})[0]
            if pieces
            else build.constant(np.zeros(0, np.int64), "extents")
        )
        if op.op_type == "Size":
            (result,) = build.op("ReduceProd", [result], [TensorType(DType.INT64, ())], {"keepdims": 0})
        build.set_output(0, result)
