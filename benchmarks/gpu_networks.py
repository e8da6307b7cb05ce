"""Predicted against measured speed-ups of plans for a GPU target, in PyTorch on the GPU of this machine.

    python benchmarks/gpu_networks.py [--target gpu-hopper] [--device cuda] [--batches 1,16] [--dtypes float32,float16]
        [--json FILE] [NETWORK ...]

It requires the extra `torch`. Every network runs in three ways, by the same code: as planned, all in NCHW and all in
channels-last. Every op is one call of PyTorch, which selects its kernel by the strides of the operands, and a run is one replay
of a CUDA graph, without the launches of the host. The ways run in turns; times are medians.

The prediction is the sum of the target's prices of the same ops and conversions, each for itself, since PyTorch does not fuse
them here. Prints a Markdown table and Spearman's rank correlation, the median and the largest error of the predicted speed-ups.
--json also writes the time and the price of every op, measured alone, which show where a target is wrong.

Networks are those of examples/zoo; of those with images of a fixed size, a second batch size is measured where the network has
no shape that depends on it. `error` is the largest difference from onnxruntime's outputs, relative to the largest magnitude.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import numpy as np
import onnx
import onnxruntime
import torch
import zoo
from gpu_truth import NCHW, NHWC, device_name
from narrow_models import to_float16
from random_inputs import random_inputs
from torch_graph import TorchGraph, UnsupportedError

import layoutopt
from layoutopt.calibrate.agreement import median_error, rank_correlation
from layoutopt.cost_models import RooflineModel, load_target
from layoutopt.cost_models.roofline import structure
from layoutopt.errors import LayoutoptError
from layoutopt.formats import Format
from layoutopt.ir.graph import is_cast
from layoutopt.ir.types import Op, Slot, Storage, Value

CALLS = 10  # calls of one op in a CUDA graph


@dataclass
class OpTime:
    """An op of one way: how often the way has it, its price, and its time alone, in seconds."""

    kind: str
    detail: str
    formats: str
    count: int
    price: float
    seconds: float


@dataclass
class Way:
    """A network with the formats of one way: its name, its price and its time, in seconds, and its ops."""

    name: str
    price: float
    seconds: float
    restrided: int
    ops: list[OpTime] = field(default_factory=list)


@dataclass
class Row:
    """One network at one batch size and element type."""

    network: str
    dtype: str
    batch: int
    error: float
    ways: list[Way]

    def speed_ups(self) -> Iterator[tuple[float, float]]:
        """Predicted and measured speed-ups of the plan over the two other ways."""
        planned, *others = self.ways
        for each in others:
            yield each.price / planned.price, each.seconds / planned.seconds


class Prefers:
    """A cost model with a kernel for one format of images, and no other kernel."""

    dialect = "functions"

    def __init__(self, format: Format) -> None:
        self.name, self.format = str(format), format

    def preferred_formats(self, op: Op) -> Sequence[dict[Slot, Format]]:
        x = op.inputs[0] if op.inputs else None
        return [{Slot("in", 0): self.format}] if x is not None and x.rank == 4 else []

    def kernel_seconds(self, op: Op, signature: Any) -> float:
        x, storage = op.inputs[0] if op.inputs else None, signature.inputs[0] if signature.inputs else None
        return 1.0 if x is not None and x.rank == 4 and storage is not None and storage.format != self.format else 0.0

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        return 0.0 if value.shape is None or src.format.same_bytes(dst.format, value.shape) else 0.1


def forced(model: onnx.ModelProto, format: Format, **options: Any) -> layoutopt.Result:
    """The network with its images in one format."""
    return layoutopt.optimize(model, Prefers(format), **options)


def captured(run: Callable[[], object], device: str) -> Callable[[], object]:
    """A call that replays a run as a CUDA graph; the run itself on other devices."""
    if not device.startswith("cuda"):
        return run
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def seconds(calls: Sequence[Callable[[], object]], device: str, rounds: int) -> list[float]:
    """The median seconds of each of several calls, in turns."""
    taken: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for each, call in zip(taken, calls, strict=True):
            each.append(_once(call, device))
    return [statistics.median(each) for each in taken]


def _once(call: Callable[[], object], device: str) -> float:
    if not device.startswith("cuda"):
        start = perf_counter()
        call()
        return perf_counter() - start
    start_event, end_event = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    call()
    start_event.record()
    call()
    end_event.record()
    torch.cuda.synchronize()
    return float(start_event.elapsed_time(end_event)) / 1e3


def price(model: RooflineModel, op: Op) -> float:
    """The target's price of an op, or of a conversion, under its planned formats."""
    assert op.signature is not None
    if is_cast(op):
        x, (src,), (dst,) = op.inputs[0], op.signature.inputs, op.signature.outputs
        assert x is not None and src is not None and dst is not None
        return model.conversion_seconds(x, src, dst)
    return model.kernel_seconds(op, op.signature)


def op_times(
    graph: TorchGraph, feed: Mapping[Any, Any], model: RooflineModel, device: str, rounds: int
) -> list[OpTime]:
    """The ops of a way with their prices and their times alone; equal ops are timed once."""
    known: dict[Any, Any] = {**graph.constants, **feed}
    found: dict[Any, OpTime] = {}
    for op in graph.graph.ops:
        known.update(zip(op.outputs, graph.call(op, known), strict=False))
        assert op.signature is not None
        formats = ", ".join(
            "-" if each is None else str(each.format) for each in (*op.signature.inputs, *op.signature.outputs)
        )
        key = (structure(op), formats)
        if key not in found:
            replay = captured(lambda op=op: [graph.call(op, known) for _ in range(CALLS)], device)  # type: ignore[misc]
            (taken,) = seconds([replay], device, rounds)
            shapes = " ".join("x".join(map(str, each.shape or ())) or "1" for each in (*op.inputs, *op.outputs) if each)
            group = f" group {op.integer('group', 1)}" if "group" in op.attributes else ""
            found[key] = OpTime(op.kind, shapes + group, formats, 0, price(model, op), taken / CALLS)
        found[key].count += 1
    return list(found.values())


