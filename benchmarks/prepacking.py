"""The cost of a matrix product in stock onnxruntime whose constant is not prepacked: the rows of prepacking.toml.

    python benchmarks/prepacking.py [--seconds S] [--threads N] [--rows M ...]

Prints the time of a run of MatMul(x, w) with w of rank 3, which onnxruntime does not prepack, divided by the time with w of
rank 2: the median of pairs in one process, in turns, in CPU time of the thread (in wall time with several threads).
"""

import argparse
import os
from time import perf_counter, thread_time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

CONSTANTS = [
    (64, 64),
    (128, 128),
    (256, 256),
    (384, 384),
    (384, 1536),
    (1024, 1024),
    (768, 3072),
    (2048, 2048),
    (4096, 1000),
]
ROWS = [1, 2, 8, 16, 49, 100, 197, 784, 1500, 3136]
MAX_MULTIPLICATIONS = 5e9  # multiplications


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    arguments = parser.parse_args()
    if arguments.threads == 1:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for rows in arguments.rows:
        for inner, outer in CONSTANTS:
            if rows * inner * outer <= MAX_MULTIPLICATIONS:
                ratio = measured(rows, inner, outer, arguments.seconds, arguments.threads)
                print(f"    {{ rows = {rows}, inner = {inner}, outer = {outer}, ratio = {ratio:.3f} }},", flush=True)


def measured(rows: int, inner: int, outer: int, seconds: float, threads: int) -> float:
    """The time of a product without prepacking, divided by the time with prepacking."""
    x = np.random.default_rng(1).normal(size=(1, rows, inner)).astype(np.float32)
    bindings = []
    for rank in (2, 3):
        session = created(product(rows, inner, outer, rank), threads)
        binding = session.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_output("y")
        bindings.append((session, binding))
    repeats = max(1, int(2e-3 / (2 * rows * inner * outer / 60e9)))
    clock = thread_time if threads == 1 else perf_counter
    ratios: list[float] = []
    end = perf_counter() + seconds
    while perf_counter() < end or len(ratios) < 15:
        times = {}
        for index in (0, 1) if len(ratios) % 2 else (1, 0):
            session, binding = bindings[index]
            begin = clock()
            for _ in range(repeats):
                session.run_with_iobinding(binding)
            times[index] = clock() - begin
        ratios.append(times[1] / times[0])
    return float(np.median(ratios))


def product(rows: int, inner: int, outer: int, rank: int) -> bytes:
    """A model of one MatMul, whose constant has a rank of 2 or 3."""
    weight = np.random.default_rng(0).normal(size=(*(1 for _ in range(rank - 2)), inner, outer)).astype(np.float32)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, rows, inner])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, rows, outer])]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    graph = helper.make_graph(nodes, "product", inputs, outputs, [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def created(model: bytes, threads: int) -> onnxruntime.InferenceSession:
    """A session with default options, apart from threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


if __name__ == "__main__":
    main()
