"""Upcast of a model: float32 instead of float16 and bfloat16, to compare models without the rounding errors of these types.

before: x: float16 -> Conv (w: float16) -> y: float16
after:  x: float16 -> Cast -> Conv (w: float32) -> y: float32

Constants keep their values. Inputs keep their types, so that the model takes the same feed.
"""

from collections.abc import Iterator
from os import PathLike

import numpy as np
import onnx
import onnx.helper
from onnx import TensorProto, numpy_helper

from layoutopt.onnx_io.messages import graphs, nodes

NARROW = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
_TYPE_ATTRIBUTES = frozenset({"to", "dtype", "output_dtype", "output_datatype", "softmax_precision"})
_WIDE = "__wide"
_LIMIT = 1_900_000_000  # bytes; protobuf's limit is 2 GiB


def upcast_to_float32(model: bytes | str | PathLike[str]) -> bytes | None:
    """The serialised model with float32 computations; None if it would be too large for one file.

    An op that depends on the width of a type, such as BitCast, changes its result or makes the model invalid.
    """
    proto = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model)
    if 2 * proto.ByteSize() > _LIMIT:
        return None
    for tensor in _tensors(proto):
        if tensor.data_type in NARROW:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
    for node in nodes(proto):
        for attribute in node.attribute:
            if attribute.name in _TYPE_ATTRIBUTES and attribute.i in NARROW:
                attribute.i = TensorProto.FLOAT
    for graph in graphs(proto):
        del graph.value_info[:]
        for info in (*(graph.input if graph is not proto.graph else ()), *graph.output):
            if info.type.tensor_type.elem_type in NARROW:
                info.type.tensor_type.elem_type = TensorProto.FLOAT
    for function in proto.functions:
        del function.value_info[:]
    _cast_inputs(proto)
    return bytes(proto.SerializeToString(deterministic=True))


def has_float16(model: bytes | str | PathLike[str]) -> bool:
    """Whether a model has a float16 tensor: an input, a constant, or the result of a Cast."""
    proto = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model, load_external_data=False)
    given = (info.type.tensor_type.elem_type for graph in graphs(proto) for info in graph.input)
    initializers = (tensor.data_type for tensor in _tensors(proto))
    made = (attr.i for node in nodes(proto) for attr in node.attribute if attr.name in _TYPE_ATTRIBUTES)
    return any(TensorProto.FLOAT16 in types for types in (given, initializers, made))


def _tensors(proto: onnx.ModelProto) -> Iterator[TensorProto]:
    for graph in graphs(proto):
        yield from graph.initializer
        yield from (sparse.values for sparse in graph.sparse_initializer)
    for node in nodes(proto):
        for attribute in node.attribute:
            yield from ([attribute.t] if attribute.HasField("t") else [])
            yield from attribute.tensors


def _cast_inputs(proto: onnx.ModelProto) -> None:
    """Cast the 16-bit inputs to float32 for all their uses; an input with an initializer becomes float32 with it."""
    graph = proto.graph
    constants = {tensor.name for tensor in graph.initializer}
    narrow = [info for info in graph.input if info.type.tensor_type.elem_type in NARROW]
    names = [info.name for info in narrow if info.name not in constants]
    for info in narrow:
        if info.name in constants:
            info.type.tensor_type.elem_type = TensorProto.FLOAT
    inside = [node for each in graphs(proto) for node in each.node]
    for node in inside:
        for index, name in enumerate(node.input):
            if name in names:
                node.input[index] = f"{name}{_WIDE}"
    casts = [onnx.helper.make_node("Cast", [name], [f"{name}{_WIDE}"], to=TensorProto.FLOAT) for name in names]
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*casts, *rest])
