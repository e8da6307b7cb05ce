"""Writes a network as a skeleton: its graph, with every large weight replaced by the statistics of its elements.

`examples/zoo/__init__.py` reads the form: a tensor without elements, whose doc_string is `{"normal": [mean, deviation]}`,
`{"uniform": [low, high]}` or `{"fill": value}`. Tensors of at most 1 KiB, integers, booleans and tensors that a caller names
stay as they are. The tensors of Constant nodes are emptied too, at any depth.
"""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnx.helper import tensor_dtype_to_np_dtype

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples"))

import zoo

DEPLOYED = ROOT / "examples" / "zoo" / "deployed"
LARGEST_KEPT = 1024
LARGEST_SCORE = 2.0
"""The largest magnitude of what goes into a Sigmoid or Softmax: larger scores of random weights would saturate all outputs."""


def keep_small(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor stays: it has at most 1 KiB, or its elements are not floating-point values."""
    dtype = tensor_dtype_to_np_dtype(tensor.data_type)
    return not np.issubdtype(dtype, np.floating) or int(np.prod(tensor.dims)) * dtype.itemsize <= LARGEST_KEPT


def write(
    model: onnx.ModelProto,
    name: str,
    feed: Mapping[str, np.ndarray],
    keep: Callable[[onnx.TensorProto], bool] = keep_small,
) -> Path:
    """Write `model` as a skeleton.

    Args:
        model: the network, with its weights.
        name: of the file.
        feed: inputs with which the network and its skeleton are compared.
        keep: whether a tensor keeps its elements.
    """
    remove_texts(model)
    wanted = magnitudes(model, feed)
    wanted.update({name: min(wanted[name], LARGEST_SCORE) for name in scores(model.graph) if name in wanted})
    for tensor in zoo.constants(model.graph):
        if not keep(tensor):
            empty(tensor)
    limit_biases(model, wanted)
    adjust(model, wanted, feed)
    DEPLOYED.mkdir(exist_ok=True)
    path = DEPLOYED / f"{name}.onnx"
    onnx.save(model, path)
    got = magnitudes(zoo.filled(onnx.load(path)), feed)
    apart = [abs(math.log10(got[value] / wanted[value])) for value in got if wanted[value] and got[value]]
    factor = 10 ** max(apart, default=0)
    print(f"{name}: {path.stat().st_size / 1000:.0f} kB, magnitudes differ by at most a factor of {factor:.1f}")
    return path


def adjust(model: onnx.ModelProto, wanted: Mapping[str, float], feed: Mapping[str, np.ndarray]) -> None:
    """Scale the weights of one linear op after the other, so that its output is as large as that of the network's op.

    A tensor of random elements has the statistics of the trained one, but not its correlations: fifty layers in a row would
    amplify that to infinity or to zero.
    """
    full = zoo.filled(copied(model))
    weights, full_weights = emptied(model.graph), read_by(full.graph)
    for node in linear(model.graph):
        name, target = node.input[1], node.output[0]
        if name not in weights or not wanted[target]:
            continue
        got = magnitudes(full, feed, [target])[target]
        if got:
            scale(weights[name], wanted[target] / got)
            scale(full_weights[name], wanted[target] / got)


def magnitudes(model: onnx.ModelProto, feed: Mapping[str, np.ndarray], names: Sequence[str] = ()) -> dict[str, float]:
    """Root mean squares of values by name; by default those of the outputs of linear ops."""
    names = names or [node.output[0] for node in linear(model.graph)] or [model.graph.output[0].name]
    exposed = copied(model)
    own = {value.name for value in model.graph.output}
    exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in own)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(exposed.SerializeToString(), options, providers=["CPUExecutionProvider"])
    values = zip(names, session.run(list(names), dict(feed)), strict=True)
    return {name: float(np.sqrt(np.mean(np.square(value, dtype=np.float64)))) for name, value in values}


def linear(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The products of the outermost graph."""
    return [node for node in graph.node if node.op_type in ("Conv", "ConvTranspose", "MatMul", "Gemm")]


def limit_biases(model: onnx.ModelProto, wanted: Mapping[str, float]) -> None:
    """Scale biases to at most half of the magnitude of their op: a bias with a folded mean would be most of a random output."""
    tensors = read_by(model.graph)
    for output, bias in biases(model.graph):
        if bias not in tensors or not wanted.get(output):
            continue
        array = numpy_helper.to_array(filled_copy(tensors[bias]))
        magnitude = float(np.sqrt(np.mean(np.square(array, dtype=np.float64))))
        if magnitude > wanted[output] / 2:
            scale(tensors[bias], wanted[output] / 2 / magnitude)


def scores(graph: onnx.GraphProto) -> Iterator[str]:
    """Outputs of ops whose results go into a Sigmoid or Softmax, directly or through the Add of a bias."""
    made_by = {name: node for node in graph.node for name in node.output}
    for node in graph.node:
        if node.op_type in ("Sigmoid", "Softmax"):
            source = made_by.get(node.input[0])
            yield node.input[0]
            if source is not None and source.op_type == "Add":
                yield from source.input


def biases(graph: onnx.GraphProto) -> Iterator[tuple[str, str]]:
    """Outputs of linear ops, with the operand that is added in the op or behind it."""
    outputs = {node.output[0] for node in linear(graph)}
    for node in linear(graph):
        if len(node.input) > 2:
            yield node.output[0], node.input[2]
    for node in graph.node:
        if node.op_type == "Add":
            for first, second in (tuple(node.input), tuple(reversed(node.input))):
                if first in outputs:
                    yield first, second


def scale(tensor: onnx.TensorProto, factor: float) -> None:
    """Multiply the elements of a tensor by a factor; of an emptied tensor, the statistics of its elements."""
    if tensor.doc_string.startswith("{"):
        ((kind, values),) = json.loads(tensor.doc_string).items()
        scaled = significant(values * factor) if kind == "fill" else [significant(value * factor) for value in values]
        tensor.doc_string = json.dumps({kind: scaled})
        return
    array = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array((array * factor).astype(array.dtype), tensor.name))


