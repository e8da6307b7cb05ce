"""Tensors filled with one number; the shape is an input."""

from types import MappingProxyType
from typing import cast

import numpy as np
from typing_extensions import override

from layoutopt.ir.types import Array, Data, DType, Op, Opaque, Padding, Signature, TensorType, Value
from layoutopt.ops.axiswise import Axes, AxiswiseRule
from layoutopt.ops.base import Builder, register
from layoutopt.ops.operands import rank_of, shape_of
from layoutopt.ops.padding_state import state_of
from layoutopt.ops.padding_transfer import PaddingTransfer
from layoutopt.ops.signatures import Inapplicable, Y


@register
class Fill(AxiswiseRule):
    """ConstantOfShape."""

    family = "fill"
    ops = ("ConstantOfShape",)
    formats = "any"
    padding = PaddingTransfer(Padding.ZERO, None, None, "the number")
    ranks = MappingProxyType({Y: 0})
    is_always_agnostic = True

    @override
    def axes(self, op: Op) -> Axes | Inapplicable:
        return {Y: tuple(range(rank_of(op.outputs[0])))}

    def number(self, op: Op) -> Array:
        """The number; zero by default."""
        value = op.attributes.get("value")
        return cast(Data, value.payload).numpy() if isinstance(value, Opaque) else np.zeros(1, dtype=np.float32)

    @override
    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...]:
        return (state_of(np.asarray(self.number(op))),)

    def lower(self, op: Op, build: Builder) -> None:
        """The same op for the physical shape; symbolic extents are gathered from the logical shape."""
        shape, type = build.input(0), build.output_type(0)
        pieces: list[Value | None] = []
        for part, dim in zip(build.format(Y).parts, shape_of(type), strict=True):
            number = np.asarray([dim if isinstance(dim, int) else part.axis], dtype=np.int64)
            if isinstance(dim, int):
                pieces.append(build.constant(number, "extent"))
            else:
                pieces += build.op("Gather", [shape, build.constant(number, "index")], [TensorType(DType.INT64, (1,))])
        (physical,) = build.op("Concat", pieces, [TensorType(DType.INT64, (len(pieces),))], {"axis": 0})
        (result,) = build.op(op.op_type, [physical], [type], op.attributes)
        build.set_output(0, result)


__all__ = ["Fill"]
