"""Commutes Q/DQ ops with adjacent data-movement ops.

DequantizeLinear(axis = 0) -> Transpose(1, 0)      =       Transpose(1, 0) -> DequantizeLinear(axis = 1)
DequantizeLinear(zero = 3) -> Pad(0)               =       Pad(3) -> DequantizeLinear(zero = 3)
"""

from dataclasses import dataclass

import numpy as np

from layoutopt.ir.types import Attribute, DType, Op, Value
from layoutopt.ops.base import rule_of
from layoutopt.ops.interfaces.pads import zero_pads_of
from layoutopt.ops.quantization.qdq_ops import SCALE, ZERO_POINT, Dequantize, QdqOp, Quantize, is_absent_or_zero
from layoutopt.ops.slice import Slice
from layoutopt.ops.view import View

_BYTE_BITS = 8
_EXACT_BITS = 16  # integers of up to 16 bits are unchanged by a multiplication by a float32 and a division by it
_ALL_TYPES_TRANSPOSE_OPSET = 21  # since this opset Transpose supports all quantised element types
_INTEGER_PAD_OPSET = 11  # since this opset Pad supports integers
_PAD_VALUE = 2  # index of the input of Pad that is the pad value


@dataclass(frozen=True, slots=True)
class Commuted:
    """The changes that exchange a Q/DQ op and an adjacent data-movement op.

    Attributes:
        attributes: the new attributes of the Q/DQ op.
        moved_inputs: the indices of the scale and zero point, if the data-movement op applies to them too.
        pad_value: the index and the new value of an input of the data-movement op; Pad fills integers with their zero point.
    """

    attributes: dict[str, Attribute]
    moved_inputs: tuple[int, ...] = ()
    pad_value: tuple[int, Value] | None = None


def commute(qdq_op: Op, data_movement: Op) -> Commuted | None:
    """The changes that exchange a Q/DQ op and an adjacent data-movement op; None if the two do not commute."""
    rule, other = rule_of(qdq_op), rule_of(data_movement)
    if not isinstance(rule, QdqOp) or other is None or not data_movement.inputs:
        return None
    source, x = data_movement.inputs[0], qdq_op.inputs[0]
    if source is None or source.rank is None or x is None or not x.rank or qdq_op.inputs[SCALE] is None:
        return None
    integers = qdq_op.inputs[0] if isinstance(rule, Dequantize) else qdq_op.outputs[0]
    dtype = integers.dtype if integers is not None else None
    if dtype is None or not _supports_type(data_movement, dtype):
        return None
    if isinstance(other, View):
        return _commute_with_view(qdq_op, rule, data_movement, other)
    if rule.axis(qdq_op) is not None:
        return None
    if isinstance(other, Slice):
        return Commuted(dict(qdq_op.attributes))
    return _commute_with_pad(qdq_op, data_movement, dtype) if zero_pads_of(data_movement) is not None else None


def _commute_with_view(qdq_op: Op, rule: QdqOp, view: Op, view_rule: View) -> Commuted | None:
    """The changes for a view op, which maps the axis of the scale.

    None if the scale is per axis and the view op splits or merges that axis, or if there is a scale per block of an axis
    (`block_size`) and the op is a QuantizeLinear or the view op does more than permute axes.
    """
    axis = rule.axis(qdq_op)
    if axis is None:
        return Commuted(dict(qdq_op.attributes))
    source = view.inputs[0]
    assert source is not None and source.rank is not None
    if rule.is_per_axis(qdq_op):
        axis_map = {before: view_rule.unmerged_axis(view, before) for before in range(source.rank)}
        if isinstance(rule, Quantize):
            axis_map = {after: before for before, after in axis_map.items() if after is not None}
        new_axis = axis_map.get(axis)
        return None if new_axis is None else Commuted({**qdq_op.attributes, "axis": new_axis})
    axes = [view_rule.permuted_axis(view, before) for before in range(source.rank)]
    if isinstance(rule, Quantize) or None in axes:
        return None
    moved_inputs = tuple(
        index for index in (SCALE, ZERO_POINT) if index < len(qdq_op.inputs) and qdq_op.inputs[index] is not None
    )
    return Commuted({**qdq_op.attributes, "axis": axes[axis] or 0}, moved_inputs)


def _commute_with_pad(qdq_op: Op, pad: Op, dtype: DType) -> Commuted | None:
    """The changes for a Pad with zeros; None unless it pads 8-bit integers, because runtimes pad no others.

    The Pad of the integers fills with the zero point, which must be a scalar.
    """
    if dtype.bits != _BYTE_BITS or dtype.is_float or pad.version < _INTEGER_PAD_OPSET:
        return None
    if is_absent_or_zero(qdq_op, ZERO_POINT):
        has_pad_value = len(pad.inputs) > _PAD_VALUE and pad.inputs[_PAD_VALUE] is not None
        return None if has_pad_value else Commuted(dict(qdq_op.attributes))
    zero = qdq_op.inputs[ZERO_POINT]
    if zero is None or zero.rank != 0:
        return None
    return Commuted(dict(qdq_op.attributes), (), (_PAD_VALUE, zero))


def _supports_type(data_movement: Op, dtype: DType) -> bool:
    """Whether every runtime has the data-movement op for elements of this type, an integer or float of few bits."""
    if dtype.bits >= _BYTE_BITS and not dtype.is_float:
        return True
    return data_movement.op_type == "Transpose" and data_movement.version >= _ALL_TYPES_TRANSPOSE_OPSET


def is_lossless_round_trip(quantize: Op, dequantize: Op) -> bool:
    """Whether dequantising and quantising again yields the same integers."""
    rule = rule_of(quantize)
    if not isinstance(rule, Quantize) or not isinstance(rule_of(dequantize), Dequantize):
        return False
    source, result = dequantize.inputs[0], quantize.outputs[0]
    if source is None or result is None or source.type != result.type or source.dtype is None or not source.rank:
        return False
    if source.dtype.is_float or source.dtype.bits > _EXACT_BITS:
        return False
    scale, scales = quantize.constant(SCALE), (quantize.inputs[SCALE], dequantize.inputs[SCALE])
    if scale is None or any(each is None or each.dtype is not DType.FLOAT32 for each in scales):
        return False
    least, most = np.finfo(np.float32).tiny, np.finfo(np.float32).max / 2 ** (_EXACT_BITS + 1)
    if not bool(((scale >= least) & (scale <= most)).all()):
        return False
    is_same = all(_is_same(quantize, dequantize, index) for index in (SCALE, ZERO_POINT))
    return is_same and (rule.axis(quantize) is None or quantize.attributes == dequantize.attributes)


def _is_same(one: Op, other: Op, index: int) -> bool:
    """Whether two Q/DQ ops have the same scale or zero point."""
    first, second = (op.inputs[index] if index < len(op.inputs) else None for op in (one, other))
    if first is second:
        return True
    a, b = one.constant(index), other.constant(index)
    return a is not None and b is not None and a.shape == b.shape and bool((a == b).all())