def at_batch(model: onnx.ModelProto, batch: int) -> onnx.ModelProto:
    """The network with images of another batch size.

    Raises:
        UnsupportedError: a shape in the network depends on the batch size.
    """
    if batch == 1:
        return model
    for given in (*model.graph.input, *model.graph.output):
        dims = given.type.tensor_type.shape.dim
        if len(dims) < 2 or dims[0].dim_value != 1:
            raise UnsupportedError("no batch of 1")
        dims[0].dim_value = batch
    del model.graph.value_info[:]
    try:
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        _session(model)
    except Exception as error:
        raise UnsupportedError("a shape depends on the batch size") from error
    return model


def _session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def measure(name: str, dtype: str, batch: int, target: str, device: str, rounds: int) -> Row:
    """One network in three ways.

    Raises:
        UnsupportedError: PyTorch cannot run the plan, or the network has no such batch size.
        LayoutoptError: the network cannot be planned in this way.
    """
    model = at_batch(zoo.load(name), batch)
    sizes = zoo.SIZES.get(name, {})
    feed = random_inputs(_session(model), sizes)
    expected = _session(model).run(None, feed)
    if dtype == "float16":
        model = to_float16(model)
        feed = {key: each.astype(np.float16) if each.dtype == np.float32 else each for key, each in feed.items()}
    options: dict[str, Any] = {"runtime": "compiler", "verify": False, "dims": sizes or None}
    planned = layoutopt.optimize(model, target, **options)
    graphs = [
        TorchGraph(each.graph, device)
        for each in (planned, forced(model, NCHW, **options), forced(model, NHWC, **options))
    ]
    fed = [each.inputs(feed) for each in graphs]
    actual = [each.float().cpu().numpy() for each in graphs[0].run(fed[0])]
    error = max(
        float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-30))
        for a, b in zip(expected, actual, strict=True)
        if a.size
    )
    runs = [
        captured(lambda each=each, given=given: each.run(given), device)
        for each, given in zip(graphs, fed, strict=True)
    ]  # type: ignore[misc]
    taken = seconds(runs, device, rounds)
    prices = load_target(target)
    ways = []
    for way, graph, given, measured in zip(("planned", "NCHW", "NHWC"), graphs, fed, taken, strict=True):
        graph.run(given)
        restrided = graph.restrided
        ops = op_times(graph, given, prices, device, max(3, rounds // 3))
        ways.append(Way(way, sum(each.price * each.count for each in ops), measured, restrided, ops))
    return Row(name, dtype, batch, error, ways)


def lines(rows: Iterator[Row | str], found: list[Row]) -> Iterator[str]:
    """The lines of the table; rows are added to `found`."""
    yield (
        "| network | type | batch | over NCHW: predicted | measured | over NHWC: predicted | measured "
        "| planned, ms | restrided | error |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        if isinstance(row, str):
            yield row
            continue
        found.append(row)
        (nchw, over_nchw), (nhwc, over_nhwc) = row.speed_ups()
        yield (
            f"| {row.network} | {row.dtype} | {row.batch} | {nchw:.2f} | {over_nchw:.2f} | {nhwc:.2f} | {over_nhwc:.2f} "
            f"| {row.ways[0].seconds * 1e3:.3f} | {row.ways[0].restrided} | {row.error:.0e} |"
        )


def measured_rows(arguments: argparse.Namespace) -> Iterator[Row | str]:
    """The rows of all networks, or a line with the reason why one has none."""
    for name in arguments.networks or [*zoo.NAMES, *zoo.DEPLOYED]:
        for batch in map(int, arguments.batches.split(",")):
            for dtype in arguments.dtypes.split(","):
                try:
                    yield measure(name, dtype, batch, arguments.target, arguments.device, arguments.rounds)
                except (UnsupportedError, LayoutoptError, RuntimeError) as reason:
                    yield f"| {name} | {dtype} | {batch} | not run: {str(reason).splitlines()[0][:100]} | | | | | | |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK")
    parser.add_argument("--target", default="gpu-hopper")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batches", default="1,16")
    parser.add_argument("--dtypes", default="float32,float16")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = True
    print(f"{device_name(arguments.device)}, PyTorch {torch.__version__}, target {arguments.target}\n")
    found: list[Row] = []
    with torch.inference_mode():
        for line in lines(measured_rows(arguments), found):
            print(line, flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(row) for row in found]), encoding="utf-8")
    for index, other in enumerate(("NCHW", "NHWC")):
        predicted, measured = zip(*(list(row.speed_ups())[index] for row in found), strict=True)
        correlation, median = rank_correlation(predicted, measured), median_error(predicted, measured)
        largest = max(abs(a - b) / b for a, b in zip(predicted, measured, strict=True))
        ranks = "" if correlation is None else f"rank correlation {correlation:.2f}, "
        print(f"\nover {other}, {len(found)} rows: {ranks}median error {median:.1%}, largest {largest:.0%}")


if __name__ == "__main__":
    main()
