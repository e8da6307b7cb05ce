"""Forms of the projections of self-attention in onnxruntime: three products, one product, or a part of the attention.

    python benchmarks/attention_projections.py [--seconds S]

    three      MatMul, Add for each of q, k, v  -> com.microsoft::MultiHeadAttention
    bias       MatMul for each                  -> MultiHeadAttention, which adds the biases
    one        MatMul, Add, Split               -> MultiHeadAttention
    attention  com.microsoft::Attention on the input and the joint weight

Prints a Markdown table, one row per size (batch, tokens, channels, heads): the time of the form `three`, and its median ratio
to that of each other form, in processor time, on one thread, in turns in one process. Above 1 the other form is faster.
"""

import argparse
from collections.abc import Callable
from functools import partial
from statistics import median
from time import thread_time
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper, parser

from layoutopt.timing.interleaved import in_rounds, pinned, timed

_SIZES = [
    (1, 197, 384, 6),
    (1, 196, 768, 12),
    (1, 128, 768, 12),
    (1, 1500, 384, 6),
    (4, 256, 144, 4),
    (16, 64, 96, 3),
    (4, 64, 384, 12),
    (1, 16, 512, 8),
    (1, 1, 512, 8),
]
_THREE = "q0 = MatMul (x, w0) k0 = MatMul (x, w1) v0 = MatMul (x, w2)"
_ATTENTION = "y = com.microsoft.MultiHeadAttention <num_heads = {heads}>"
_FORMS = {
    "three": f"{_THREE} q = Add (q0, b0) k = Add (k0, b1) v = Add (v0, b2) {_ATTENTION} (q, k, v)",
    "bias": f"{_THREE} {_ATTENTION} (q0, k0, v0, b)",
    "one": f"a0 = MatMul (x, w) a = Add (a0, b) q, k, v = Split <axis = 2> (a, thirds) {_ATTENTION} (q, k, v)",
    "attention": "y = com.microsoft.Attention <num_heads = {heads}> (x, w, b)",
}
_TOLERANCE = 1e-4


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--seconds", type=float, default=4.0, help="per size")
    seconds = arguments.parse_args().seconds
    print(f"| batch, tokens, channels, heads | three, ms | {' | '.join(list(_FORMS)[1:])} |")
    print("|" + "---|" * (len(_FORMS) + 1))
    for size in _SIZES:
        times = times_of_forms(*size, seconds)
        ratios = [median(a / b for a, b in zip(times[0], other, strict=True)) for other in times[1:]]
        cells = [", ".join(map(str, size)), f"{median(times[0]) * 1e3:.2f}", *(f"{each:.2f}" for each in ratios)]
        print(f"| {' | '.join(cells)} |", flush=True)


def times_of_forms(batch: int, tokens: int, channels: int, heads: int, seconds: float) -> list[list[float]]:
    """The seconds of the runs of each form; all forms compute the same."""
    generator = np.random.default_rng(0)
    weights = [generator.normal(size=(channels, channels)).astype(np.float32) / channels for _ in range(3)]
    biases = [generator.normal(size=channels).astype(np.float32) for _ in range(3)]
    constants = {f"w{index}": each for index, each in enumerate(weights)}
    constants |= {f"b{index}": each for index, each in enumerate(biases)}
    constants |= {"w": np.concatenate(weights, 1), "b": np.concatenate(biases), "thirds": np.array([channels] * 3)}
    feed = {"x": generator.normal(size=(batch, tokens, channels)).astype(np.float32)}
    shape = f"float[{batch},{tokens},{channels}]"
    sessions = [session(form.format(heads=heads), shape, constants) for form in _FORMS.values()]
    expected, *others = ([np.asarray(each) for each in one.run(None, feed)] for one in sessions)
    if any(not np.allclose(expected[0], other[0], atol=_TOLERANCE) for other in others):
        raise SystemExit(f"the forms differ at {shape}")

    def is_over(rounds: int, passed: float) -> bool:
        return rounds > 0 and passed >= seconds

    runs: list[Callable[[], Any]] = [partial(each.run, None, feed) for each in sessions]
    with pinned(1):
        return in_rounds([timed(run, thread_time) for run in runs], is_over)


def session(body: str, shape: str, constants: dict[str, Any]) -> onnxruntime.InferenceSession:
    """A session of one form, with default options and one thread."""
    text = f'<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> form ({shape} x) => ({shape} y) {{ {body} }}'
    model: onnx.ModelProto = parser.parse_model(text)
    read = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(
        numpy_helper.from_array(each, name) for name, each in constants.items() if name in read
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


if __name__ == "__main__":
    main()