def emptied(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Emptied tensors of the outermost graph, by the names under which nodes read them."""
    return {name: tensor for name, tensor in read_by(graph).items() if tensor.doc_string.startswith("{")}


def read_by(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """The constants of the outermost graph, by the names under which nodes read them."""
    found = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].HasField("t"):
            found[node.output[0]] = node.attribute[0].t
        if node.op_type == "Identity" and node.input[0] in found:
            found[node.output[0]] = found[node.input[0]]
    return found


def filled_copy(tensor: onnx.TensorProto) -> onnx.TensorProto:
    copy = onnx.TensorProto()
    copy.CopyFrom(tensor)
    zoo.fill(copy)
    return copy


def copied(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def empty(tensor: onnx.TensorProto) -> None:
    """Replace the elements of a tensor by their statistics."""
    array = numpy_helper.to_array(tensor).astype(np.float64)
    if np.ptp(array) == 0:
        statistics = {"fill": float(array.flat[0])}
    elif array.min() >= 0:  # variances, scales: a normal distribution would have negative elements
        low, high = np.percentile(array, [5, 95])
        statistics = {"uniform": [significant(low), significant(high)]}
    else:
        mean = 0.0 if array.ndim > 1 else significant(array.mean())  # weights with a mean would make whole ReLUs zero
        statistics = {"normal": [mean, significant(array.std())]}
    kept = onnx.TensorProto(
        name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, doc_string=json.dumps(statistics)
    )
    tensor.CopyFrom(kept)


def significant(number: float) -> float:
    return float(f"{number:.4g}")


def remove_texts(model: onnx.ModelProto) -> None:
    """Remove doc_strings and metadata of nodes and of the model, such as the exporter's stack traces."""
    del model.metadata_props[:]
    model.doc_string = ""

    def visit(graph: onnx.GraphProto) -> None:
        graph.doc_string = ""
        del graph.metadata_props[:]
        for each in (*graph.node, *graph.value_info, *graph.input, *graph.output):
            each.doc_string = ""
            del each.metadata_props[:]
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    visit(attribute.g)

    visit(model.graph)
