"""A model with some of its inner values as further outputs, to look inside, or as further inputs, to take it apart."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import onnx
import onnx.helper
import onnx_ir as ir
from onnx import numpy_helper

from layoutopt.ir.types import Array, DType
from layoutopt.onnx_io.serialize import to_bytes, to_proto
from layoutopt.onnx_io.vocabulary import TO_IR


def to_bytes_exposing(model: ir.Model, names: Sequence[str]) -> bytes:
    """The file of the model, with the named values behind its outputs; the model is unchanged afterwards.

    Names that no node of the main graph computes are left out.
    """
    with _exposing(model, names):
        return to_bytes(model)


@contextmanager
def _exposing(model: ir.Model, names: Sequence[str]) -> Iterator[None]:
    """Let a model have more outputs for a while."""
    outputs = model.graph.outputs
    present = {value.name for value in outputs}
    values = {value.name: value for node in model.graph for value in node.outputs}
    count = len(outputs)
    outputs.extend(values[name] for name in names if name in values and name not in present)
    try:
        yield
    finally:
        while len(outputs) > count:
            outputs.pop()


LEAST, MOST, MARGIN = "__least", "__most", "__margin"
"""What the names end in of what an integer might have been rounded to, and of by how much the fractions were changed for it."""


def to_bytes_nudged(model: ir.Model, names: Sequence[str], margins: Mapping[str, Array]) -> bytes:
    """The file of the model with the named values behind its outputs, and with what fractions nearby are rounded to.

    before: x -> QuantizeLinear -> q
    after:  m = margins[q] max |x|      x - m -> QuantizeLinear -> q__least      x + m -> QuantizeLinear -> q__most

    Args:
        model: the model, which is not changed.
        names: values that nodes of the main graph compute.
        margins: for those that are fractions rounded to integers, a number of the fractions' type.
    """
    with _exposing(model, names):
        proto = to_proto(model)
    outputs = {info.name for info in proto.graph.output}
    for node in tuple(proto.graph.node):
        name = node.output[0] if node.output else ""
        if name in outputs and name in margins:
            _nudge(proto.graph, node, margins[name])
    return bytes(proto.SerializeToString(deterministic=True))


def _nudge(graph: onnx.GraphProto, node: onnx.NodeProto, margin: Array) -> None:
    x, name = node.input[0], node.output[0]
    m = f"{name}{MARGIN}"
    size, largest, part = (f"{m}_{word}" for word in ("size", "largest", "part"))
    graph.initializer.append(numpy_helper.from_array(np.asarray(margin), part))
    graph.node.extend(
        [
            onnx.helper.make_node("Abs", [x], [size]),
            onnx.helper.make_node("ReduceMax", [size], [largest], keepdims=0),
            onnx.helper.make_node("Mul", [largest, part], [m]),
        ]
    )
    graph.output.add().name = m  # onnxruntime infers the types
    for kind, end in (("Sub", LEAST), ("Add", MOST)):
        moved, result = f"{name}{end}_before", f"{name}{end}"
        graph.node.append(onnx.helper.make_node(kind, [x, m], [moved]))
        step = graph.node.add()
        step.CopyFrom(node)
        step.name, step.input[0], step.output[0] = result, moved, result
        graph.output.add().name = result


COMPUTED = "__computed"
"""What the name of a value ends in that a model computes where it is cut, and reads from outside instead."""


def to_bytes_cut(model: ir.Model, values: Mapping[str, DType], names: Sequence[str] = ()) -> bytes:
    """The file of the model cut at some values: it takes them as inputs, and gives what it computes in their place.

    Args:
        model: the model, which is not changed.
        values: the names of values that nodes of the main graph compute, and their element types.
        names: further values that come behind the outputs.
    """
    outputs = {value.name for value in model.graph.outputs}
    cut = {name: dtype for name, dtype in values.items() if name not in outputs}
    with _exposing(model, [name for name in names if name not in cut]):
        proto = to_proto(model)
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
