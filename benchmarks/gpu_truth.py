"""Comparison of the predictions of a GPU target with measurements of PyTorch on the GPU of this machine.

    python benchmarks/gpu_truth.py [--target gpu-hopper] [--device cuda] [--rounds N]

It requires the extra `torch`. Two Markdown tables:

- convolutions, pooling, normalisation and conversions, each in NCHW and in channels-last, by element type: the ratio of the two
  that the target predicts, the measured ratio, and whether both prefer the same format. Within 10 % of 1 is neither.
- products of integers (torch._int_mm) with the second factor in either order.

Whole networks: `gpu_networks.py`. The first lines contain device, driver and versions, so that the output is a complete record.
PyTorch selects its kernels by strides, as usual; cuDNN first searches for the fastest kernel.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812  -- its usual name

from layoutopt.cost_models import RooflineModel, load_target
from layoutopt.formats import Format
from layoutopt.ir.types import ArrayData, DType, Op, Slot, Storage, TensorType, Value

NCHW, NHWC = Format.parse("NCHW"), Format.parse("NHWC")
DTYPES = {"float32": (DType.FLOAT32, torch.float32), "float16": (DType.FLOAT16, torch.float16)}
NEITHER = 1.1  # ratios up to this prefer neither


@dataclass(frozen=True)
class Layer:
    """An op with a shape that occurs in networks."""

    kind: str
    shape: tuple[int, int, int, int]
    filters: int = 0
    kernel: int = 1
    stride: int = 1
    groups: int = 1

    def __str__(self) -> str:
        size = "x".join(map(str, self.shape))
        if self.kind == "Conv":
            groups = f", {self.groups} groups" if self.groups > 1 else ""
            return f"Conv {self.kernel}x{self.kernel}/{self.stride} {size} to {self.filters}{groups}"
        return (
            f"{self.kind} {size}"
            if self.kernel == 1
            else f"{self.kind} {self.kernel}x{self.kernel}/{self.stride} {size}"
        )

    def op(self, dtype: DType) -> Op:
        """The op for the cost model."""
        n, c, h, w = self.shape
        pad = self.kernel // 2
        out = tuple((extent + 2 * pad - self.kernel) // self.stride + 1 for extent in (h, w))
        attributes: dict[str, Any] = {
            "kernel_shape": (self.kernel,) * 2,
            "strides": (self.stride,) * 2,
            "pads": (pad,) * 4,
        }
        x = Value("x", TensorType(dtype, self.shape))
        if self.kind == "Conv":
            constants = [_constant(dtype, (self.filters, c // self.groups, self.kernel, self.kernel))]
            y = Value("y", TensorType(dtype, (n, self.filters, *out)))
            return Op("Conv", (x, *constants), (y,), attributes={**attributes, "group": self.groups}, version=11)
        if self.kind == "BatchNormalization":
            return Op(self.kind, (x, *(_constant(dtype, (c,)) for _ in range(4))), (Value("y", x.type),), version=15)
        y = Value("y", TensorType(dtype, (n, c, *out)))
        return Op(self.kind, (x,), (y,), attributes=attributes, version=12)

    def call(self, dtype: torch.dtype, device: str, layout: torch.memory_format) -> Callable[[], torch.Tensor]:
        """The op for PyTorch, on random numbers in this format."""
        x = torch.randn(self.shape, device=device).to(dtype).contiguous(memory_format=layout)
        if self.kind == "Conv":
            size = (self.filters, self.shape[1] // self.groups, self.kernel, self.kernel)
            w = torch.randn(size, device=device).to(dtype).contiguous(memory_format=layout)
            return lambda: F.conv2d(x, w, None, self.stride, self.kernel // 2, 1, self.groups)
        if self.kind == "BatchNormalization":
            numbers = [torch.rand(self.shape[1], device=device).to(dtype) + 0.5 for _ in range(4)]
            return lambda: F.batch_norm(x, numbers[0], numbers[1], numbers[2], numbers[3])
        pool = F.max_pool2d if self.kind == "MaxPool" else F.avg_pool2d
        return lambda: pool(x, self.kernel, self.stride, self.kernel // 2)


LAYERS = (
    Layer("Conv", (8, 3, 224, 224), 64, 7, 2),
    Layer("Conv", (8, 64, 56, 56), 64, 3),
    Layer("Conv", (8, 64, 56, 56), 256, 1),
    Layer("Conv", (8, 128, 28, 28), 128, 3),
    Layer("Conv", (8, 256, 28, 28), 512, 3, 2),
    Layer("Conv", (8, 256, 14, 14), 1024, 1),
    Layer("Conv", (8, 512, 7, 7), 512, 3),
    Layer("Conv", (8, 63, 28, 28), 65, 3),
    Layer("Conv", (1, 256, 14, 14), 256, 3),
    Layer("Conv", (8, 96, 56, 56), 96, 3, 1, 96),
    Layer("Conv", (8, 128, 28, 28), 128, 3, 1, 32),
    Layer("MaxPool", (8, 64, 112, 112), 0, 3, 2),
    Layer("AveragePool", (8, 256, 28, 28), 0, 3, 1),
    Layer("BatchNormalization", (8, 256, 28, 28)),
)


def _constant(dtype: DType, shape: tuple[int, ...]) -> Value:
    return Value("w", TensorType(dtype, shape), data=ArrayData(np.broadcast_to(np.zeros((), dtype.numpy), shape)))


class Clock:
    """Seconds of a call on a device: medians of rounds of several calls each, after a warm-up."""

    def __init__(self, device: str, rounds: int) -> None:
        self.is_cuda, self.rounds = device.startswith("cuda"), rounds

    def __call__(self, *calls: Callable[[], object]) -> list[float]:
        """The median seconds of each of several calls, in turns."""
        for call in calls:
            for _ in range(3):
                call()
        taken: list[list[float]] = [[] for _ in calls]
        for _ in range(self.rounds):
            for each, call in zip(taken, calls, strict=True):
                each.append(self._once(call))
        return [statistics.median(each) for each in taken]

    def _once(self, call: Callable[[], object], times: int = 10) -> float:
        if not self.is_cuda:
            start = perf_counter()
            call()
            return perf_counter() - start
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        for _ in range(times):
            call()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / times


def predicted(model: RooflineModel, op: Op, format: Format) -> float:
    """Seconds of the fastest kernel whose activations have this format; infinity if the target has none."""
    x = Slot("in", 0)
    fitting = [
        each.seconds for each in model.estimates(op) if each.formats[x] == format == each.formats[Slot("out", 0)]
    ]
    direct = [each.seconds for each in model.estimates(op) if each.kernel is None or each.kernel.direct]
    return min([*fitting, *direct], default=float("inf"))


def preference(ratio: float) -> str:
    """The format that a ratio of the times of NCHW over NHWC prefers; neither within 10 % of 1."""
    return "NHWC" if ratio > NEITHER else "NCHW" if ratio < 1 / NEITHER else "neither"


def layers(model: RooflineModel, device: str, clock: Clock) -> Iterator[str]:
    """The first table."""
    yield "| layer | type | predicted NCHW/NHWC | measured | prefers | agree |"
    yield "|---|---|---|---|---|---|"
    agreeing, decided = 0, 0
    for name, (dtype, theirs) in DTYPES.items():
        for layer in LAYERS:
            op = layer.op(dtype)
            expected = predicted(model, op, NCHW) / predicted(model, op, NHWC)
            calls = [layer.call(theirs, device, each) for each in (torch.contiguous_format, torch.channels_last)]
            first, last = clock(*calls)
            prediction, measurement = preference(expected), preference(first / last)
            if "neither" not in (prediction, measurement):
                decided, agreeing = decided + 1, agreeing + (prediction == measurement)
            agree = "" if "neither" in (prediction, measurement) else "yes" if prediction == measurement else "**no**"
            yield f"| {layer} | {name} | {expected:.2f} | {first / last:.2f} | {measurement} | {agree} |"
    yield f"\n{agreeing} of {decided} that prefer one on both sides agree."
    yield "\n| conversion | type | predicted GB/s | measured GB/s |\n|---|---|---|---|"
    for name, (dtype, theirs) in DTYPES.items():
        for shape in ((8, 64, 56, 56), (8, 256, 28, 28), (8, 3, 224, 224), (32, 512, 28, 28)):
            x = torch.randn(shape, device=device).to(theirs)
            (seconds,) = clock(lambda x=x: x.contiguous(memory_format=torch.channels_last))  # type: ignore[misc]
            estimate = model.conversion_seconds(Value("x", TensorType(dtype, shape)), Storage(NCHW), Storage(NHWC))
            moved = 2 * x.numel() * x.element_size() / 1e9
            yield f"| NCHW to NHWC {'x'.join(map(str, shape))} | {name} | {moved / estimate:.0f} | {moved / seconds:.0f} |"


def integers(model: RooflineModel, device: str, clock: Clock) -> Iterator[str]:
    """The second table: a (M, K) by b (K, N), whose columns or rows are contiguous."""
    yield "| product | predicted rows/columns | measured | agree |"
    yield "|---|---|---|---|"
    for m, k, n in ((128, 768, 768), (512, 768, 3072), (4096, 4096, 4096)):
        op = Op(
            "MatMulInteger",
            (Value("a", TensorType(DType.INT8, (m, k))), Value("b", TensorType(DType.INT8, (k, n)))),
            (Value("y", TensorType(DType.INT32, (m, n))),),
            version=10,
        )
        estimates = {
            str(each.formats[Slot("in", 1)]): each.seconds for each in reversed(model.estimates(op)) if each.kernel
        }
        rows, columns = estimates.get("MN", float("nan")), estimates.get("NM", float("nan"))
        a, b = (torch.randint(-9, 9, shape, dtype=torch.int8, device=device) for shape in ((m, k), (k, n)))
        turned = b.T.contiguous().T
        first, last = clock(lambda a=a, b=b: torch._int_mm(a, b), lambda a=a, b=turned: torch._int_mm(a, b))  # type: ignore[misc]
        same = preference(rows / columns) == preference(first / last)
        yield f"| int8 {m}x{k} by {k}x{n} | {rows / columns:.2f} | {first / last:.2f} | {'yes' if same else '**no**'} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--target", default="gpu-hopper")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    model, clock = load_target(arguments.target), Clock(arguments.device, arguments.rounds)
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    print(
        f"{datetime.now(tz=UTC):%Y-%m-%d}, {device_name(arguments.device)}, PyTorch {torch.__version__}, "
        f"target {arguments.target}\n"
    )
    tables = [layers(model, arguments.device, clock)]
    tables += [integers(model, arguments.device, clock)] if arguments.device.startswith("cuda") else []
    with torch.inference_mode():
        for each in tables:
            for line in each:
                print(line, flush=True)
            print()


def device_name(device: str) -> str:
    """The device, its driver and cuDNN."""
    if not device.startswith("cuda"):
        return f"{device}, {torch.get_num_threads()} threads"
    driver = torch.cuda.driver_version() if hasattr(torch.cuda, "driver_version") else torch.version.cuda
    return f"{torch.cuda.get_device_name(device)}, driver {driver}, cuDNN {torch.backends.cudnn.version()}"


if __name__ == "__main__":
    main()
