"""Small networks whose axes are split, permuted and merged: shuffled channels, sequences; windows are a golden case.

Each is optimised for a GPU in the dialects `ops` and `functions`; the tests count the ops that move bytes.
"""

from collections.abc import Callable
from typing import Any

import onnx
import pytest
from parsed_models import parsed

import layoutopt

TARGET = "gpu-hopper"


def model(signature: str, body: str, **constants: Any) -> onnx.ModelProto:
    """A model with random weights, and targets of Reshapes as lists."""
    made = parsed(f'<ir_version: 9, opset_import: ["": 18]> small {signature} {{ {body} }}', **constants)
    onnx.checker.check_model(made, full_check=True)
    return made


def shuffled_halves() -> onnx.ModelProto:
    """ShuffleNet V2: one half of the channels is convolved, both are put together and shuffled; three times, and pooled."""
    weights: dict[str, Any] = {"w0": (32, 3, 3, 3), "w9": (48, 32, 1, 1), "b9": (48,)}
    weights |= {"cut": [1, 2, 16, 16, 16], "whole": [1, 32, 16, 16], "half": [16, 16]}
    body = "x0 = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w0) "
    for unit in range(3):
        weights |= {f"u{unit}": (16, 16, 1, 1), f"v{unit}": (16, 1, 3, 3), f"w{unit + 1}": (16, 16, 1, 1)}
        weights |= {f"{name}{unit}": (16,) for name in "abc"}
        body += f"""
            l{unit}, r{unit} = Split <axis = 1> (x{unit}, half)
            d{unit} = Conv (r{unit}, u{unit}, a{unit})
            e{unit} = Relu (d{unit})
            f{unit} = Conv <pads = [1, 1, 1, 1], group = 16> (e{unit}, v{unit}, b{unit})
            g{unit} = Conv (f{unit}, w{unit + 1}, c{unit})
            h{unit} = Relu (g{unit})
            i{unit} = Concat <axis = 1> (l{unit}, h{unit})
            j{unit} = Reshape (i{unit}, cut)
            k{unit} = Transpose <perm = [0, 2, 1, 3, 4]> (j{unit})
            x{unit + 1} = Reshape (k{unit}, whole)
        """
    body += """
        m = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x3)
        n = Conv (m, w9, b9)
        y = GlobalAveragePool (n)
    """
    return model("(float[1, 3, 32, 32] x) => (float[1, 48, 1, 1] y)", body, **weights)


def recurrent() -> onnx.ModelProto:
    """Two bidirectional LSTMs, samples first, as PyTorch exports them for text in images; the last states are not used."""
    weights: dict[str, Any] = {
        "w1": (2, 64, 32),
        "r1": (2, 64, 16),
        "b1": (2, 128),
        "w2": (2, 64, 32),
        "r2": (2, 64, 16),
    }
    weights |= {"b2": (2, 128), "f": (32, 7), "merged": [0, 0, -1]}
    body = """
        s = Transpose <perm = [1, 0, 2]> (x)
        y1, , = LSTM <hidden_size = 16, direction = "bidirectional"> (s, w1, r1, b1)
        t1 = Transpose <perm = [0, 2, 1, 3]> (y1)
        v1 = Reshape (t1, merged)
        y2, , = LSTM <hidden_size = 16, direction = "bidirectional"> (v1, w2, r2, b2)
        t2 = Transpose <perm = [0, 2, 1, 3]> (y2)
        v2 = Reshape (t2, merged)
        z = Transpose <perm = [1, 0, 2]> (v2)
        y = MatMul (z, f)
    """
    return model("(float[3, 20, 32] x) => (float[3, 20, 7] y)", body, **weights)


CASES: dict[Callable[[], onnx.ModelProto], tuple[int, int]] = {shuffled_halves: (3, 0), recurrent: (4, 0)}


@pytest.mark.parametrize("dialect", ["functions", "ops"])
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_what_moves(make: Callable[[], onnx.ModelProto], dialect: str) -> None:
    report = layoutopt.optimize(make(), TARGET, dialect=dialect).report
    before, after = (counts.casts + counts.transposes for counts in (report.before, report.after))
    assert (before, after) == CASES[make]
    assert report.verification.status == "passed"
    assert report.plan is not None and report.plan.gap == 0
