"""Rates of matrix products in onnxruntime and in OpenVINO: sizes of transformers in the zoo.

    python benchmarks/products.py [--seconds S]

Prints a Markdown table, one row per size (rows, summed elements, columns): GFLOP/s, the median of runs in turns in one process,
on one thread of one CPU. A multiply-add is two operations. A run has several products of one input with different weights, up
to 16 MB of them, so that weights come from the caches that they come from in a network.
"""

import argparse
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper, parser

from layoutopt.runtime.engines import find_engine
from layoutopt.timing.interleaved import in_rounds, pinned, timed

_SIZES = [
    (512, 512, 512),
    (197, 384, 1536),
    (196, 1536, 384),
    (49, 768, 3072),
    (784, 192, 768),
    (3136, 96, 384),
    (1500, 384, 1536),
]
_WEIGHT_BYTES = 16_000_000
_MOST_PRODUCTS = 6


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--seconds", type=float, default=5.0, help="per size")
    seconds = arguments.parse_args().seconds
    print("| rows, summed, columns | onnxruntime | OpenVINO |\n|---|---|---|")
    for size in _SIZES:
        rates = [f"{median(each):.1f}" for each in rates_of(*size, seconds)]
        print(f"| {', '.join(map(str, size))} | {' | '.join(rates)} |", flush=True)


def rates_of(rows: int, summed: int, columns: int, seconds: float) -> list[list[float]]:
    """GFLOP/s of each run, in onnxruntime and in OpenVINO."""
    count = max(1, min(_MOST_PRODUCTS, _WEIGHT_BYTES // (4 * summed * columns)))
    model, x = products(rows, summed, columns, count)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    with TemporaryDirectory() as folder:
        path = Path(folder) / "products.onnx"
        path.write_bytes(model)
        compiled = find_engine("openvino").load(str(path), threads=1)
    operations = 2e-9 * rows * summed * columns * count

    def is_over(rounds: int, passed: float) -> bool:
        return rounds > 0 and passed >= seconds

    runs: list[Any] = [partial(session.run, None, {"x": x}), partial(compiled.run, {"x": x})]
    for run in runs:
        run()
    with pinned(1):
        times = in_rounds([timed(run) for run in runs], is_over)
    return [[operations / each for each in one] for one in times]


def products(rows: int, summed: int, columns: int, count: int) -> tuple[bytes, np.ndarray]:
    """A model with products of one input, and the input."""
    generator = np.random.default_rng(0)
    outputs = ", ".join(f"float[1,{rows},{columns}] y{index}" for index in range(count))
    body = " ".join(f"y{index} = MatMul (x, w{index})" for index in range(count))
    header = f'<ir_version: 8, opset_import: ["" : 17]> products (float[1,{rows},{summed}] x) => ({outputs})'
    model: onnx.ModelProto = parser.parse_model(f"{header} {{ {body} }}")
    for index in range(count):
        weight = generator.normal(size=(summed, columns)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, f"w{index}"))
    return model.SerializeToString(), generator.normal(size=(1, rows, summed)).astype(np.float32)


if __name__ == "__main__":
    main()
