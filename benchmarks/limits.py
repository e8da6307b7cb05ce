"""Where the time of optimised networks is, by kind of kernel, and how near each kind is to the limits of this machine.

    python benchmarks/limits.py [--seconds S] [FILE or NETWORK ...]

Every network is optimised for target `cpu` and runs in stock onnxruntime at default options, on one thread on one CPU. A kernel
is a node of onnxruntime's own optimised form, with the shapes of the run (`executed_kernels`).

The limit of a kernel is the roofline max(operations / peak, bytes / bandwidth). Operations are those of the layout rules, a
multiply-add being two, at the executed shapes: those of Winograd's form, padded channels included. Bytes are those of all
operands, once each; a data-movement op reads no more than it writes; a Reshape moves none. The peak is the better rate of
MatMuls of 512 and 1024 rows, columns and summed elements. The bandwidth is that of a chain of Adds: of the sizes of `ADDED`,
the smallest with as many bytes, so it is that of a cache for tensors that fit into one.

The time of a run is processor time. That of a kernel is its traced time, or from 1 ms on, where other processes often interrupt
it, the processor time of the kernel alone. As other processes also slow down processor time, MatMuls are timed in turns with
the run and the kernels alone, and before every trace; times are scaled by their rate in the same turns to their best rate of
all. Prints a Markdown table per network and one per kind. Without names, the networks of examples/zoo.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from time import thread_time
from typing import Any

import numpy as np
import onnx_ir
from onnx import helper

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import zoo
from executed_kernels import ExecutedKernel, KernelModel, Operand, executed_kernels

import layoutopt
from layoutopt.ir.types import DType, Op, TensorType, Value
from layoutopt.kernel_times.kernels import time_kernels
from layoutopt.onnx_io.vocabulary import attribute_from_ir
from layoutopt.ops import rule_of
from layoutopt.runtime.kernel_queries import BLOCKED_DOMAIN
from layoutopt.runtime.session import inference_session
from layoutopt.sample_inputs import sample_inputs_for
from layoutopt.timing.interleaved import Action, in_rounds, pinned, timed
from layoutopt.verification import Runnable

DATA_MOVEMENT_OPS = frozenset(
    [
        "Concat",
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Identity",
        "Pad",
        "ReorderInput",
        "ReorderOutput",
        "Reshape",
        "ScatterElements",
        "ScatterND",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    ]
)
_KINDS = "products, direct convolutions, Winograd products, Winograd transforms, depthwise, element-wise, moves, other"
KINDS = _KINDS.split(", ")
FAMILIES = {
    **dict.fromkeys(("matmul", "packed_matmul", "attention"), "products"),
    **dict.fromkeys(("convolution", "transposed_convolution"), "direct convolutions"),
    **dict.fromkeys(("elementwise", "normalization", "softmax", "reduction"), "element-wise"),
}
SHARED = frozenset(["Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"])  # the result has the memory of the input
SIDES = (512, 1024)  # of the MatMuls
ADDED = (256 << 10, 4 << 20, 32 << 20)  # bytes of each operand of the Adds
CHAIN_BYTES = 384 << 20  # of all Adds of a chain, a multiple of all sizes
TRACES = 6
LONG = 1e-3  # seconds of a traced kernel from which it is timed alone
TURNS = 90


@dataclass(frozen=True, slots=True)
class Kernel:
    """An executed kernel: its kind, operations and bytes, and its time in operations of a MatMul in the same turns."""

    kind: str
    operations: float
    nbytes: float
    time: float


@dataclass(frozen=True, slots=True)
class Network:
    """A network: the time of a run, in operations of a MatMul in the same turns; its kernels; the rates in all turns."""

    name: str
    time: float
    kernels: Sequence[Kernel]
    rates: Sequence[float]


class Limits:
    """The best rates so far: operations per second, and bytes per second by bytes of all operands."""

    def __init__(self) -> None:
        self.peak = 0.0
        self.bandwidths = {3.0 * size: 0.0 for size in ADDED}
        random = np.random.default_rng(0)
        products = [action(each.serialized(), each.feed(random)) for each in PRODUCTS]
        self.actions = [*products, *map(addition_chain, ADDED)]

    def rate(self, seconds: Sequence[float]) -> float:
        """The better rate of the MatMuls, which counts for the peak."""
        found = max(2 * side**3 / each for side, each in zip(SIDES, seconds, strict=True))
        self.peak = max(self.peak, found)
        return found

    def add(self, seconds: Sequence[float]) -> None:
        """Count the times of the chains of Adds."""
        for size, each in zip(self.bandwidths, seconds, strict=True):
            self.bandwidths[size] = max(self.bandwidths[size], CHAIN_BYTES / each)

    def bytes_per_second(self, nbytes: float) -> float:
        """The best rate for so many bytes or more; that for the most bytes beyond it."""
        return max(each for size, each in self.bandwidths.items() if size >= min(nbytes, max(self.bandwidths)))

    def limit(self, kernel: Kernel) -> float:
        """The least time of a kernel, in operations."""
        return max(kernel.operations, kernel.nbytes * self.peak / self.bytes_per_second(kernel.nbytes))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("networks", nargs="*", metavar="FILE or NETWORK")
    parser.add_argument("--seconds", type=float, default=5.0, help="of untraced runs, per network")
    arguments = parser.parse_args()
    limits, networks = Limits(), []
    with tempfile.TemporaryDirectory() as name:
        for each in arguments.networks or zoo.NAMES:
            path = Path(each) if Path(each).exists() else zoo.save(each, Path(name))
            networks.append(measure(path, Path(name) / "out.onnx", limits, arguments.seconds))
            print(f"{path.stem}: load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    peaks = [each for network in networks for each in network.rates]
    print(f"Peak {limits.peak / 1e9:.0f} GFLOP/s, {min(peaks) / 1e9:.0f} in the slowest turns", end="; Add of ")
    print(", ".join(f"{size / 2**20:.3g} MiB {rate / 1e9:.0f} GB/s" for size, rate in limits.bandwidths.items()))
    print_networks(networks, limits)
    print_kinds([kernel for network in networks for kernel in network.kernels], limits)


def measure(path: Path, out: Path, limits: Limits, seconds: float) -> Network:
    """The times of an optimised network."""
    dims = zoo.SIZES.get(path.stem, {})
    layoutopt.optimize(path, "cpu", dims=dims, measure=False).save(out, force=True)
    model, samples = Runnable.of(out), sample_inputs_for(path, dims, {})
    with pinned(1):
        session = model.timed_session(1)
        feed = samples.feed(session, samples.planned)
        run, *others = quartiles([timed(partial(session.run, None, feed), thread_time), *limits.actions], 6, seconds)
        limits.add(others[len(SIDES) :])
        rates = [limits.rate(others[: len(SIDES)])]
        traces = []
        for _ in range(TRACES):
            rates.append(limits.rate(quartiles(limits.actions[: len(SIDES)], 4)))
            traces.append([(each, each.traced * rates[-1]) for each in executed_kernels(model, feed)])
        traced = [
            (same[0][0], float(np.quantile([time for _, time in same], 0.25))) for same in zip(*traces, strict=True)
        ]
        long = {each.model.key: each.model for each, time in traced if each.model and time >= LONG * limits.peak}
        alone = dict(times_alone(list(long.values()), limits, rates))
    kernels = [Kernel(*work(each), alone.get(each.model.key if each.model else "", time)) for each, time in traced]
    return Network(path.stem, run * rates[0], kernels, rates)


def times_alone(models: Sequence[KernelModel], limits: Limits, rates: list[float]) -> Iterator[tuple[str, float]]:
    """The time of every kernel alone, in operations; appends the rates of the MatMuls to `rates`."""
    for start in range(0, len(models), TURNS):
        found = time_kernels([*models[start : start + TURNS], *PRODUCTS])
        rates.append(limits.rate([found.pop(each.key) or inf for each in PRODUCTS]))
        for key, time in found.items():
            assert time is not None, f"onnxruntime does not run {key}"
            yield key, time * rates[-1]


def quartiles(actions: Sequence[Action], fewest: int, seconds: float = 0.0) -> list[float]:
    """The first quartile of the seconds of each action, in turns after one that does not count."""
    found = in_rounds(actions, lambda done, passed: done > fewest and passed >= seconds)
    return [float(np.quantile(times[1:], 0.25)) for times in found]


def work(kernel: ExecutedKernel) -> tuple[str, float, float]:
    """The kind, operations and bytes of a kernel; those of a kernel with bodies are not known."""
    if kernel.model is None:
        return "other", 0.0, 0.0
    op = op_of(kernel, kernel.model)
    rule = rule_of(op)
    reads = sum(each.nbytes for each in kernel.model.operands if each is not None)
    writes = sum(each.nbytes for each in kernel.results)
    kind, operations = "other", 0.0
    if op.op_type in DATA_MOVEMENT_OPS:
        kind, reads = "moves", min(reads, writes)
    elif rule is not None:
        kind, operations = FAMILIES.get(rule.family, "other"), rule.flops(op)
        kind = "depthwise" if rule.variant(op) == "depthwise" else kind
    if "/winograd/" in kernel.result:
        kind = "Winograd products" if kind == "direct convolutions" else "Winograd transforms"
    return kind, operations, 0.0 if op.op_type in SHARED else float(reads + writes)


def op_of(kernel: ExecutedKernel, model: KernelModel) -> Op:
    """The op for the layout rules; a blocked kernel has the work of the ONNX op of its name."""
    node = model.node
    domain = "" if node.domain == BLOCKED_DOMAIN else node.domain
    read = [model.operands[int(name[1:])] if name else None for name in node.input]
    values = [
        [each and Value("", TensorType(DType.FLOAT32, each.shape)) for each in some] for some in (read, kernel.results)
    ]
    fields = {each.name: attribute_from_ir(onnx_ir.serde.deserialize_attribute(each)) for each in node.attribute}
    version = dict(model.opsets)[domain]
    return Op(node.op_type, *map(tuple, values), domain=domain, version=version, attributes=fields)


def product(side: int) -> KernelModel:
    """A MatMul of square matrices, of which the second one is constant."""
    operands = [Operand("float", (side, side), is_constant=each) for each in (False, True)]
    return KernelModel.of(helper.make_node("MatMul", ["a", "b"], ["y"]), operands, OPSET)


def addition_chain(size: int) -> Action:
    """An action that adds a tensor of `size` bytes as often as makes `CHAIN_BYTES`; each sum is read by the next Add."""
    count = CHAIN_BYTES // (3 * size)
    nodes = [helper.make_node("Add", [f"x{at}", "a"], [f"x{at + 1}"]) for at in range(count)]
    ends = [helper.make_tensor_value_info(name, 1, [size // 4]) for name in ("x0", "a", f"x{count}")]
    model = helper.make_model(helper.make_graph(nodes, "chain", ends[:2], ends[2:]), opset_imports=OPSET, ir_version=10)
    return action(model.SerializeToString(), {name: np.ones(size // 4, np.float32) for name in ("x0", "a")})


def action(model: bytes, feed: dict[str, Any]) -> Action:
    """An action that runs a model, in processor time."""
    return timed(partial(inference_session(model).run, None, feed), thread_time)


OPSET = [helper.make_opsetid("", 18)]
PRODUCTS = [product(side) for side in SIDES]


def print_networks(networks: Sequence[Network], limits: Limits) -> None:
    """A row per network: per kind its share of the kernels' time and the ratio of its limit to its time."""
    print(f"\n| network | run, ms | kernels / run | {' | '.join(KINDS)} | limit / run |\n{'|---' * (len(KINDS) + 4)}|")
    for each in networks:
        total = sum(kernel.time for kernel in each.kernels)
        cells = [f"{1e3 * each.time / limits.peak:.1f}", f"{total / each.time:.2f}"]
        for group in by_kind(each.kernels).values():
            time, limit = (sum(kernel.time for kernel in group), sum(map(limits.limit, group)))
            cells.append(f"{time / total:.0%}, {limit / time:.2f}" if time >= 0.005 * total else "")
        print(f"| {each.name} | {' | '.join(cells)} | {sum(map(limits.limit, each.kernels)) / each.time:.2f} |")


def print_kinds(kernels: Sequence[Kernel], limits: Limits) -> None:
    """A row per kind over all networks: time, rates, and the ratio of the limit to the time."""
    print("\n| kind | kernels | ms | GFLOP/s | GB/s | operations / peak | limit / time |", "|---" * 7 + "|", sep="\n")
    for kind, group in by_kind(kernels).items():
        if group:
            time, operations, nbytes = (
                sum(getattr(each, name) for each in group) for name in ("time", "operations", "nbytes")
            )
            rates = f"{operations / time * limits.peak / 1e9:.1f} | {nbytes / time * limits.peak / 1e9:.1f}"
            ratios = f"{operations / time:.2f} | {sum(map(limits.limit, group)) / time:.2f}"
            print(f"| {kind} | {len(group)} | {1e3 * time / limits.peak:.1f} | {rates} | {ratios} |")


def by_kind(kernels: Sequence[Kernel]) -> dict[str, list[Kernel]]:
    """The kernels of each kind."""
    return {kind: [each for each in kernels if each.kind == kind] for kind in KINDS}


if __name__ == "__main__":
    main()
