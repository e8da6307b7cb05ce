"""onnx's inference for an op whose bodies have no rule, such as SequenceMap: that of the node that it was lifted from."""

from collections.abc import Mapping, Sequence

import onnx
import onnx.helper
import onnx_ir as ir

from layoutopt.inference.merge import ValueType
from layoutopt.inference.onnx_inference import InferredType, infer_with_schema, type_proto
from layoutopt.ir.types import Op
from layoutopt.onnx_io.converter.captures import captures_of
from layoutopt.onnx_io.schema import find_schema


def infer_bodied_node(op: Op, types: Sequence[ValueType | None], opsets: Mapping[str, int]) -> list[InferredType]:
    """The types of the outputs of an op with bodies.

    Args:
        op: the op.
        types: the types of its inputs, None for absent ones; those that its bodies capture are the last ones.
        opsets: the opsets of the model.

    Raises:
        SHAPE_ERRORS, TYPE_ERROR: as for `infer_node`.
    """
    schema = find_schema(op.op_type, op.domain, op.version)
    if schema is None or not isinstance(op.origin, ir.Node):
        return [None] * len(op.outputs)
    names = [value.name if value is not None else "" for value in op.origin.inputs]
    names += list(captures_of(op.origin))
    given = {name: type_proto(type) for name, type in zip(names, types, strict=True) if name and type is not None}
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    proto: onnx.NodeProto = ir.serde.serialize_node(op.origin)
    found = infer_with_schema(schema, proto, given, {}, imports)
    return [found.get(value.name or "") for value in op.origin.outputs]  # a message has no absent outputs at its end


__all__ = ["infer_bodied_node"]
