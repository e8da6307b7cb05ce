"""Comparison of a rewritten model with the original, relative to the effect of rounding alone; independent of layoutopt."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

Feed = Mapping[str, np.ndarray]

LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL")
DRAWS = 3

FACTOR = 8
"""Largest accepted ratio of the difference to the measured effect of rounding, about that of a Winograd convolution."""

FLOOR = 1e-6
"""Difference that is always accepted, relative to the largest magnitude of the output: 8 units in the last place of float32."""


@dataclass(frozen=True)
class Difference:
    """One output of two models."""

    output: str
    error: float  # the largest difference of the two models
    rounding: float  # the largest difference that rounding alone makes in the original
    scale: float  # the largest magnitude of the original's output; 0 for types other than floating point

    @property
    def is_rounding(self) -> bool:
        """Whether rounding accounts for the difference."""
        return self.error <= FACTOR * self.rounding + FLOOR * self.scale

    @property
    def is_conclusive(self) -> bool:
        """Whether an error of 10 % of the output's largest magnitude would be more than rounding; always for integers."""
        return FACTOR * self.rounding <= 0.1 * self.scale or self.scale == 0


def differences(original: Path, rewritten: Path, feed: Feed) -> list[Difference]:
    """Compares every output of a rewritten model with the original's, next to the effect of rounding."""
    names = [value.name for value in session(original).get_outputs()]
    expected = run(original, feed)
    variants = list(perturbed_outputs(original, feed))
    results = run(rewritten, feed)
    found = []
    for index, (name, array) in enumerate(zip(names, expected, strict=True)):
        rounding = max(distance(array, variant[index]) for variant in variants)
        finite = array[np.isfinite(array)].astype(np.float64) if is_floating(array) else np.zeros(1)
        scale = float(np.abs(finite).max(initial=0))
        found.append(Difference(name, distance(array, results[index]), rounding, scale))
    return found


def distance(expected: np.ndarray, result: np.ndarray) -> float:
    """Largest difference of floating-point values; for other types the share of elements that differ."""
    if expected.shape != result.shape or expected.dtype != result.dtype:
        return float("inf")
    if expected.size == 0:
        return 0.0
    if not is_floating(expected):
        return float(np.mean(expected != result))
    wide, other = expected.astype(np.float64), result.astype(np.float64)
    same = (wide == other) | (np.isnan(wide) & np.isnan(other))
    if not np.array_equal(np.isfinite(wide) | same, np.isfinite(other) | same):
        return float("inf")
    return float(np.abs(np.where(same, 0.0, wide - np.where(same, 0.0, other))).max())


def perturbed_outputs(model: Path, feed: Feed) -> Iterator[list[np.ndarray]]:
    """Outputs of the model at other levels of onnxruntime, and with inputs and weights one unit in the last place off."""
    generator = np.random.default_rng(7)
    for level in LEVELS:
        yield run(model, feed, level)
    for _ in range(DRAWS):
        yield run(model, {name: neighbour(array, generator) for name, array in feed.items()})
    for _ in range(DRAWS):
        yield run(with_neighbouring_weights(model, generator), feed)


def neighbour(array: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The array with every float32 element one unit in the last place up or down.

    Integral elements stay: they are exact, and scales of a Resize, indices or classes among them change extents.
    """
    if array.dtype != np.float32:
        return array
    direction = np.where(generator.random(array.shape) < 0.5, -np.inf, np.inf).astype(np.float32)
    is_exact = ~np.isfinite(array) | (array == np.round(array))
    with np.errstate(over="ignore"):  # the largest number, which masks have, is exact
        return np.where(is_exact, array, np.nextafter(array, direction)).astype(np.float32)


def with_neighbouring_weights(path: Path, generator: np.random.Generator) -> bytes:
    """The model with every float32 weight one unit in the last place up or down."""
    model = onnx.load(path)
    for tensor in weights(model.graph):
        if tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(neighbour(numpy_helper.to_array(tensor), generator), tensor.name))
    return model.SerializeToString()


def weights(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Initializers and Constants of a graph and of all its subgraphs."""
    graphs = [graph]
    while graphs:
        current = graphs.pop()
        yield from current.initializer
        for node in current.node:
            for attribute in node.attribute:
                graphs += [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs
                if node.op_type == "Constant" and attribute.type == onnx.AttributeProto.TENSOR:
                    yield attribute.t


def is_floating(array: np.ndarray) -> bool:
    return np.issubdtype(array.dtype, np.floating)


def run(model: Path | bytes, feed: Feed, level: str = "ORT_ENABLE_ALL") -> Sequence[np.ndarray]:
    """Outputs of a model in stock onnxruntime on one thread."""
    return [np.asarray(each) for each in session(model, level).run(None, dict(feed))]


def session(model: Path | bytes, level: str = "ORT_ENABLE_ALL") -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
