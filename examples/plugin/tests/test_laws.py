"""The op types and the pass meet the laws of `layoutopt.testing`; models for the chip are verified."""

import numpy as np
import onnx
from acme_npu.cancel_mirrors import CancelMirrors
from onnx import numpy_helper

from layoutopt import optimize
from layoutopt.testing import check_pass, check_rule, make_sample

# No runtime has a kernel for the op type, so a function defines it. Its last two lines give the result the shape of x.
MIRROR = """<domain: "acme", opset_import: ["" : 18]>
Mirror <axis> (x) => (y) {
    minus_one = Constant <value_ints = [-1]> ()
    first = Constant <value_ints = [-9223372036854775807]> ()
    number = Constant <value_int : int = @axis> ()
    axes = Reshape (number, minus_one)
    mirrored = Slice (x, minus_one, first, axes, minus_one)
    shape = Shape (x)
    y = Reshape (mirrored, shape)
}"""
NET = f"""<ir_version: 10, opset_import: ["" : 18, "acme" : 1]>
net (float[1, 16, 24, 24] x) => (float[1, 16, 24, 24] y) {{
    a = Conv <pads = [1, 1, 1, 1]> (x, w)
    b = acme.Mirror <axis = 3> (a)
    c = acme.Mirror <axis = 3> (b)
    d = Conv <pads = [1, 1, 1, 1]> (c, w)
    e = acme.Mirror <axis = 3> (d)
    y = Conv <pads = [1, 1, 1, 1]> (e, w)
}}
{MIRROR}"""


def network() -> onnx.ModelProto:
    """Three convolutions with Mirrors between them."""
    model = onnx.parser.parse_model(NET)
    weights = np.random.default_rng(0).normal(size=(16, 16, 3, 3)).astype(np.float32) / 10
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return model


HALVE = """<domain: "acme", opset_import: ["" : 18]>
Halve (x) => (y) { two = Constant <value_float = 2.0> () y = Div (x, two) }"""


def test_an_element_wise_op() -> None:
    assert check_rule(make_sample("y = acme.Halve (x)", x=(2, 17, 4, 5), function=HALVE)) > 10


def test_an_op_along_an_axis() -> None:
    axes = ("axis = 3", "axis = 1", "axis = 0")
    samples = (make_sample(f"y = acme.Mirror <{axis}> (x)", x=(2, 17, 4, 5), function=MIRROR) for axis in axes)
    assert check_rule(*samples) > 100


def test_the_pass() -> None:
    assert check_pass(CancelMirrors(), network(), target="acme-npu") == 1


def test_the_dialect_and_the_chip() -> None:
    for target in ("acme-npu", "gpu-hopper"):
        report = optimize(network(), target, dialect="acme").report
        assert report.changed and report.verification.status == "passed"
