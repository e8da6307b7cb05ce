"""Models with discontinuous ops: rounding changes the order of nearly equal values, and all later values differ.

Of 16,384 scores some differ by no more than a rounding; and `p` and `q` are one sum in two orders: rounding alone decides which
is larger.
"""

from collections.abc import Callable

import numpy as np
import onnx
import pytest

import layoutopt
from layoutopt.errors import VerificationError
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import ArrayData

WAYS = (("cpu", None), ("cpu-avx512", "functions"), ("ascend-910b", "ops"))
HEAD = """
    a1 = Conv <pads = [1, 1, 1, 1]> (x, w1, b1)
    r1 = Relu (a1)
    a2 = Conv <pads = [1, 1, 1, 1]> (r1, w0, b1)
    r = Relu (a2)
    f = Conv <pads = [1, 1, 1, 1]> (r, w2, b2)
    p = Conv <pads = [1, 1, 1, 1]> (r, w3)
    q1 = Conv <pads = [1, 1, 1, 1]> (r, w3_even)
    q2 = Conv <pads = [1, 1, 1, 1]> (r, w3_odd)
    q = Add (q1, q2)
    scores = Reshape (p, all)
    rows = Reshape (f, channels)
    boxes = Transpose <perm = [1, 0]> (rows)
"""


def model(body: str, outputs: str) -> onnx.ModelProto:
    """A convolutional network with scores (16384) and boxes (16384, 4), and further ops on them."""
    text = (
        f'<ir_version: 9, opset_import: ["": 18]> detector (float[1, 3, 128, 128] x) => ({outputs}) {{ {HEAD} {body} }}'
    )
    made = onnx.parser.parse_model(text)
    numbers = np.random.default_rng(1)
    shapes = {
        "w0": (32, 32, 3, 3),
        "w1": (32, 3, 3, 3),
        "b1": (32,),
        "w2": (4, 32, 3, 3),
        "b2": (4,),
        "w3": (1, 32, 3, 3),
        "w4": (8, 4, 1, 1),
    }
    weights = {name: numbers.normal(size=shape) / np.sqrt(np.prod(shape[1:])) for name, shape in shapes.items()}
    even = np.arange(32).reshape(1, 32, 1, 1) % 2 == 0
    weights |= {"w3_even": weights["w3"] * even, "w3_odd": weights["w3"] * ~even}
    weights |= {"two": np.float32(2), "half": np.float32(0.5), "overlap": np.float32(0.9)}
    integers = {
        "all": (-1,),
        "channels": (4, -1),
        "k": (4000,),
        "first": (1, 1, -1),
        "most": (4000,),
        "image": (1, 4, 40, 100),
    }
    integers |= {"batch": (1, -1, 4), "last": (2,)}
    for name, array in weights.items():
        made.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array, np.float32), name))
    for name, row in integers.items():
        made.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(row, np.int64), name))
    return made


def best() -> onnx.ModelProto:
    """The boxes with the highest scores, and one more layer on them."""
    body = """
        v, i = TopK (scores, k)
        chosen = Gather <axis = 0> (boxes, i)
        turned = Transpose <perm = [1, 0]> (chosen)
        picture = Reshape (turned, image)
        y = Conv (picture, w4)
    """
    return model(body, "float[1, 8, 40, 100] y")


def above() -> onnx.ModelProto:
    """The boxes whose scores exceed other scores; their number depends on the data."""
    body = """
        high = Greater (p, q)
        flat = Reshape (high, all)
        places = NonZero (flat)
        row = Reshape (places, all)
        y = Gather <axis = 0> (boxes, row)
    """
    return model(body, "float[n, 4] y")


def apart() -> onnx.ModelProto:
    """The boxes that NonMaxSuppression selects."""
    body = """
        sets = Reshape (boxes, batch)
        classes = Reshape (scores, first)
        found = NonMaxSuppression (sets, classes, most, overlap)
        which = Gather <axis = 1> (found, last)
        row = Reshape (which, all)
        y = Gather <axis = 0> (boxes, row)
    """
    return model(body, "float[n, 4] y, int64[m, 3] found")


def cut_down() -> onnx.ModelProto:
    """Numbers that Floor rounds down, as floating-point values."""
    body = """
        difference = Sub (p, q)
        near = Add (difference, two)
        whole = Floor (near)
        y = Mul (whole, f)
    """
    return model(body, "float[1, 4, 128, 128] y")


def larger() -> onnx.ModelProto:
    """The index of the higher of two scores."""
    body = """
        both = Concat <axis = 1> (p, q)
        which = ArgMax <axis = 1> (both)
        factor = Cast <to = 1> (which)
        y = Mul (factor, f)
    """
    return model(body, "float[1, 4, 128, 128] y")


MODELS = (best, above, apart, cut_down, larger)
DECIDED = {(each, "ascend-910b") for each in ("above", "cut_down", "larger")}
"""Where some decision is another one, so that this is no test of nothing."""


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_it_is_verified_segment_by_segment(make: Callable[[], onnx.ModelProto], way: tuple[str, str | None]) -> None:
    target, dialect = way
    report = layoutopt.optimize(make(), target, dialect=dialect).report
    assert report.changed
    assert report.verification.status == "passed"
    assert (make.__name__, target) not in DECIDED or report.verification.reason.startswith("segment by segment")


@pytest.mark.parametrize("spoilt", ["w0", "w2", "w3"])
@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_what_is_wrong_is_found_all_the_same(make: Callable[[], onnx.ModelProto], spoilt: str) -> None:
    """Verification detects a change of one weight by 1 %."""

    def spoil(moment: str, step: layoutopt.Pass, graph: Graph) -> None:
        if (moment, step.name) == ("before", "assign-formats"):
            weight = graph.value(spoilt)
            assert weight.data is not None
            numbers = weight.data.numpy().copy()
            numbers.flat[np.abs(numbers).argmax()] *= 1.01
            weight.data = ArrayData(numbers)
            graph.touch()

    with pytest.raises(VerificationError, match="not equivalent"):
        layoutopt.optimize(make(), "ascend-910b", dialect="ops", watch=spoil)
