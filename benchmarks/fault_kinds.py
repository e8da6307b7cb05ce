"""Kinds of faults of rewritten models: `FAULTS` has a function per kind, which changes a model."""

from collections.abc import Callable

import numpy as np
import onnx
from onnx import numpy_helper

Rng = np.random.Generator
Fault = Callable[[onnx.ModelProto, Rng], bool]
FAULTS: dict[str, Fault] = {}


def fault(function: Fault) -> Fault:
    """Register a kind of fault: a function that changes a model, and returns False if it does not apply to the model."""
    FAULTS[function.__name__.replace("_", " ")] = function
    return function


# --- weights ---------------------------------------------------------------------------------------------------------


def edit_weight(model: onnx.ModelProto, rng: Rng, change: Callable[[np.ndarray], np.ndarray], rank: int = 2) -> bool:
    """Change one weight of at least `rank` axes."""
    found = [t for t in model.graph.initializer if t.data_type == 1 and len(t.dims) >= rank and np.prod(t.dims) >= 64]
    if not found:
        return False
    tensor = found[rng.integers(len(found))]
    array = numpy_helper.to_array(tensor).copy()
    changed = change(array)
    if changed.shape != array.shape or np.array_equal(changed, numpy_helper.to_array(tensor)):
        return False
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(changed), tensor.name))
    return True


def one_element(array: np.ndarray, rng: Rng, factor: float) -> np.ndarray:
    """The array with one of its larger elements multiplied."""
    large = np.flatnonzero(np.abs(array) >= np.abs(array).mean())
    array.flat[large[rng.integers(large.size)]] *= factor
    return array


@fault
def one_weight_by_1_percent(model: onnx.ModelProto, rng: Rng) -> bool:
    return edit_weight(model, rng, lambda a: one_element(a, rng, 1.01))


@fault
def one_weight_dropped(model: onnx.ModelProto, rng: Rng) -> bool:
    return edit_weight(model, rng, lambda a: one_element(a, rng, 0.0))


@fault
def one_weight_negated(model: onnx.ModelProto, rng: Rng) -> bool:
    return edit_weight(model, rng, lambda a: one_element(a, rng, -1.0))


@fault
def one_channel_by_1_percent(model: onnx.ModelProto, rng: Rng) -> bool:
    def change(array: np.ndarray) -> np.ndarray:
        array[rng.integers(len(array))] *= np.float32(1.01)
        return array

    return edit_weight(model, rng, change)


@fault
def two_channels_swapped(model: onnx.ModelProto, rng: Rng) -> bool:
    def change(array: np.ndarray) -> np.ndarray:
        one, other = rng.choice(len(array), 2, replace=False) if len(array) > 1 else (0, 0)
        array[[one, other]] = array[[other, one]]
        return array

    return edit_weight(model, rng, change)


@fault
def one_channel_dropped(model: onnx.ModelProto, rng: Rng) -> bool:
    def change(array: np.ndarray) -> np.ndarray:
        array[rng.integers(len(array))] = 0
        return array

    return edit_weight(model, rng, change)


@fault
def a_weight_by_0_1_percent(model: onnx.ModelProto, rng: Rng) -> bool:
    return edit_weight(model, rng, lambda a: a * np.float32(1.001))


@fault
def a_weight_in_float16(model: onnx.ModelProto, rng: Rng) -> bool:
    return edit_weight(model, rng, lambda a: a.astype(np.float16).astype(np.float32))


@fault
def a_weight_in_8_bits(model: onnx.ModelProto, rng: Rng) -> bool:
    def change(array: np.ndarray) -> np.ndarray:
        step = np.abs(array).max() / 127
        return (np.round(array / step) * step).astype(np.float32)

    return edit_weight(model, rng, change)


@fault
def a_kernel_turned(model: onnx.ModelProto, rng: Rng) -> bool:
    return edit_weight(model, rng, lambda a: np.swapaxes(a, -1, -2) if a.shape[-1] == a.shape[-2] else a)


@fault
def an_axis_reversed(model: onnx.ModelProto, rng: Rng) -> bool:
    return edit_weight(model, rng, lambda a: np.flip(a, rng.integers(a.ndim)))


# --- vectors ---------------------------------------------------------------------------------------------------------


def edit_vector(model: onnx.ModelProto, rng: Rng, change: Callable[[np.ndarray], np.ndarray]) -> bool:
    """Change a bias or a scale: an initializer with one axis that is longer than 1."""
    found = [
        t
        for t in model.graph.initializer
        if t.data_type == 1
        and sum(d > 1 for d in t.dims) == 1
        and np.prod(t.dims) >= 4
        and np.any(numpy_helper.to_array(t))
    ]
    if not found:
        return False
    tensor = found[rng.integers(len(found))]
    array = numpy_helper.to_array(tensor).copy()
    changed = change(array.reshape(-1)).reshape(array.shape)
    if np.array_equal(changed, numpy_helper.to_array(tensor)):
        return False
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(changed), tensor.name))
    return True


