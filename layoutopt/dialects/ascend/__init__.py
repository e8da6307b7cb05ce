"""The dialect `ascend`: functions with the operators and format names of Ascend's compiler. CastData is TransData.

    y = layoutopt.ascend.TransData <src_format = "NCHW", dst_format = "NC1HWC0", src_subformat = 0, dst_subformat = 0,
                                    groups = 1, origin_format = "NCHW"> (x)
    z = layoutopt.ascend.Conv_NC1HWC0 <input_formats = ["NC1HWC0", "FRACTAL_Z"], output_formats = ["NC1HWC0"], ...> (y, w)

Arrays have the published shapes, such as (C1 * H * W, N1, 16, C0) for FRACTAL_Z. Grouped filters, depthwise filters and those
of NC1HWC0_C04 include the zeros of their storages. Functions with different bodies are overloads, so that a node has the name
of its op. An op with a format that the compiler does not name is written as in `functions`.

The attribute `origin_format` is an addition: in that compiler it is a property of the tensor. A TransData between NC1HWC0 and
FRACTAL_NZ is one node here and two in that compiler, through NCHW. A TransData in front of a Transpose that moves no bytes is
one node too, named by the axes behind the Transpose.

Source: REG_OP(TransData) in Ascend op_proto transformation_ops.h; SetTransDataSrcFormat in Ascend ge trans_op_creator.cc.
"""

from collections.abc import Sequence

from layoutopt.dialects.ascend.filters import packed_filter, read_packed_filter
from layoutopt.dialects.ascend.names import common_origin, format_name, published_shape
from layoutopt.dialects.builder import OpBuilder
from layoutopt.dialects.functions import Functions, Label
from layoutopt.formats import Shape
from layoutopt.formats.format import Format
from layoutopt.ir.graph import DOMAIN, Graph, is_cast
from layoutopt.ir.types import Attribute, Op, Storage, Value
from layoutopt.ops import rule_of

ASCEND = f"{DOMAIN}.ascend"
CAST = "TransData"


class Ascend(Functions):
    """CastData from NCHW to NC1HWC0  -->  layoutopt.ascend.TransData."""

    name = "ascend"

    def shape(self, format: Format, shape: Shape) -> Shape:
        """The shape that Ascend publishes for an array in a format."""
        return published_shape(format, shape)

    def label(self, op: Op) -> Label:
        """The label with the format names of Ascend's compiler, if it names all formats of the op."""
        return (_cast(op) if is_cast(op) else _call(op)) or super().label(op)

    def write(self, graph: Graph, op: Op, builder: OpBuilder, outputs: Sequence[Value | None]) -> None:
        """Write a function call; filters that no format can describe are packed first."""
        filter = packed_filter(op)
        if filter is not None and builder.ops:
            read_packed_filter(graph, op, builder, filter)
        super().write(graph, op, builder, outputs)


def _cast(op: Op) -> Label | None:
    """The label of a TransData; None if a format has no name, or if only the padding state changes."""
    assert op.signature is not None
    value, source, result = op.inputs[0], op.signature.inputs[0], op.signature.outputs[0]
    assert value is not None and value.dtype is not None and source is not None and result is not None
    found = common_origin([source.format, result.format], value.dtype)
    if found is None:
        return None
    origin, (src, dst) = found
    attributes: dict[str, Attribute] = {"src_format": src, "dst_format": dst, "src_subformat": 0, "dst_subformat": 0}
    return (
        None
        if src == dst
        else Label(CAST, attributes | {"groups": 1, "origin_format": origin}, ASCEND, has_overloads=True)
    )


def _call(op: Op) -> Label | None:
    """The label of an op with the names of all its formats; None if a format has no name."""
    assert op.signature is not None
    inputs = [_named(value, storage) for value, storage in zip(op.inputs, op.signature.inputs, strict=True)]
    outputs = [_named(value, storage) for value, storage in zip(op.outputs, op.signature.outputs, strict=True)]
    filter = packed_filter(op)
    if filter is not None:
        inputs[filter.slot.index] = filter.name
    if None in inputs or None in outputs:
        return None
    given, computed = (tuple(each or "" for each in side) for side in (inputs, outputs))
    first = dict.fromkeys(side[0] for side in (given, computed) if side and side[0])
    attributes: dict[str, Attribute] = {"input_formats": given, "output_formats": computed}
    return Label("_".join([op.op_type, *first]), attributes | _kernel_shape(op), ASCEND, has_overloads=True)


def _kernel_shape(op: Op) -> dict[str, Attribute]:
    """The attribute `kernel_shape` of a convolution, since the physical shape of its filter does not determine it."""
    rule = rule_of(op)
    if rule is None or rule.family not in ("convolution", "transposed_convolution"):
        return {}
    filter = op.operand(rule.roles(op)["w"])
    return {} if filter is None or filter.static_shape is None else {"kernel_shape": filter.static_shape[2:]}


def _named(value: Value | None, storage: Storage | None) -> str | None:
    """The name of an operand's format; empty if it is absent or no tensor, None if the format has no name."""
    if value is None or value.dtype is None or storage is None:
        return ""
    return format_name(storage.format, value.dtype)


__all__ = ["ASCEND", "Ascend"]
