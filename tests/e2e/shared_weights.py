"""Models whose files grow unless an optimiser avoids it: shared, repeated and narrow weights."""

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from layoutopt.ir.types import Array

Nodes = list[onnx.NodeProto]
CHANNELS, IMAGE = 32, 12


def model(nodes: Nodes, weights: dict[str, Array], shape: list[int], opset: int = 17) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def random(*shape: int, dtype: type = np.float32, seed: int = 0) -> Array:
    numbers = np.random.default_rng(seed).standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    if np.issubdtype(dtype, np.integer):
        return np.clip(np.round(numbers * 127 * np.sqrt(np.prod(shape[1:])) / 3), -127, 127).astype(dtype)
    return numbers.astype(dtype)


def filters(dtype: type = np.float32, seed: int = 0) -> Array:
    return random(CHANNELS, CHANNELS, 3, 3, dtype=dtype, seed=seed)


def chain(layers: int, before: Callable[[int], tuple[Nodes, str]]) -> Nodes:
    """Convolutions and Relus one behind the other; `before` gives the nodes that compute a layer's filter, and its name."""
    nodes: Nodes = []
    for layer in range(layers):
        made, weight = before(layer)
        source, result = f"h{layer}" if layer else "x", f"h{layer + 1}" if layer + 1 < layers else "y"
        nodes += [
            *made,
            helper.make_node("Conv", [source, weight], [f"c{layer}"], pads=[1] * 4),
            helper.make_node("Relu", [f"c{layer}"], [result]),
        ]
    return nodes


IMAGES = [1, CHANNELS, IMAGE, IMAGE]


def by_identity() -> onnx.ModelProto:
    def before(layer: int) -> tuple[Nodes, str]:
        return [helper.make_node("Identity", ["w"], [f"w{layer}"])], f"w{layer}"

    return model(chain(6, before), {"w": filters()}, IMAGES)


def by_many_layers() -> onnx.ModelProto:
    return model(chain(30, lambda layer: ([], "w")), {"w": filters()}, IMAGES)


def repeated() -> onnx.ModelProto:
    weights = {f"w{layer}": filters(seed=layer % 2) for layer in range(8)}
    return model(chain(8, lambda layer: ([], f"w{layer}")), weights, IMAGES)


def repeated_constants() -> onnx.ModelProto:
    def before(layer: int) -> tuple[Nodes, str]:
        value = numpy_helper.from_array(filters())
        return [helper.make_node("Constant", [], [f"w{layer}"], value=value)], f"w{layer}"

    return model(chain(6, before), {}, IMAGES)


def transposed_by_each() -> onnx.ModelProto:
    def before(layer: int) -> tuple[Nodes, str]:
        return [helper.make_node("Transpose", ["w"], [f"w{layer}"], perm=[1, 0, 2, 3])], f"w{layer}"

    return model(chain(6, before), {"w": filters()}, IMAGES)


def half() -> onnx.ModelProto:
    def before(layer: int) -> tuple[Nodes, str]:
        return [helper.make_node("Cast", [f"w{layer}"], [f"f{layer}"], to=TensorProto.FLOAT)], f"f{layer}"

    weights = {f"w{layer}": filters(np.float16, layer) for layer in range(8)}
    return model(chain(8, before), weights, IMAGES)


def full() -> onnx.ModelProto:
    """`half` without the Casts, and with the same numbers."""
    weights: dict[str, Array] = {f"w{layer}": filters(np.float16, layer).astype(np.float32) for layer in range(8)}
    return model(chain(8, lambda layer: ([], f"w{layer}")), weights, IMAGES)


def scaled_integers() -> onnx.ModelProto:
    def before(layer: int) -> tuple[Nodes, str]:
        return [
            helper.make_node("Cast", [f"w{layer}"], [f"i{layer}"], to=TensorProto.FLOAT),
            helper.make_node("Mul", [f"i{layer}", "scale"], [f"f{layer}"]),
        ], f"f{layer}"

    weights: dict[str, Array] = {f"w{layer}": filters(np.int8, layer) for layer in range(12)}
    weights["scale"] = np.full((CHANNELS, 1, 1, 1), 0.002, np.float32)
    return model(chain(12, before), weights, IMAGES)


