"""Fault injection: counts the faults that `layoutopt verify` misses although their effect exceeds that of rounding.

    python benchmarks/faults.py [--networks N ...] [--target T] [--faults PER_KIND] [--seed S]

A network of examples/zoo is optimised, a fault is injected into the result, and the two files are verified. The ground truth is
measured without layoutopt's verification: the largest difference that the fault makes in any output on four inputs, and the
largest difference that rounding makes in the original (inputs or weights moved by one unit in the last place, and onnxruntime
without its optimisations)."""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

import layoutopt
from layoutopt.verification.file_comparison import verify_files

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import zoo

NETWORKS = (
    "keras_mobilenetv3s",
    "mobilenetv2",
    "efficientnet_b0",
    "mobilevit",
    "whisper_enc",
    "sd_vae_decoder",
    "segformer_b0",
    "vit_s",
    "resnet50",
    "keras_densenet121",
)
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


# --- the ground truth ------------------------------------------------------------------------------------------------


def session(model: bytes | str, *, is_optimised: bool = True) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if not is_optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def feeds(model: onnxruntime.InferenceSession, count: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(77)
    shapes = {each.name: [dim if isinstance(dim, int) else 1 for dim in each.shape] for each in model.get_inputs()}
    return [{name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()} for _ in range(count)]


def effect(expected_outputs: list[list[np.ndarray]], actual_outputs: list[list[np.ndarray]]) -> float:
    """The largest difference of an element, relative to the largest magnitude of its output."""
    largest = 0.0
    for expected, actual in (
        (a, b)
        for one, other in zip(expected_outputs, actual_outputs, strict=True)
        for a, b in zip(one, other, strict=True)
    ):
        if expected.shape != actual.shape or np.isnan(expected).any() != np.isnan(actual).any():
            return float("inf")
        largest = max(largest, float(np.abs(expected - actual).max()) / (float(np.abs(expected).max()) or 1.0))
    return largest


@dataclass(frozen=True)
class Outcome:
    """The result of one injected fault; effect and spread are relative to the largest magnitude of an output."""

    network: str
    kind: str
    effect: float
    spread: float
    caught: bool
    reason: str

    @property
    def is_missed(self) -> bool:
        return self.effect > self.spread and not self.caught


def campaign(network: str, target: str, per_kind: int, seed: int, folder: Path) -> Iterator[Outcome]:
    """Faults of every kind in one network."""
    original, rewritten, faulty = (folder / f"{network}.{name}.onnx" for name in ("original", "rewritten", "faulty"))
    onnx.save(zoo.load(network), original)
    layoutopt.optimize(original, target, measure=False, calibrate=False).save(rewritten)
    first, clean = session(str(original)), session(str(rewritten))
    inputs = feeds(first, 4)
    expected_outputs = [first.run(None, feed) for feed in inputs]
    spread = rounding(first, original, inputs, expected_outputs)
    cleans = [clean.run([each.name for each in first.get_outputs()], feed) for feed in inputs]
    verdict = verify_files(original, rewritten)
    yield Outcome(network, "none", effect(expected_outputs, cleans), spread, verdict.status != "passed", verdict.reason)
    for kind, inject in FAULTS.items():
        for number in range(per_kind):
            model = onnx.load(rewritten)
            if not inject(model, np.random.default_rng([seed, number])):
                continue
            onnx.save(model, faulty)
            try:
                broken = session(str(faulty))
                actual_outputs = [broken.run([each.name for each in first.get_outputs()], feed) for feed in inputs]
            except Exception:  # a fault that onnxruntime itself detects is not counted
                continue
            verdict = verify_files(original, faulty)
            yield Outcome(
                network, kind, effect(cleans, actual_outputs), spread, verdict.status == "failed", verdict.reason
            )


def rounding(
    model: onnxruntime.InferenceSession,
    path: Path,
    inputs: list[dict[str, np.ndarray]],
    expected_outputs: list[list[np.ndarray]],
) -> float:
    """The largest difference that rounding makes in the original: in its inputs, its weights and at another level."""
    rng = np.random.default_rng(5)
    moved = [{name: neighbour(x, rng) for name, x in feed.items()} for feed in inputs]
    found = [effect(expected_outputs, [model.run(None, feed) for feed in moved])]
    plain = session(str(path), is_optimised=False)
    found.append(effect(expected_outputs, [plain.run(None, feed) for feed in inputs]))
    for _ in range(3):
        message = onnx.load(path)
        for tensor in message.graph.initializer:
            if tensor.data_type == onnx.TensorProto.FLOAT:
                array = neighbour(numpy_helper.to_array(tensor), rng)
                tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), tensor.name))
        other = session(message.SerializeToString())
        found.append(effect(expected_outputs, [other.run(None, feed) for feed in inputs]))
    return max(found)


def neighbour(array: np.ndarray, rng: Rng) -> np.ndarray:
    """The array with every element that is no whole number one unit in the last place up or down."""
    direction = np.where(rng.random(array.shape) < 0.5, -np.inf, np.inf).astype(array.dtype)
    return np.where(array == np.round(array), array, np.nextafter(array, direction))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--faults", type=int, default=1, help="faults of each kind in each network")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        for network in arguments.networks:
            for each in campaign(network, arguments.target, arguments.faults, arguments.seed, Path(folder)):
                outcomes.append(each)
                mark = "MISSED" if each.is_missed and each.kind != "none" else "caught" if each.caught else "passed"
                print(
                    f"{each.network:20} {each.kind:28} {each.effect:8.1e} {each.spread:8.1e} {mark} {each.reason[:90]}",
                    flush=True,
                )
    faults = [each for each in outcomes if each.kind != "none"]
    above = [each for each in faults if each.effect > each.spread]
    refused = [each for each in outcomes if each.kind == "none" and each.caught]
    print(
        f"{len(faults)} faults of {len({each.kind for each in faults})} kinds in {len(arguments.networks)} networks: "
        f"{len(above)} above the rounding spread, {sum(each.caught for each in above)} of them caught; "
        f"{len(faults) - len(above)} below it, {sum(each.caught for each in faults if each not in above)} of them caught; "
        f"{len(refused)} networks without a fault refused"
    )
    return 1 if refused or any(each.is_missed for each in faults) else 0


if __name__ == "__main__":
    sys.exit(main())
