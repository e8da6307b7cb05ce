"""Small networks whose axes are split, permuted and merged: windows, heads, shuffled channels and pixels, patches,
sequences.

Each is optimised for a GPU in the dialects `ops` and `functions`; the tests count the ops that move bytes.
"""

from collections.abc import Callable, Mapping

import numpy as np
import onnx
import pytest

import layoutopt
from layoutopt.cost_models import load_target
from layoutopt.ir.graph import Graph
from layoutopt.planner import PlanRequest, least_moves

TARGET = "gpu-hopper"
_RNG = np.random.default_rng(0)


class Weights(dict[str, np.ndarray]):
    """Random numbers by name, and integers."""

    def __missing__(self, name: str) -> np.ndarray:
        raise KeyError(f"{name} has no shape")

    def random(self, **shapes: tuple[int, ...]) -> "Weights":
        for name, shape in shapes.items():
            self[name] = (_RNG.normal(size=shape) / np.sqrt(np.prod(shape[1:]) + 1)).astype(np.float32)
        return self

    def integers(self, **numbers: tuple[int, ...]) -> "Weights":
        for name, row in numbers.items():
            self[name] = np.asarray(row, dtype=np.int64)
        return self


def model(signature: str, body: str, weights: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """A model in onnx's own notation, and its weights."""
    made = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> small {signature} {{ {body} }}')
    made.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    onnx.checker.check_model(made, full_check=True)
    return made


def windows() -> onnx.ModelProto:
    """A block of Swin: windows of 4 x 4 of an 8 x 8 image, two heads in each, and back."""
    weights = Weights().random(
        wq=(32, 32), wk=(32, 32), wv=(32, 32), wo=(32, 32), w1=(32, 64), w2=(64, 32), g=(32,), b=(32,)
    )
    weights.integers(
        cut=(1, 2, 4, 2, 4, 32), rows=(4, 16, 32), heads=(4, 16, 2, 16), back=(1, 2, 2, 4, 4, 32), image=(1, 64, 32)
    )
    body = """
        n = LayerNormalization (x, g, b)
        c = Reshape (n, cut)
        p = Transpose <perm = [0, 1, 3, 2, 4, 5]> (c)
        r = Reshape (p, rows)
        q = MatMul (r, wq)
        k = MatMul (r, wk)
        v = MatMul (r, wv)
        qh = Reshape (q, heads)
        kh = Reshape (k, heads)
        vh = Reshape (v, heads)
        qt = Transpose <perm = [0, 2, 1, 3]> (qh)
        kt = Transpose <perm = [0, 2, 3, 1]> (kh)
        vt = Transpose <perm = [0, 2, 1, 3]> (vh)
        s = MatMul (qt, kt)
        a = Softmax <axis = -1> (s)
        o = MatMul (a, vt)
        ot = Transpose <perm = [0, 2, 1, 3]> (o)
        m = Reshape (ot, rows)
        j = MatMul (m, wo)
        jb = Reshape (j, back)
        jt = Transpose <perm = [0, 1, 3, 2, 4, 5]> (jb)
        i = Reshape (jt, image)
        h = Add (x, i)
        h1 = MatMul (h, w1)
        e = Relu (h1)
        h2 = MatMul (e, w2)
        y = Add (h, h2)
    """
    return model("(float[1, 64, 32] x) => (float[1, 64, 32] y)", body, weights)


def shuffled_halves() -> onnx.ModelProto:
    """ShuffleNet V2: one half of the channels is convolved, both are put together and shuffled; three times, and pooled."""
    weights = Weights().random(w0=(32, 3, 3, 3), w9=(48, 32, 1, 1), b9=(48,))
    weights.integers(cut=(1, 2, 16, 16, 16), whole=(1, 32, 16, 16), half=(16, 16))
    body = "x0 = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w0) "
    for unit in range(3):
        names = {f"u{unit}": (16, 16, 1, 1), f"v{unit}": (16, 1, 3, 3), f"w{unit + 1}": (16, 16, 1, 1)}
        weights.random(**names, **{f"a{unit}": (16,), f"b{unit}": (16,), f"c{unit}": (16,)})
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
    return model("(float[1, 3, 32, 32] x) => (float[1, 48, 1, 1] y)", body, weights)


def unfolded() -> onnx.ModelProto:
    """MobileViT: pixels at the same place of 2 x 2 patches attend to each other, between convolutions."""
    weights = Weights().random(
        w1=(32, 3, 3, 3), wq=(32, 32), wk=(32, 32), wv=(32, 32), g=(32,), b=(32,), w2=(8, 32, 1, 1)
    )
    weights.integers(
        cut=(256, 2, 8, 2), pixels=(1, 32, 64, 4), rows=(4, 64, 32), pieces=(256, 8, 2, 2), image=(1, 32, 16, 16)
    )
    weights.integers(patches=(1, 4, 64, 32))
    body = """
        a = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w1)
        c = Reshape (a, cut)
        d = Transpose <perm = [0, 2, 1, 3]> (c)
        e = Reshape (d, pixels)
        f = Transpose <perm = [0, 3, 2, 1]> (e)
        r = Reshape (f, rows)
        n = LayerNormalization (r, g, b)
        q = MatMul (n, wq)
        k = MatMul (n, wk)
        v = MatMul (n, wv)
        kt = Transpose <perm = [0, 2, 1]> (k)
        s = MatMul (q, kt)
        p = Softmax <axis = -1> (s)
        o = MatMul (p, v)
        h = Add (r, o)
        u = Reshape (h, patches)
        ut = Transpose <perm = [0, 3, 2, 1]> (u)
        ub = Reshape (ut, pieces)
        uu = Transpose <perm = [0, 2, 1, 3]> (ub)
        i = Reshape (uu, image)
        y = Conv (i, w2)
    """
    return model("(float[1, 3, 32, 32] x) => (float[1, 8, 16, 16] y)", body, weights)


def recurrent() -> onnx.ModelProto:
    """Two bidirectional LSTMs, samples first, as PyTorch exports them for text in images; the last states are not used."""
    weights = Weights().random(
        w1=(2, 64, 32), r1=(2, 64, 16), b1=(2, 128), w2=(2, 64, 32), r2=(2, 64, 16), b2=(2, 128), f=(32, 7)
    )
    weights.integers(merged=(0, 0, -1))
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
    return model("(float[3, 20, 32] x) => (float[3, 20, 7] y)", body, weights)


CASES: dict[Callable[[], onnx.ModelProto], tuple[int, int]] = {
    windows: (6, 0),
    shuffled_halves: (3, 0),
    unfolded: (5, 1),
    recurrent: (4, 0),
}


@pytest.mark.parametrize("dialect", ["functions", "ops"])
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_what_moves(make: Callable[[], onnx.ModelProto], dialect: str) -> None:
    least: list[int] = []

    def watch(moment: str, step: layoutopt.Pass, graph: Graph) -> None:
        if moment == "before" and step.name == "assign-formats":
            least.append(least_moves(PlanRequest(graph, load_target(TARGET))))

    report = layoutopt.optimize(make(), TARGET, dialect=dialect, watch=watch).report
    before, after = (counts.casts + counts.transposes for counts in (report.before, report.after))
    assert (before, after) == CASES[make]
    assert report.verification.status == "passed"
    assert report.plan is not None and report.plan.gap == 0
    assert least[0] <= after
