"""Constant nodes as tensors: the value of the node, which is one of seven attributes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from layoutopt.ir.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class NodeData:
    """The elements of a Constant node, which is emitted as the same node at the same position.

    `position` is the position of the node in the file, as in `Op.order`.
    """

    node: ir.Node
    tensor: ir.TensorProtocol
    position: int

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return int(self.tensor.nbytes)

    def numpy(self) -> Array:
        """The elements as an array."""
        return self.tensor.numpy()


def constant_tensor(node: ir.Node) -> ir.TensorProtocol | None:
    """The tensor of a Constant node; None for any other node, and for attributes that are not tensors."""
    if (node.domain, node.op_type) != ("", "Constant") or len(node.attributes) != 1 or len(node.outputs) != 1:
        return None
    attr = next(iter(node.attributes.values()))
    if attr.is_ref() or node.inputs or not node.outputs[0].name:
        return None
    return _tensor(attr)


def _tensor(attr: ir.Attr) -> ir.TensorProtocol | None:
    value: Any = attr.value
    match attr.name, attr.type.name:
        case "value", "TENSOR":
            return attr.as_tensor()
        case ("value_float", "FLOAT") | ("value_floats", "FLOATS"):
            return ir.Tensor(np.array(value, np.float32))
        case ("value_int", "INT") | ("value_ints", "INTS"):
            return ir.Tensor(np.array(value, np.int64))
        case "value_string", "STRING":
            return ir.StringTensor([_bytes(value)], shape=ir.Shape([]))
        case "value_strings", "STRINGS":
            return ir.StringTensor([_bytes(item) for item in value], shape=ir.Shape([len(value)]))
    return None


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
