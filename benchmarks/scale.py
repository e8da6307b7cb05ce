"""Growth of the time and memory of `optimize` with the number of ops.

    python benchmarks/scale.py [--shapes chain,transformer] [--targets gpu-hopper] [--ops 1000,3000,10000] [--verify] [--stages]

Builds models of a given shape and number of ops, optimises each in a process of its own, and prints a Markdown table: seconds
of processor time in total and per stage, and the peak memory of the process. The column `x` is the ratio of the seconds to
those of the row before, `ops x` the ratio of the ops.

    chain        Conv, Relu, Conv, Relu, ...
    elementwise  Relu, Add, Mul, Sigmoid, ... with one convolution in a hundred ops
    transformer  encoder blocks: attention with its Reshapes and Transposes, LayerNormalization, GELU as exporters write it
    residual     residual blocks of convolutions, with a pooling and a squeeze-and-excite gate in some
    wide         independent branches of ten ops from one input, summed in groups
    fan-out      one tensor that 2,000 ops read, several times
    join         Concat and Sum of 2,000 tensors, several times
    one-join     one Concat of all tensors
    one-sum      one Sum of all tensors
    bodies       If and Loop in turns, with two convolutions in each body; `--ops` is the number of bodies
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from time import process_time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
TARGETS = ("gpu-hopper", "ascend-910b", "cpu-avx512")
FAN = 2_000


class Net:
    """Builds a model node by node."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        self.random = np.random.default_rng(0)
        self.count = 0

    def __len__(self) -> int:
        return len(self.nodes)

    def constant(self, array: np.ndarray) -> str:
        self.count += 1
        name = f"w{self.count}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, *shape: int) -> str:
        scale = 1.0 / max(1.0, np.prod(shape[1:])) ** 0.5
        return self.constant((self.random.standard_normal(shape) * scale).astype(np.float32))

    def add(self, kind: str, *inputs: str, **attributes: object) -> str:
        self.count += 1
        name = f"{kind.lower()}{self.count}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=f"{kind}_{self.count}", **attributes))
        return name

    def conv(self, x: str, inside: int, outside: int, kernel: int = 3) -> str:
        w, b = self.weight(outside, inside, kernel, kernel), self.weight(outside)
        return self.add("Conv", x, w, b, pads=[kernel // 2] * 4, kernel_shape=[kernel] * 2)

    def model(self, outputs: Iterable[str]) -> onnx.ModelProto:
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "scale", self.inputs, results, self.weights)
        opsets = [helper.make_opsetid("", 20)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def chain(count: int) -> onnx.ModelProto:
    net, x = Net((1, 16, 8, 8)), "x"
    while len(net) < count:
        x = net.add("Relu", net.conv(x, 16, 16))
    return net.model([x])


def elementwise(count: int) -> onnx.ModelProto:
    net, x = Net((1, 16, 8, 8)), "x"
    half = net.constant(np.full((16, 1, 1), 0.5, np.float32))
    while len(net) < count:
        if len(net) % 100 == 0:
            x = net.conv(x, 16, 16)
        y = net.add("Sigmoid", x)
        x = net.add("Relu", net.add("Add", net.add("Mul", y, half), x))
    return net.model([x])


def transformer(count: int) -> onnx.ModelProto:
    net, x, width, heads = Net((2, 8, 32)), "x", 32, 4
    split, merge = net.constant(np.array([2, 8, heads, 8])), net.constant(np.array([2, 8, width]))
    numbers = [net.constant(np.array(value, np.float32)) for value in (8**-0.5, 2**0.5, 1.0, 0.5)]
    while len(net) < count:
        normal = net.add("LayerNormalization", x, net.weight(width), net.weight(width))
        q, k, v = (
            net.add("Transpose", net.add("Reshape", _dense(net, normal, width, width), split), perm=perm)
            for perm in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
        )
        scores = net.add("Softmax", net.add("Mul", net.add("MatMul", q, k), numbers[0]), axis=-1)
        mixed = net.add("Transpose", net.add("MatMul", scores, v), perm=(0, 2, 1, 3))
        x = net.add("Add", x, _dense(net, net.add("Reshape", mixed, merge), width, width))
        normal = net.add("LayerNormalization", x, net.weight(width), net.weight(width))
        inner = _dense(net, normal, width, 2 * width)
        gate = net.add("Add", net.add("Erf", net.add("Div", inner, numbers[1])), numbers[2])
        inner = net.add("Mul", net.add("Mul", inner, gate), numbers[3])
        x = net.add("Add", x, _dense(net, inner, 2 * width, width))
    return net.model([x])


def _dense(net: Net, x: str, inside: int, outside: int) -> str:
    return net.add("Add", net.add("MatMul", x, net.weight(inside, outside)), net.weight(outside))


def residual(count: int) -> onnx.ModelProto:
    net, x, block = Net((1, 16, 8, 8)), "x", 0
    while len(net) < count:
        y = net.add("Relu", net.conv(x, 16, 32, 1))
        y = net.conv(net.add("Relu", net.conv(y, 32, 32)), 32, 16, 1)
        if block % 3 == 0:
            gate = net.add("Relu", net.conv(net.add("GlobalAveragePool", y), 16, 4, 1))
            y = net.add("Mul", y, net.add("Sigmoid", net.conv(gate, 4, 16, 1)))
        if block % 5 == 0:
            y = net.add("MaxPool", y, kernel_shape=[3, 3], pads=[1] * 4)
        x = net.add("Relu", net.add("Add", y, x))
        block += 1
    return net.model([x])


def wide(count: int) -> onnx.ModelProto:
    net, results = Net((1, 16, 8, 8)), []
    while len(net) < count:
        x = "x"
        for _ in range(5):
            x = net.add("Relu", net.conv(x, 16, 16))
        results.append(x)
    sums = [net.add("Sum", *results[at : at + 16]) for at in range(0, len(results), 16)]
    return net.model([net.add("Sum", *sums)])


def fan_out(count: int) -> onnx.ModelProto:
    net, x = Net((1, 16, 8, 8)), "x"
    while len(net) < count:
        x = net.conv(x, 16, 16)
        readers = [net.add("Sigmoid" if at % 2 else "Relu", x) for at in range(min(FAN, count) - 20)]
        x = _tree(net, readers)
    return net.model([x])


def _tree(net: Net, values: list[str]) -> str:
    """Sums of 128, and their sum."""
    sums = [net.add("Sum", *values[at : at + 128]) for at in range(0, len(values), 128)]
    return net.add("Sum", *sums)


def join(count: int) -> onnx.ModelProto:
    net, x = Net((1, 16, 8, 8)), "x"
    fan = min(FAN, count // 2)
    while len(net) < count:
        x = net.conv(x, 16, 16)
        parts = [net.add("Relu", net.conv(x, 16, 2, 1)) for _ in range(fan // 2)]
        x = net.conv(net.add("Concat", *parts, axis=1), 2 * len(parts), 16, 1)
        x = net.add("Sum", x, *[net.add("Tanh", x) for _ in range(fan)])
    return net.model([x])


def one_join(count: int) -> onnx.ModelProto:
    net = Net((1, 16, 8, 8))
    parts = [net.add("Relu", net.conv("x", 16, 2, 1)) for _ in range(count // 2)]
    return net.model([net.add("Concat", *parts, axis=1)])


def one_sum(count: int) -> onnx.ModelProto:
    net = Net((1, 16, 8, 8))
    parts = [net.add("Relu", net.conv("x", 16, 16, 1)) for _ in range(count // 2)]
    return net.model([net.add("Sum", *parts)])


def bodies(count: int) -> onnx.ModelProto:
    net, x, made = Net((1, 16, 8, 8)), "x", 0
    trips, yes = net.constant(np.array(3)), net.constant(np.array(True))
    while made < count:
        condition = net.add("Greater", net.add("ReduceMax", x, keepdims=0), net.constant(np.float32(0)))
        branches = {f"{name}_branch": _body(net, made + at, x) for at, name in enumerate(("then", "else"))}
        x = net.add("If", condition, **branches)
        x = net.add("Loop", trips, yes, x, body=_body(net, made + 2, f"state_{made + 2}", is_loop=True))
        made += 3
    return net.model([x])


def _body(net: Net, number: int, x: str, *, is_loop: bool = False) -> onnx.GraphProto:
    """Two convolutions with weights of the main graph, in a branch that captures x or in a loop whose state it is."""
    nodes, y = [], x
    for at in range(2):
        w, name = net.weight(16, 16, 3, 3), f"body_{number}_{at}"
        nodes.append(helper.make_node("Conv", [y, w], [f"{name}.conv"], kernel_shape=[3, 3], pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"{name}.conv"], [name]))
        y = name
    result = helper.make_tensor_value_info(y, TensorProto.FLOAT, (1, 16, 8, 8))
    if not is_loop:
        return helper.make_graph(nodes, f"branch_{number}", [], [result])
    step, go = f"step_{number}", f"go_{number}"
    nodes.append(helper.make_node("Identity", [go], [f"{go}.on"]))
    inputs = [
        helper.make_tensor_value_info(step, TensorProto.INT64, ()),
        helper.make_tensor_value_info(go, TensorProto.BOOL, ()),
        helper.make_tensor_value_info(x, TensorProto.FLOAT, (1, 16, 8, 8)),
    ]
    outputs = [helper.make_tensor_value_info(f"{go}.on", TensorProto.BOOL, ()), result]
    return helper.make_graph(nodes, f"loop_{number}", inputs, outputs)


SHAPES: dict[str, Callable[[int], onnx.ModelProto]] = {
    "chain": chain,
    "elementwise": elementwise,
    "transformer": transformer,
    "residual": residual,
    "wide": wide,
    "fan-out": fan_out,
    "join": join,
    "one-join": one_join,
    "one-sum": one_sum,
    "bodies": bodies,
}


class Stages:
    """Seconds per stage; the seconds of a nested stage do not count for the enclosing one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._running: list[str] = []
        self._since = process_time()

    def enter(self, name: str) -> None:
        self._count()
        self._running.append(name)

    def leave(self) -> None:
        self._count()
        self._running.pop()

    def wrap(self, owner: object, attribute: str, name: str) -> None:
        function = getattr(owner, attribute)

        def timed(*args: object, **kwargs: object) -> object:
            self.enter(name)
            try:
                return function(*args, **kwargs)
            finally:
                self.leave()

        setattr(owner, attribute, timed)

    def _count(self) -> None:
        now = process_time()
        if self._running:
            self.seconds[self._running[-1]] = self.seconds.get(self._running[-1], 0.0) + now - self._since
        self._since = now


def peak_megabytes() -> float:
    """The largest resident set of this process so far, on Linux."""
    status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))


def measure(path: Path, target: str, verify: bool, limit: float | None) -> dict[str, object]:
    """Optimise one model in this process, and print the seconds of every stage."""
    from layoutopt import api, inference, onnx_io
    from layoutopt.driver import stages as driver_stages
    from layoutopt.passes import base as pass_base
    from layoutopt.planner import planning, regret

    stages = Stages()
    for owner, attribute, name in (
        (api, "read", "read"),
        (inference, "lift", "lift"),
        (inference, "infer_again", "infer"),
        (planning, "propose", "candidates"),
        (planning, "Formulation", "formulate"),
        (regret, "solve", "solve"),
        (pass_base.Pipeline, "_check", "invariants"),
        (onnx_io, "emit", "emit"),
        (onnx_io, "check", "check"),
        (onnx_io, "fingerprint", "fingerprint"),
        (driver_stages, "bake", "bake"),
        (driver_stages, "verify_rewrite", "verify"),
        (api, "finish", "report"),
    ):
        stages.wrap(owner, attribute, name)

    def watch(moment: str, step: object, graph: object) -> None:
        if moment == "before":
            stages.enter(step.name)
        else:
            stages.leave()

    begin = process_time()
    stages.enter("other")
    result = api.optimize(str(path), target, runtime="compiler", verify=verify, time_limit=limit, watch=watch)
    stages.enter("write")
    result.save(path.with_suffix(".out.onnx"))
    stages.leave()
    stages.leave()
    plan_report = result.report.plan
    return {
        "seconds": process_time() - begin,
        "megabytes": peak_megabytes(),
        "stages": stages.seconds,
        "ops": len(result.report.ops),
        "gap": plan_report.gap if plan_report is not None else 0.0,
        "verification": result.report.verification.status,
    }


def measured(shape: str, count: int, target: str, verify: bool, limit: float | None) -> dict[str, object]:
    """The result of `measure` in a process of its own, for the peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(SHAPES[shape](count), path)
        command = [sys.executable, __file__, "--one", str(path), "--targets", target]
        command += ["--verify"] if verify else []
        command += ["--time-limit", str(limit)] if limit is not None else []
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            return {"error": done.returncode}
        return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--ops", default=",".join(map(str, SIZES)))
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--stages", action="store_true", help="a line per stage that takes 2 %% of the time or more")
    parser.add_argument("--time-limit", type=float)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.one is not None:
        print(json.dumps(measure(settings.one, settings.targets, settings.verify, settings.time_limit)))
        return
    print("| shape | target | ops | seconds | x | ops x | MB | gap | the longest stages |")
    print("|---|---|---|---|---|---|---|---|---|")
    for shape in settings.shapes.split(","):
        for target in settings.targets.split(","):
            rows(shape, target, [int(each) for each in settings.ops.split(",")], settings)


def rows(shape: str, target: str, sizes: list[int], settings: argparse.Namespace) -> None:
    before: tuple[int, float] | None = None
    for count in sizes:
        found = measured(shape, count, target, settings.verify, settings.time_limit)
        if "error" in found:
            print(f"| {shape} | {target} | {count:,} | failed: exit code {found['error']} |", flush=True)
            return
        seconds, stages = found["seconds"], sorted(found["stages"].items(), key=lambda each: -each[1])
        growth = "" if before is None else f"{seconds / before[1]:.1f}"
        ops = "" if before is None else f"{count / before[0]:.1f}"
        shown = [f"{name} {spent:.1f}" for name, spent in stages if spent >= 0.02 * seconds]
        longest = ", ".join(shown if settings.stages else shown[:5])
        print(
            f"| {shape} | {target} | {count:,} | {seconds:.1f} | {growth} | {ops} | {found['megabytes']:,.0f} | "
            f"{found['gap']:.1e} | {longest} |",
            flush=True,
        )
        before = (count, seconds)


if __name__ == "__main__":
    main()
