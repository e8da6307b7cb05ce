"""Perturbation of a model by units in the last place, as large as the effect of rounding.

Every element of an input moves by one unit up or down. Weights move by up to four ulps: every product of a weight and an
activation is then rounded differently, as it is when a sum is computed in another order or a factor is folded into the
weights. Results of reductions move by up to sqrt(n) units for n summands, the error of naive summation: kernels for other
formats sum in other orders. Arrays of whole numbers are not perturbed: they are more often extents, indices, masks and scales
than measurements.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from layoutopt.ir.types import Array
from layoutopt.onnx_io.reader.lossless import graphs, nodes
from layoutopt.verification.difference import EPSILONS

WEIGHT_ULPS = 4
"""Largest change of a weight in units in the last place. With 4 the outputs of 60 networks (14 architectures with random
weights, 46 trained models) move 0.2 to 1.8 times as far as those of their rewrites for onnxruntime, Winograd convolutions
included."""

_MAX_PARAMETER_ELEMENTS = 8  # constants of up to 8 elements are scales of a Resize, exponents, thresholds
PERTURBED = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
"""The element types of weights that are perturbed."""

_PIECE = 1 << 22  # elements that are perturbed at a time
MAX_PERTURBED_BYTES = 256_000_000
"""Largest number of bytes of weights that are perturbed, the smallest tensors first; the other tensors stay mapped."""


def perturbed_inputs(feed: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """The inputs of a model with every floating-point element one unit in the last place higher or lower.

    Arrays of whole numbers, and of other element types than those of `EPSILONS`, are the same objects as in `feed`.
    """
    generator = np.random.default_rng(seed)
    return {name: _perturbed(value, generator, 1) for name, value in feed.items()}


def perturb_weights(model: onnx.ModelProto, seed: int, ulps: int = WEIGHT_ULPS) -> bool:
    """Move the weights in a message by up to `ulps` units in the last place, and return whether any weight has moved.

    Tensors in external data, of at most 8 elements, of whole numbers, and beyond `MAX_PERTURBED_BYTES` are not changed.
    """
    generator = np.random.default_rng(seed)
    remaining, is_changed = MAX_PERTURBED_BYTES, False
    for tensor in sorted(_weights(model), key=_count):
        remaining -= _count(tensor) * 4
        if remaining < 0:
            break
        array = numpy_helper.to_array(tensor)
        moved = _perturbed(array, generator, ulps)
        if moved is not array:
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(moved), tensor.name))
            is_changed = True
    return is_changed


_REDUCTIONS = frozenset({"GlobalAveragePool", "ReduceL1", "ReduceL2", "ReduceMean", "ReduceSum", "ReduceSumSquare"})


def perturb_sums(model: onnx.ModelProto, seed: int) -> bool:
    """Move results of reductions by up to sqrt(n) units in the last place, and return whether the main graph has any.

    before: x -> ReduceMean -> y
    after:  x -> ReduceMean -> z      y = z + z u sqrt(size(x) / size(z)) 2^-23, u random in [-1, 1]

    Results must be float32, or float64 from opset 15 on.
    """
    found = [node for node in model.graph.node if node.op_type in _REDUCTIONS]
    has_cast_like = any(opset.domain in ("", "ai.onnx") and opset.version >= 15 for opset in model.opset_import)
    for number, node in enumerate(found):
        _add_noise(model.graph, node, seed + number, has_cast_like=has_cast_like)
    return bool(found)


def _add_noise(graph: onnx.GraphProto, node: onnx.NodeProto, seed: int, *, has_cast_like: bool) -> None:
    """Add noise to the result of one reduction."""
    name, exact = node.output[0], f"{node.output[0]}__exact"
    node.output[0] = exact
    cast = (
        ("CastLike", [f"{exact}_units", exact], "like") if has_cast_like else ("Identity", [f"{exact}_units"], "like")
    )
    made = [
        ("Size", [node.input[0]], "summands"),
        ("Size", [exact], "sums"),
        ("Div", [f"{exact}_summands", f"{exact}_sums"], "terms"),
        ("Cast", [f"{exact}_terms"], "float"),
        ("Sqrt", [f"{exact}_float"], "root"),
        ("Mul", [f"{exact}_root", f"{exact}_unit"], "units"),
        cast,
        ("RandomUniformLike", [exact], "random"),
        ("Mul", [f"{exact}_random", exact], "relative"),
        ("Mul", [f"{exact}_relative", f"{exact}_like"], "noise"),
    ]
    attributes: dict[str, dict[str, Any]] = {
        "Cast": {"to": TensorProto.FLOAT},
        "RandomUniformLike": {"low": -1.0, "high": 1.0, "seed": float(seed)},
    }
    for kind, inputs, word in made:
        graph.node.append(helper.make_node(kind, inputs, [f"{exact}_{word}"], **attributes.get(kind, {})))
    graph.node.append(helper.make_node("Add", [exact, f"{exact}_noise"], [name]))
    graph.initializer.append(numpy_helper.from_array(np.asarray(EPSILONS["float32"], np.float32), f"{exact}_unit"))


def _weights(model: onnx.ModelProto) -> Iterator[TensorProto]:
    initializers = [tensor for graph in graphs(model) for tensor in graph.initializer]
    constants = [attr.t for node in nodes(model) for attr in node.attribute if attr.HasField("t")]
    for tensor in (*initializers, *constants):
        if (
            tensor.data_type in PERTURBED
            and _count(tensor) > _MAX_PARAMETER_ELEMENTS
            and tensor.data_location != TensorProto.EXTERNAL
        ):
            yield tensor


def _count(tensor: TensorProto) -> int:
    return int(np.prod(tensor.dims, dtype=np.int64))


def _perturbed(array: Array, generator: np.random.Generator, ulps: int) -> Array:
    """The array with every element moved by up to `ulps` units in the last place; the same object if it is not perturbed."""
    if not isinstance(array, np.ndarray) or array.dtype.kind == "c" or str(array.dtype) not in EPSILONS:
        return array
    if _is_whole(array):
        return array
    moved = np.empty_like(array, order="C")
    before, after = array.reshape(-1), moved.reshape(-1)
    for start in range(0, array.size, _PIECE):
        piece = before[start : start + _PIECE]
        after[start : start + _PIECE] = _moved(piece, generator, ulps)
    return moved


def _moved(array: Array, generator: np.random.Generator, ulps: int) -> Array:
    steps = generator.integers(-ulps, ulps + 1, array.shape, np.int8) if ulps > 1 else _signs(array, generator)
    wide = array.astype(np.float64 if array.dtype == np.float64 else np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        moved: Array = (wide * (1 + steps * wide.dtype.type(EPSILONS[str(array.dtype)]))).astype(array.dtype)
    finite: Array = np.where(np.isfinite(moved.astype(wide.dtype)), moved, array)  # no new infinities
    return finite


def _signs(array: Array, generator: np.random.Generator) -> Array:
    signs: Array = 2 * generator.integers(0, 2, array.shape, np.int8) - 1
    return signs


def _is_whole(array: Array) -> bool:
    flat = array.reshape(-1)
    for start in range(0, array.size, _PIECE):
        wide = flat[start : start + _PIECE].astype(np.float64)
        finite = wide[np.isfinite(wide)]
        if not np.all(finite == np.round(finite)):
            return False
    return True


__all__ = ["MAX_PERTURBED_BYTES", "PERTURBED", "WEIGHT_ULPS", "perturb_sums", "perturb_weights", "perturbed_inputs"]
