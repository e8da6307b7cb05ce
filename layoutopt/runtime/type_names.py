"""Type names of onnxruntime, such as `tensor(float)` or `seq(map(string,tensor(int64)))`: from onnx_ir, and to TypeProto."""

from collections.abc import Mapping

import onnx
import onnx_ir as ir
from onnx import helper

UNKNOWN_TYPE = "unknown"

_CONSTRUCTORS: Mapping[type, str] = {
    ir.TensorType: "tensor",
    ir.SequenceType: "seq",
    ir.OptionalType: "optional",
}
_FROM_LABEL = {"float32": "float", "float64": "double"}  # all other names are the same as in numpy
_TO_LABEL = {name: label for label, name in _FROM_LABEL.items()}


def type_name(type_: ir.TypeProtocol | None) -> str:
    """The name of a type; `unknown` if the type is missing or incomplete."""
    if type_ is None or type(type_) not in _CONSTRUCTORS:
        return UNKNOWN_TYPE
    held = type_.elem_type
    inner = held.name.lower() if isinstance(held, ir.DataType) else type_name(held)
    return UNKNOWN_TYPE if inner in (UNKNOWN_TYPE, "undefined") else f"{_CONSTRUCTORS[type(type_)]}({inner})"


def tensor_name(dtype: str) -> str:
    """The name of a tensor type, `tensor(float)` for float32."""
    return f"tensor({_FROM_LABEL.get(dtype, dtype)})"


def short_name(name: str) -> str:
    """The element type of a tensor type, float32 for `tensor(float)`; other types keep their names."""
    inner = name.removeprefix("tensor(").removesuffix(")")
    return _TO_LABEL.get(inner, inner) if name == f"tensor({inner})" else name


def type_proto(name: str) -> onnx.TypeProto:
    """The TypeProto of a type name.

    Raises:
        ValueError: there is no such type.
    """
    kind, _, inner = name.removesuffix(")").partition("(")
    match kind:
        case "tensor":
            return helper.make_tensor_type_proto(_element(inner), None)
        case "seq":
            return helper.make_sequence_type_proto(type_proto(inner))
        case "optional":
            return helper.make_optional_type_proto(type_proto(inner))
        case "map":
            key, _, value = inner.partition(",")
            return helper.make_map_type_proto(_element(key), type_proto(value))
    raise ValueError(f"not a type: {name!r}")


def _element(name: str) -> int:
    return int(onnx.TensorProto.DataType.Value(name.upper()))
