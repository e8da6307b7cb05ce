"""Ops along one or several axes: reductions, softmax, arg-max. The other axes may have any format."""

from types import MappingProxyType

import numpy as np
from typing_extensions import override

from layoutopt.formats import Format
from layoutopt.ir.types import Array, Attribute, Op, Padding, Signature, TensorType, Value
from layoutopt.ops.axiswise import Axes, AxiswiseRule, IterationOrder
from layoutopt.ops.base import Builder, register
from layoutopt.ops.direct_lowering import lower_directly
from layoutopt.ops.interfaces.numerics import SaturatingActivation
from layoutopt.ops.operands import present_type, rank_of, shape_of
from layoutopt.ops.padding_state import has_padding
from layoutopt.ops.padding_transfer import PADDING_KEPT, PaddingTransfer
from layoutopt.ops.signatures import Inapplicable, OperandFormats, X, Y, estimated_volume, is_canonical

_SUMS = ("ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare")


def positions(format: Format, axes: tuple[int, ...]) -> tuple[int, ...]:
    """The positions of the parts of some axes in a physical array."""
    return tuple(position for position, part in enumerate(format.parts) if part.axis in axes)


@register
class Reduction(AxiswiseRule):
    """Reduce*: the axes are an attribute or, in later opsets, an input."""

    family = "reduction"
    ops = (
        *("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceLogSum", "ReduceLogSumExp"),
        *_SUMS,
    )
    formats = "any; reduced axes may be blocked where they have no padding, in sums also if it is zero"
    is_always_agnostic = True

    def padding_of(self, kind: str) -> PaddingTransfer:
        """The transfer function of axes that are not reduced."""
        if kind in ("ReduceMean", "ReduceMax", "ReduceMin"):
            return PADDING_KEPT
        if kind == "ReduceLogSumExp":
            return PaddingTransfer(Padding.FINITE, Padding.FINITE, Padding.ANY)
        text = "padding of reduced axes must be zero" if kind in _SUMS else ""
        return PaddingTransfer(Padding.ANY if kind == "ReduceLogSum" else Padding.ZERO, Padding.ANY, Padding.ANY, text)

    def reduced_axes(self, op: Op) -> tuple[int, ...] | None:
        """The axes that are reduced; None if they are computed."""
        x = op.inputs[0]
        if x is None or x.rank is None:
            return None
        axes: tuple[int, ...] | None = op.integers("axes") if "axes" in op.attributes else None
        if len(op.inputs) > 1 and op.inputs[1] is not None:
            array: Array | None = op.constant(1)
            if array is None:
                return None
            axes = tuple(int(axis) for axis in array.reshape(-1))
        if not axes:
            axes = () if op.integer("noop_with_empty_axes") else tuple(range(x.rank))
        return tuple(sorted(axis % x.rank for axis in axes))

    def keeps_axes(self, op: Op) -> bool:
        """Whether reduced axes stay, with extent 1."""
        return bool(op.integer("keepdims", 1))

    def axes(self, op: Op) -> Axes | Inapplicable:
        """All axes of the input are iteration axes; the output has those that remain."""
        reduced_axes = self.reduced_axes(op)
        if reduced_axes is None:
            return Inapplicable("the reduced axes are computed")
        all_axes = tuple(range(rank_of(op.inputs[0])))
        return {
            X: all_axes,
            Y: all_axes if self.keeps_axes(op) else tuple(axis for axis in all_axes if axis not in reduced_axes),
        }

    def complete(self, op: Op, known: OperandFormats) -> Signature | Inapplicable:
        """The projection, if padding of reduced axes adds nothing to the result."""
        signature = super().complete(op, known)
        if isinstance(signature, Inapplicable) or signature.inputs[0] is None:
            return signature
        reduced_axes = self.reduced_axes(op) or ()
        blocked = set(signature.inputs[0].format.blocked_axes) & set(reduced_axes)
        if blocked and has_padding(op.inputs[0], signature.inputs[0]) and op.op_type not in _SUMS:
            return Inapplicable("the reduction would read the padding")
        return signature

    def transfer_padding(self, op: Op, signature: Signature, inputs: tuple[Padding, ...]) -> tuple[Padding, ...] | None:
        """The transfer of the other axes, whose padding is reduced separately; padding of reduced axes must be zero."""
        x = signature.inputs[0]
        if x is not None and inputs[0] and set(x.format.blocked_axes) & set(self.reduced_axes(op) or ()):
            return None
        return super().transfer_padding(op, signature, inputs)

    @override
    def lower(self, op: Op, build: Builder) -> None:
        x, target = build.input(0), present_type(build.output_type(0))
        dims = positions(build.format(X), self.reduced_axes(op) or ())
        shape = tuple(dim for position, dim in enumerate(shape_of(x)) if position not in dims)
        attributes: dict[str, Attribute] = {**op.attributes, "keepdims": 0}
        inputs: list[Value | None] = [x]
        if "axes" in op.attributes or not self._has_axes_input(op):
            attributes["axes"] = dims
        else:
            inputs.append(build.constant(np.asarray(dims, dtype=np.int64), "axes"))
        (result,) = build.op(op.op_type, inputs, [TensorType(target.dtype, shape)], attributes)
        build.set_output(0, build.reshape(result, shape_of(target)))

    def _has_axes_input(self, op: Op) -> bool:
        return op.version >= (13 if op.op_type == "ReduceSum" else 18)

    @override
    def flops(self, op: Op) -> float:
        x = op.inputs[0]
        return float(estimated_volume(x.shape)) if x is not None and x.shape is not None else 0.0


