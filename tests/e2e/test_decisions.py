"""Models with discontinuous ops: rounding changes the order of nearly equal values, and all later values differ.

Of 4,096 scores some differ by no more than a rounding; and `p` and `q` are one sum in two orders: rounding alone decides which
is larger.
"""

import numpy as np
import onnx
import pytest
from parsed_models import parsed
from tiers import covering

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

MODELS = {
    # The boxes with the highest scores, and one more layer on them.
    "best": """(float[1, 8, 20, 50] y) {
        v, i = TopK (scores, k)
        chosen = Gather <axis = 0> (boxes, i)
        turned = Transpose <perm = [1, 0]> (chosen)
        picture = Reshape (turned, image)
        y = Conv (picture, w4)""",
    # The boxes whose scores exceed other scores; their number depends on the data.
    "above": """(float[n, 4] y) {
        high = Greater (p, q)
        flat = Reshape (high, all)
        places = NonZero (flat)
        row = Reshape (places, all)
        y = Gather <axis = 0> (boxes, row)""",
    # The boxes that NonMaxSuppression selects.
    "apart": """(float[n, 4] y, int64[m, 3] found) {
        sets = Reshape (boxes, batch)
        classes = Reshape (scores, first)
        found = NonMaxSuppression (sets, classes, most, overlap)
        which = Gather <axis = 1> (found, last)
        row = Reshape (which, all)
        y = Gather <axis = 0> (boxes, row)""",
    # Numbers that Floor rounds down, as floating-point values.
    "cut_down": """(float[1, 4, 64, 64] y) {
        difference = Sub (p, q)
        near = Add (difference, two)
        whole = Floor (near)
        y = Mul (whole, f)""",
    # The index of the higher of two scores.
    "larger": """(float[1, 4, 64, 64] y) {
        both = Concat <axis = 1> (p, q)
        which = ArgMax <axis = 1> (both)
        factor = Cast <to = 1> (which)
        y = Mul (factor, f)""",
}


def model(name: str) -> onnx.ModelProto:
    """A convolutional network with scores (4096) and boxes (4096, 4), and further ops on them."""
    numbers = np.random.default_rng(1)
    shapes = {"w0": (32, 32, 3, 3), "w1": (32, 3, 3, 3), "b1": (32,), "w2": (4, 32, 3, 3), "b2": (4,)}
    shapes |= {"w3": (1, 32, 3, 3), "w4": (8, 4, 1, 1)}
    weights = {name: numbers.normal(size=shape) / np.sqrt(np.prod(shape[1:])) for name, shape in shapes.items()}
    even = np.arange(32).reshape(1, 32, 1, 1) % 2 == 0
    weights |= {"w3_even": weights["w3"] * even, "w3_odd": weights["w3"] * ~even}
    weights |= {"two": np.asarray(2), "overlap": np.asarray(0.9)}
    integers = {"all": [-1], "channels": [4, -1], "k": [1000], "first": [1, 1, -1], "most": [1000]}
    integers |= {"image": [1, 4, 20, 50], "batch": [1, -1, 4], "last": [2]}
    outputs, body = MODELS[name].split("{")
    text = f'<ir_version: 9, opset_import: ["": 18]> detector (float[1, 3, 64, 64] x) => {outputs} {{ {HEAD} {body} }}'
    return parsed(text, **{name: array.astype(np.float32) for name, array in weights.items()}, **integers)


DECIDED = {(each, "ascend-910b") for each in ("above", "cut_down", "larger")}
"""Where some decision is another one, so that this is no test of nothing."""


@pytest.mark.parametrize(("name", "way"), covering(MODELS, WAYS))
def test_it_is_verified_segment_by_segment(name: str, way: tuple[str, str | None]) -> None:
    target, dialect = way
    report = layoutopt.optimize(model(name), target, dialect=dialect).report
    assert report.changed
    assert report.verification.status == "passed"
    assert (name, target) not in DECIDED or report.verification.reason.startswith("segment by segment")


@pytest.mark.parametrize(("name", "spoilt"), covering(MODELS, ["w0", "w2", "w3"]))
def test_what_is_wrong_is_found_all_the_same(name: str, spoilt: str) -> None:
    """Verification detects a change of one weight by 1 %."""

    def spoil(moment: str, step: layoutopt.Pass, graph: Graph) -> None:
        if (moment, step.name) == ("before", "assign-formats"):
            weight = graph.value(spoilt)
            numbers = weight.data.numpy().copy()
            numbers.flat[np.abs(numbers).argmax()] *= 1.01
            weight.data = ArrayData(numbers)
            graph.touch()

    with pytest.raises(VerificationError, match="not equivalent"):
        layoutopt.optimize(model(name), "ascend-910b", dialect="ops", watch=spoil)