def dequantized() -> onnx.ModelProto:
    def before(layer: int) -> tuple[Nodes, str]:
        names = [f"w{layer}", "scale", "zero"]
        return [helper.make_node("DequantizeLinear", names, [f"f{layer}"], axis=0)], f"f{layer}"

    weights: dict[str, Array] = {f"w{layer}": filters(np.int8, layer) for layer in range(6)}
    weights["scale"] = np.full((CHANNELS,), 0.002, np.float32)
    weights["zero"] = np.zeros((CHANNELS,), np.int8)
    return model(chain(6, before), weights, IMAGES)


def tied_embeddings() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Cast", ["x"], ["ids"], to=TensorProto.INT64),
        helper.make_node("Gather", ["w", "ids"], ["a"]),
        helper.make_node("MatMul", ["a", "v"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["c", "t"], ["y"]),
    ]
    return model(nodes, {"w": random(512, 64), "v": random(64, 64)}, [1, 16])


def fourier_tables() -> onnx.ModelProto:
    """Tables of cosines that a model computes from two short ranges."""
    nodes = [
        helper.make_node("Mul", ["column", "row"], ["angles"]),
        helper.make_node("Cos", ["angles"], ["table"]),
        helper.make_node("MatMul", ["x", "table"], ["y"]),
    ]
    row = np.arange(1024, dtype=np.float32)[None] * np.float32(2 * np.pi / 1024)
    return model(nodes, {"column": np.arange(1024, dtype=np.float32)[:, None], "row": row}, [1, 1024])


def in_branches() -> onnx.ModelProto:
    """Both branches of an If read the filter of the main graph, under names of their own for it."""

    def branch(name: str) -> onnx.GraphProto:
        nodes = [
            helper.make_node("Identity", ["w"], [f"{name}_w"]),
            helper.make_node("Conv", ["a", f"{name}_w"], [f"{name}_c"], pads=[1] * 4),
            helper.make_node("Relu" if name == "then" else "Tanh", [f"{name}_c"], [f"{name}_y"]),
        ]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)])

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        helper.make_node("ReduceSum", ["a"], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["is_positive"]),
        helper.make_node("If", ["is_positive"], ["y"], then_branch=branch("then"), else_branch=branch("else")),
    ]
    return model(nodes, {"w": filters(), "zero": np.zeros((), np.float32)}, IMAGES)


def with_own_biases() -> onnx.ModelProto:
    """One filter read by layers that add different numbers to its results."""
    return _with_affines("Add", {})


def scaled_channels() -> onnx.ModelProto:
    """Filters of their own, and numbers that their results are multiplied by."""
    return _with_affines("Mul", {f"w{layer}": filters(seed=layer) for layer in range(6)})


def _with_affines(kind: str, weights: dict[str, Array]) -> onnx.ModelProto:
    nodes: Nodes = []
    for layer in range(6):
        source, result = f"h{layer}" if layer else "x", f"h{layer + 1}" if layer < 5 else "y"
        nodes += [
            helper.make_node("Conv", [source, f"w{layer}" if weights else "w"], [f"c{layer}"], pads=[1] * 4),
            helper.make_node(kind, [f"c{layer}", f"b{layer}"], [f"a{layer}"]),
            helper.make_node("Relu", [f"a{layer}"], [result]),
        ]
    numbers = {f"b{layer}": random(1, CHANNELS, 1, 1, seed=layer) + 1 for layer in range(6)}
    return model(nodes, {**(weights or {"w": filters()}), **numbers}, IMAGES)


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    each.__name__: each
    for each in (
        by_identity,
        by_many_layers,
        repeated,
        repeated_constants,
        transposed_by_each,
        half,
        scaled_integers,
        dequantized,
        tied_embeddings,
        fourier_tables,
        in_branches,
        with_own_biases,
        scaled_channels,
    )
}