@fault
def a_bias_dropped(model: onnx.ModelProto, rng: Rng) -> bool:
    return edit_vector(model, rng, np.zeros_like)


@fault
def one_bias_by_5_percent(model: onnx.ModelProto, rng: Rng) -> bool:
    return edit_vector(model, rng, lambda a: one_element(a, rng, 1.05))


@fault
def a_bias_shifted_by_one(model: onnx.ModelProto, rng: Rng) -> bool:
    return edit_vector(model, rng, lambda a: np.roll(a, 1))


# --- nodes -----------------------------------------------------------------------------------------------------------


def pick(model: onnx.ModelProto, rng: Rng, *kinds: str) -> onnx.NodeProto | None:
    """A random node of the given kinds, in the main graph or in a function."""
    nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    found = [node for node in nodes if node.op_type in kinds]
    return found[rng.integers(len(found))] if found else None


@fault
def an_epsilon_changed(model: onnx.ModelProto, rng: Rng) -> bool:
    nodes = [node for node in model.graph.node if any(attr.name == "epsilon" for attr in node.attribute)]
    if not nodes:
        return False
    node = nodes[rng.integers(len(nodes))]
    next(attr for attr in node.attribute if attr.name == "epsilon").f *= 100
    return True


@fault
def pads_the_other_way(model: onnx.ModelProto, rng: Rng) -> bool:
    nodes = [
        (node, attr)
        for node in model.graph.node
        for attr in node.attribute
        if attr.name == "pads"
        and list(attr.ints) != [*attr.ints[len(attr.ints) // 2 :], *attr.ints[: len(attr.ints) // 2]]
    ]
    if not nodes:
        return False
    _, attr = nodes[rng.integers(len(nodes))]
    half = len(attr.ints) // 2
    attr.ints[:] = [*attr.ints[half:], *attr.ints[:half]]
    return True


@fault
def a_transpose_of_other_axes(model: onnx.ModelProto, rng: Rng) -> bool:
    node = pick(model, rng, "Transpose")
    if node is None:
        return False
    perm = next(attr.ints for attr in node.attribute if attr.name == "perm")
    one, other = rng.choice(len(perm), 2, replace=False)
    perm[one], perm[other] = perm[other], perm[one]
    return True


@fault
def an_activation_left_out(model: onnx.ModelProto, rng: Rng) -> bool:
    node = pick(model, rng, "Relu", "Sigmoid", "HardSigmoid", "HardSwish", "Erf", "Tanh", "Gelu", "QuickGelu", "Clip")
    if node is None:
        return False
    del node.input[1:], node.attribute[:]
    node.op_type, node.domain = "Identity", ""
    return True


@fault
def a_residual_left_out(model: onnx.ModelProto, rng: Rng) -> bool:
    constants = {tensor.name for tensor in model.graph.initializer}
    nodes = [n for n in model.graph.node if n.op_type == "Add" and not constants & set(n.input)]
    if not nodes:
        return False
    node = nodes[rng.integers(len(nodes))]
    del node.input[1]
    node.op_type = "Identity"
    return True


@fault
def inputs_in_another_order(model: onnx.ModelProto, rng: Rng) -> bool:
    node = pick(model, rng, "Concat", "Sub", "Div", "MatMul")
    if node is None or len(node.input) < 2 or node.input[0] == node.input[1]:
        return False
    node.input[0], node.input[1] = node.input[1], node.input[0]
    return True


@fault
def a_scale_by_1_percent(model: onnx.ModelProto, rng: Rng) -> bool:
    found = [
        t
        for t in model.graph.initializer
        if t.data_type == 1 and np.prod(t.dims) == 1 and np.any(numpy_helper.to_array(t))
    ]
    if not found:
        return False
    tensor = found[rng.integers(len(found))]
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(1.01), tensor.name))
    return True


@fault
def another_way_of_pooling(model: onnx.ModelProto, rng: Rng) -> bool:
    swapped = {"MaxPool": "AveragePool", "AveragePool": "MaxPool", "GlobalAveragePool": "GlobalMaxPool"}
    node = pick(model, rng, *swapped)
    if node is None:
        return False
    kept = [attr for attr in node.attribute if attr.name not in ("count_include_pad", "storage_order")]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.op_type = swapped[node.op_type]
    return True
