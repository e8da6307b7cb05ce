"""A model with some of its inner values as further outputs, to look inside, or as further inputs, to take it apart."""

from collections.abc import Mapping, Sequence

import onnx
import onnx.helper
import onnx_ir as ir

from layoutopt.ir.types import DType
from layoutopt.onnx_io.serialize import to_bytes, to_proto
from layoutopt.onnx_io.vocabulary import TO_IR


def to_bytes_exposing(model: ir.Model, names: Sequence[str]) -> bytes:
    """The file of the model, with the named values behind its outputs; the model is unchanged afterwards.

    Names that no node of the main graph computes are left out.
    """
    outputs = model.graph.outputs
    present = {value.name for value in outputs}
    values = {value.name: value for node in model.graph for value in node.outputs}
    count = len(outputs)
    outputs.extend(values[name] for name in names if name in values and name not in present)
    try:
        return to_bytes(model)
    finally:
        while len(outputs) > count:
            outputs.pop()


COMPUTED = "__computed"
"""What the name of a value ends in that a model computes where it is cut, and reads from outside instead."""


def to_bytes_cut(model: ir.Model, values: Mapping[str, DType]) -> bytes:
    """The file of the model cut at some values: it takes them as inputs, and gives what it computes in their place.

    Args:
        model: the model, which is not changed.
        values: the names of values that nodes of the main graph compute, and their element types.
    """
    proto = to_proto(model)
    outputs = {info.name for info in proto.graph.output}
    cut = {name: dtype for name, dtype in values.items() if name not in outputs}
    del proto.graph.value_info[:]
    for node in proto.graph.node:
        for index, name in enumerate(node.output):
            if name in cut:
                node.output[index] = f"{name}{COMPUTED}"
    for name, dtype in cut.items():
        element = int(TO_IR[dtype])
        proto.graph.input.append(onnx.helper.make_tensor_value_info(name, element, None))
        proto.graph.output.append(onnx.helper.make_tensor_value_info(f"{name}{COMPUTED}", element, None))
    return bytes(proto.SerializeToString(deterministic=True))