class OneAxis(AxiswiseRule):
    """An op along one axis, which must not be blocked."""

    formats = "any; the axis must not be blocked"

    default_axis = -1
    ranks = MappingProxyType({X: 1})
    is_always_agnostic = True

    def axis(self, op: Op) -> int:
        """The axis, counted from the front."""
        return op.integer("axis", self.default_axis) % rank_of(op.inputs[0])

    @override
    def unblockable_reason(self, op: Op, axis: int, order: IterationOrder) -> str:
        return f"axis {axis} is the axis of the op and cannot be blocked" if axis == self.axis(op) else ""

    @override
    def lower(self, op: Op, build: Builder) -> None:
        (axis,) = positions(build.format(X), (self.axis(op),))
        lower_directly(op, build, {"axis": axis})


@register
class Softmax(OneAxis, SaturatingActivation):
    """Softmax, LogSoftmax, Hardmax. Before opset 13 they normalise over all axes from `axis` on together."""

    family = "softmax"
    ops = ("Softmax", "LogSoftmax", "Hardmax")
    padding = PaddingTransfer(Padding.FINITE, Padding.FINITE, Padding.ANY)

    def axis(self, op: Op) -> int:
        """The axis; its default was 1 before opset 13."""
        return op.integer("axis", -1 if op.version >= 13 else 1) % rank_of(op.inputs[0])

    @override
    def axes(self, op: Op) -> Axes | Inapplicable:
        if op.version < 13 and any(dim != 1 for dim in shape_of(op.inputs[0])[self.axis(op) + 1 :]):
            return Inapplicable("before opset 13 it normalises over several axes")
        return super().axes(op)

    @override
    def is_layout_agnostic(self, op: Op, signature: Signature) -> bool:
        return op.version >= 13 or is_canonical(signature)

    @override
    def lower(self, op: Op, build: Builder) -> None:
        if op.version >= 13:
            super().lower(op, build)
        else:
            AxiswiseRule.lower(self, op, build)


@register
class ArgReduction(OneAxis):
    """ArgMax and ArgMin: the result is an index along the logical axis."""

    family = "reduction"
    ops = ("ArgMax", "ArgMin")
    padding = PaddingTransfer(Padding.FINITE, Padding.FINITE, Padding.FINITE)
    default_axis = 0

    def axes(self, op: Op) -> Axes | Inapplicable:
        """The output has all axes, or all but the reduced one."""
        axes = super().axes(op)
        if isinstance(axes, Inapplicable) or op.integer("keepdims", 1):
            return axes
        return {X: axes[X], Y: tuple(axis for axis in axes[X] if axis != self.axis(op))}
