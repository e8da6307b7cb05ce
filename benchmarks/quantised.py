"""Quantised networks of examples/zoo on this CPU: the result of `optimize` against the original in stock onnxruntime.

    python benchmarks/quantised.py [NETWORK ...]      a Markdown table of ratios, one process, one thread, pinned to one core
    python benchmarks/quantised.py signed [NETWORK ...]     the same with activations of int8, see below
    python benchmarks/quantised.py profile NETWORK    the time per op type, before and after
    python benchmarks/quantised.py kernels            the times in layoutopt/dialects/onnxruntime/integer_chains.py

Networks may be those of examples/zoo/deployed, too, and light models of the onnx package. They are quantised by onnxruntime:
QDQ form, weights per channel, activations per tensor, calibrated on two random inputs. Weights have 7 bits (`reduce_range`), as
onnxruntime recommends for CPUs without VNNI: their kernels saturate sums of two products of 8 bits. The last op stays in
floating point, so that outputs are not rounded to a constant, and so does an AveragePool of efficientnet_b0, whose kernel is
larger than the image: there QLinearAveragePool returns zeros. Every ratio is the median of pairs of runs, the two models in
turns; `spread` has its quartiles. Times are those of the thread on its core.

With `signed`, activations and weights are int8 of 8 bits, per tensor, as by default in onnxruntime's `quantize_static`. The
column `definition` has the difference of original and result from the original without optimisations, which saturates nowhere.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from time import thread_time
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / "examples"), str(Path(__file__).parents[1] / "tests" / "e2e")]

import light
import numpy as np
import onnx
import zoo
from narrow_models import quantized
from onnx import TensorProto, helper, numpy_helper

import layoutopt
from layoutopt.runtime.session import inference_session, is_kernel_event
from layoutopt.timing.interleaved import in_rounds, pinned

NETWORKS = (
    "keras_mobilenetv3s",
    "swiftformer",
    "efficientnet_b0",
    "mobilevit",
    "mobilenetv2",
    "mobilenetv1",
    "resnet50",
)
PAIRS, WARM_UP = 80, 3
SHAPES = ((112, 16), (56, 16), (56, 72), (28, 88), (14, 240))
ARITHMETIC = ("Add", "Div", "Mul", "Sub")
UNARY = {
    **dict.fromkeys(("Erf", "Exp", "HardSigmoid", "Sigmoid", "Tanh"), ""),
    "Gelu": "com.microsoft",
    "QuickGelu": "com.microsoft",
}

Feed = Mapping[str, np.ndarray]


def feed_of(session: Any, seed: int) -> Feed:
    """Random inputs; symbolic dimensions are 1."""
    random = np.random.default_rng(seed)
    shapes = {each.name: [dim if isinstance(dim, int) else 1 for dim in each.shape] for each in session.get_inputs()}
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def forms(network: str, folder: Path, *, signed: bool = False) -> tuple[Path, Path, layoutopt.Report]:
    """The quantised network, the result of `optimize`, and its report; `signed` is the form with activations of int8."""
    source = folder / f"{network}.onnx"
    if network in light.NAMES:
        model = onnx.version_converter.convert_version(light.load(network), 13)
    else:
        model = zoo.filled(onnx.load(next(zoo.FOLDER.rglob(f"{network}.onnx"))))
    onnx.save(model, source)
    graph = model.graph
    outputs = {each.name for each in graph.output}
    floating = {"AveragePool"} if network == "efficientnet_b0" else set()
    kept = [node.name for node in graph.node if not outputs.isdisjoint(node.output) or node.op_type in floating]
    options = {"per_channel": not signed, "reduce_range": not signed}
    path = quantized(source, folder=folder, nodes_to_exclude=kept, **options)
    result = layoutopt.optimize(path, "cpu", measure=False)
    result.save(folder / f"{network}_optimised.onnx")
    return path, folder / f"{network}_optimised.onnx", result.report


def difference(one: Any, other: Any) -> str:
    """The largest difference of the first outputs on five inputs, relative to the largest element."""
    largest, magnitude, varies = 0.0, 0.0, 0.0
    outputs = [one.run(None, feed_of(one, seed))[0] for seed in range(5)]
    for seed, expected in enumerate(outputs):
        actual = other.run(None, feed_of(one, seed))[0]
        largest = max(largest, float(np.abs(expected - actual).max()))
        magnitude = max(magnitude, float(np.abs(expected).max()))
        varies = max(varies, float(np.abs(expected - outputs[0]).max()))
    found = "equal" if largest == 0 else f"{largest / magnitude:.1e}"
    return found if varies else f"{found} (the output is constant)"


def compare(network: str, *, signed: bool = False) -> str:
    """A row of the table."""
    with TemporaryDirectory() as name:
        before, after, report = forms(network, Path(name), signed=signed)
        assert report.verification.status == "passed"
        sessions = [inference_session(str(path)) for path in (before, after)]
        feed = feed_of(sessions[0], 0)
        actions = [timed(lambda session=session: session.run(None, feed)) for session in sessions]
        in_rounds(actions, lambda done, _: done >= WARM_UP)
        times = np.array(in_rounds(actions, lambda done, _: done >= PAIRS))
        ratios = np.percentile(times[0] / times[1], (25, 50, 75))
        before_ms, after_ms = np.median(times, axis=1) * 1e3
        return (
            f"| {network} | {before_ms:.2f} | {after_ms:.2f} | {ratios[1]:.2f} | {ratios[0]:.2f} to {ratios[2]:.2f} "
            f"| {difference(*sessions)} |{definition(before, sessions) if signed else ''}"
        )


def definition(path: Path, sessions: list[Any]) -> str:
    """The differences of original and result from the original without optimisations."""
    exact = inference_session(str(path), is_optimised=False)
    return " / ".join(difference(exact, each) for each in sessions) + " |"


def timed(run: Callable[[], Any]) -> Callable[[], float]:
    """An action that returns its seconds on the core, without those of other processes."""

    def action() -> float:
        begin = thread_time()
        run()
        return thread_time() - begin

    return action


def profile(network: str) -> None:
    """Print the time per op type, before and after."""
    with TemporaryDirectory() as name:
        before, after, _ = forms(network, Path(name))
        for label, path in (("before", before), ("after", after)):
            print(f"\n{network}, {label}")
            trace = Path(name) / label
            session = inference_session(str(path), trace=trace)
            feed = feed_of(session, 0)
            for _ in range(30):
                session.run(None, feed)
            times: Counter[str] = Counter()
            for event in json.loads(Path(session.end_profiling()).read_text(encoding="utf-8")):
                if is_kernel_event(event):
                    times[event["args"]["op_name"]] += event["dur"] / 30
            for op, microseconds in times.most_common():
                print(f"{microseconds:9.0f} us  {op}")


def kernels() -> None:
    """Print the time of every op of the cost table on every shape of it."""
    random = np.random.default_rng(0)
    scale, zero = np.array(0.02, np.float32), np.array(120, np.uint8)
    for size, channels in SHAPES:
        image = random.integers(0, 256, (1, size, size, channels)).astype(np.uint8)
        row = random.integers(0, 256, channels).astype(np.uint8)
        constants = {
            "s": scale,
            "z": zero,
            "row": row,
            "wide": np.tile(row, size),
            "numbers": row.astype(np.float32),
            "weights": np.full((channels, 1, 1, 1), 100, np.int8),
            "scales": np.full(channels, 0.01, np.float32),
            "zeros": np.zeros(channels, np.int8),
            "low": np.array(0, np.float32),
            "high": np.array(6, np.float32),
            "table": np.arange(256).astype(np.uint8),
        }
        flat = image.reshape(1, size, size * channels)
        floats = image.astype(np.float32)
        nodes = {
            "DequantizeLinear": (("DequantizeLinear", "x s z", "", {}), image),
            "QuantizeLinear": (("QuantizeLinear", "x s z", "", {}), floats),
            "Sub, rows": (("Sub", "x numbers", "", {}), floats),
            "QLinearMul, rows": (("QLinearMul", "x s z row s z s z", "com.microsoft", {}), image),
            "QLinearMul, wide": (("QLinearMul", "x s z wide s z s z", "com.microsoft", {}), flat),
            "QLinearAdd, rows": (("QLinearAdd", "x s z row s z s z", "com.microsoft", {}), image),
            "QLinearAdd, wide": (("QLinearAdd", "x s z wide s z s z", "com.microsoft", {}), flat),
            "QLinearConv, depthwise": (
                (
                    "QLinearConv",
                    "x s z weights scales zeros s z",
                    "com.microsoft",
                    {"channels_last": 1, "group": channels},
                ),
                image,
            ),
            "QLinearSigmoid": (("QLinearSigmoid", "x s z s z", "com.microsoft", {}), image),
            **{op: ((op, "x high", "", {}), floats) for op in ARITHMETIC},
            **{op: ((op, "x", domain, {}), floats) for op, domain in UNARY.items()},
            "Clip": (("Clip", "x low high", "", {}), floats),
            "Cast": (("Cast", "x", "", {"to": TensorProto.INT32}), image),
            "GatherElements": (("GatherElements", "table x", "", {}), image.reshape(-1).astype(np.int32)),
        }
        for label, ((op, inputs, domain, attributes), x) in nodes.items():
            node = helper.make_node(op, inputs.split(), ["y"], domain=domain, **attributes)
            used = {name: array for name, array in constants.items() if name in node.input}
            is_float = op in ("DequantizeLinear", "Clip", *ARITHMETIC, *UNARY)
            narrow = TensorProto.INT32 if op == "Cast" else TensorProto.UINT8
            seconds = single_node_seconds(node, x, used, TensorProto.FLOAT if is_float else narrow)
            print(f"{size} x {size} x {channels}  {label:24} {seconds * 1e6:7.1f} us")


def single_node_seconds(node: onnx.NodeProto, x: np.ndarray, constants: Mapping[str, np.ndarray], result: int) -> float:
    """The median seconds of a model of one node."""
    graph = helper.make_graph(
        [node],
        "kernel",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_tensor_value_info("y", result, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    session = inference_session(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())
    action = timed(lambda: session.run(None, {"x": x}))
    return float(np.median(in_rounds([action], lambda done, _: done >= PAIRS)))


def main(*arguments: str) -> None:
    """Run the command that the first argument names."""
    with pinned(1):
        if arguments[:1] == ("kernels",):
            kernels()
        elif arguments[:1] == ("profile",):
            profile(*arguments[1:])
        else:
            signed = arguments[:1] == ("signed",)
            print("| network | original, ms | result, ms | ratio | spread | outputs |" + " definition |" * signed)
            print("|---|---|---|---|---|---|" + "---|" * signed)
            for network in arguments[signed:] or NETWORKS:
                print(compare(network, signed=signed), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
