"""Fault injection: counts the faults that `layoutopt verify` misses although their effect exceeds that of rounding.

    python benchmarks/faults.py [--networks N ...] [--target T] [--faults PER_KIND] [--seed S]

A network of examples/zoo is optimised, a fault is injected into the result, and the two files are verified. The ground truth is
measured without layoutopt's verification: the largest difference that the fault makes in any output on four inputs, and the
largest difference that rounding makes in the original (inputs or weights moved by one unit in the last place, and onnxruntime
without its optimisations)."""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

import layoutopt
from layoutopt.verification.gate import verify_files

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import zoo
from fault_kinds import FAULTS, Rng

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


@dataclass(frozen=True)
class Subject:
    """A network, its rewritten model, and how they differ without a fault.

    Attributes:
        network: its name.
        original: the file of the network.
        rewritten: the file of the rewritten model.
        names: the outputs, in the order of the original.
        inputs: the inputs on which the models are run.
        expected_outputs: the outputs of the original.
        outputs: those of the rewritten model.
        spread: the largest difference that rounding makes in the original.
    """

    network: str
    original: Path
    rewritten: Path
    names: list[str]
    inputs: list[dict[str, np.ndarray]]
    expected_outputs: list[list[np.ndarray]]
    outputs: list[list[np.ndarray]]
    spread: float


def subject(network: str, target: str, folder: Path) -> Subject:
    """A network, optimised."""
    original, rewritten = (folder / f"{network}.{name}.onnx" for name in ("original", "rewritten"))
    onnx.save(zoo.load(network), original)
    layoutopt.optimize(original, target, measure=False, calibrate=False).save(rewritten)
    first, clean = session(str(original)), session(str(rewritten))
    inputs = feeds(first, 4)
    names = [each.name for each in first.get_outputs()]
    expected_outputs = [first.run(None, feed) for feed in inputs]
    outputs = [clean.run(names, feed) for feed in inputs]
    spread = rounding(first, original, inputs, expected_outputs)
    return Subject(network, original, rewritten, names, inputs, expected_outputs, outputs, spread)


def without_fault(given: Subject) -> Outcome:
    """The outcome of the rewritten model itself, which verification must accept."""
    verdict = verify_files(given.original, given.rewritten)
    moved = effect(given.expected_outputs, given.outputs)
    return Outcome(given.network, "none", moved, given.spread, verdict.status != "passed", verdict.reason)


def with_fault(given: Subject, kind: str, rng: Rng, faulty: Path) -> Outcome | None:
    """The outcome of a fault, written to `faulty`; None if it does not apply, or onnxruntime itself refuses the model."""
    model = onnx.load(given.rewritten)
    if not FAULTS[kind](model, rng):
        return None
    onnx.save(model, faulty)
    try:
        broken = session(str(faulty))
        actual_outputs = [broken.run(given.names, feed) for feed in given.inputs]
    except Exception:
        return None
    verdict = verify_files(given.original, faulty)
    moved = effect(given.outputs, actual_outputs)
    return Outcome(given.network, kind, moved, given.spread, verdict.status == "failed", verdict.reason)


def campaign(network: str, target: str, per_kind: int, seed: int, folder: Path) -> Iterator[Outcome]:
    """Faults of every kind in one network."""
    given = subject(network, target, folder)
    yield without_fault(given)
    for kind in FAULTS:
        for number in range(per_kind):
            outcome = with_fault(given, kind, np.random.default_rng([seed, number]), folder / f"{network}.faulty.onnx")
            if outcome is not None:
                yield outcome


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
