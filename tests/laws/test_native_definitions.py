"""Laws of operators: definitions of the blocked ones equal onnxruntime's kernels."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import numpy_helper
from tiers import covering

from layoutopt.dialects.onnxruntime.tables import kernels
from layoutopt.runtime.definitions import DEFINITION_DOMAIN, DEFINITIONS, define
from layoutopt.runtime.kernel_queries import BLOCKED_DOMAIN, blocked_channels
from layoutopt.runtime.session import Session

BLOCK = blocked_channels() or 0
OPSETS = (7, 8, 9, 10, 11, 12, 13, 14, 17, 18, 21, 22, 24)
ACTIVATIONS: dict[str, tuple[float, ...]] = {
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "HardSwish": (),
    "LeakyRelu": (0.1,),
    "Clip": (-0.25, 0.75),
    "HardSigmoid": (0.3, 0.4),
}

runs_kernels = pytest.mark.skipif(not BLOCK, reason="onnxruntime has no blocked kernels on this machine")


def model(op_type: str, arrays: Sequence[Any], opset: int, **fields: Any) -> onnx.ModelProto:
    """A model of one blocked operator, whose inputs are `arrays`; None is an omitted one."""
    names = ", ".join("" if array is None else f"x{index}" for index, array in enumerate(arrays))
    inputs = ", ".join(
        f"float[{','.join(map(str, array.shape))}] x{index}" for index, array in enumerate(arrays) if array is not None
    )
    given = ", ".join(f"{name} = {json.dumps(value)}" for name, value in fields.items())
    given = f"<{given}>" if given else ""
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}, "{BLOCKED_DOMAIN}" : 1]>'
        f" g ({inputs}) => (float[] y) {{ y = {BLOCKED_DOMAIN}.{op_type} {given} ({names}) }}"
    )


def agree(op_type: str, arrays: Sequence[Any], opset: int = 17, **fields: Any) -> None:
    """Run the kernel and the definition on the arrays, as inputs and as constants, and compare the results."""
    message = model(op_type, arrays, opset, **fields)
    feeds = {each.name: arrays[int(each.name[1:])] for each in message.graph.input}
    (want,) = Session(message.SerializeToString()).run(None, feeds)
    define(message, BLOCK)
    assert {node.domain for node in message.graph.node} == {DEFINITION_DOMAIN}
    constant = onnx.ModelProto.FromString(message.SerializeToString())
    constant.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in feeds.items() if name != "x0"
    )
    del constant.graph.input[1:]
    for each in (message, constant):
        given = {info.name: feeds[info.name] for info in each.graph.input}
        for optimised in (True, False):
            (got,) = Session(each.SerializeToString(), is_optimised=optimised).run(None, given)
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * max(1.0, float(np.abs(want).max(initial=0))))


def noise(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def test_every_operator_has_a_definition() -> None:
    assert {op for domain, op in kernels() if domain == BLOCKED_DOMAIN} == set(DEFINITIONS)


@runs_kernels
@pytest.mark.parametrize(("opset", "activation"), covering(OPSETS, ["", *ACTIVATIONS]))
def test_convolutions_of_every_opset(opset: int, activation: str) -> None:
    fields: dict[str, Any] = {"activation": activation} if activation else {}
    if ACTIVATIONS.get(activation):
        fields["activation_params"] = ACTIVATIONS[activation]
    arrays = noise(2, BLOCK, 5, 4), noise(2 * BLOCK, BLOCK, 3, 3), noise(2 * BLOCK), noise(2, 2 * BLOCK, 5, 4)
    agree("Conv", arrays, opset, kernel_shape=(3, 3), pads=(1, 1, 1, 1), **fields)


@runs_kernels
@given(st.data())
def test_convolutions(data: st.DataObject) -> None:
    def pick(*values: Any) -> Any:
        return data.draw(st.sampled_from(values))

    kind = pick("dense", "grouped", "depthwise", "plain")
    batch, height, width = pick(1, 2), pick(1, 6, 7), pick(1, 5, 8)
    kernel = pick((1, 1), (3, 3), (1, 3), (2, 2))
    outputs = pick(1, 2, 3) * BLOCK
    inputs, groups, per_group = {
        "dense": (2 * BLOCK, 1, 2 * BLOCK),
        "grouped": (2 * BLOCK, 2, BLOCK),
        "depthwise": (outputs, outputs, 1),
        "plain": (3, 1, 3),
    }[kind]
    assume(kind != "grouped" or outputs % (groups * BLOCK) == 0)
    fields: dict[str, Any] = {"kernel_shape": kernel, "group": groups}
    fields["strides"], fields["dilations"] = pick((1, 1), (2, 1), (2, 2)), pick((1, 1), (2, 1))
    if pick(True, False):
        fields["auto_pad"] = pick("SAME_UPPER", "SAME_LOWER", "VALID")
        assume(fields["auto_pad"] == "VALID" or fields["dilations"] == (1, 1))
    else:
        fields["pads"] = pick((0, 0, 0, 0), (1, 1, 1, 1), (1, 0, 0, 1))
    pads = fields.get("pads", (0,) * 4)
    spans = [step * (taps - 1) + 1 for step, taps in zip(fields["dilations"], kernel, strict=True)]
    assume(height + pads[0] + pads[2] >= spans[0] and width + pads[1] + pads[3] >= spans[1])
    bias = pick(None, noise(outputs))
    agree(
        "Conv", [noise(batch, inputs, height, width), noise(outputs, per_group, *kernel), bias], pick(*OPSETS), **fields
    )


@runs_kernels
@pytest.mark.parametrize(
    ("opset", "op_type", "fields"),
    covering(OPSETS, ["MaxPool", "AveragePool"], [{}, {"pads": (1, 0, 1, 1)}, {"auto_pad": "SAME_LOWER"}]),
)
def test_poolings(op_type: str, opset: int, fields: dict[str, Any]) -> None:
    ways: list[dict[str, int]] = [{}, *([{"ceil_mode": 1}] if opset >= 10 else [])]
    ways += [{"count_include_pad": 1}] if op_type == "AveragePool" else []
    for way in ways:
        agree(op_type, [noise(2, 2 * BLOCK, 7, 6)], opset, kernel_shape=(3, 2), strides=(2, 1), **fields, **way)
    agree(f"Global{op_type}", [noise(2, 3 * BLOCK, 7, 6)], opset)


@runs_kernels
@pytest.mark.parametrize(("opset", "channels", "last"), covering(OPSETS, [4, 12, 16, 20, 32, 36], [0, 1]))
def test_reorders(opset: int, channels: int, last: int) -> None:
    plain = (2, 5, 3, channels) if last else (2, channels, 5, 3)
    agree("ReorderInput", [noise(*plain)], opset, channels_last=last)
    padded = -(-channels // BLOCK) * BLOCK
    agree("ReorderOutput", [noise(2, padded, 5, 3)], opset, channels=channels, channels_last=last)


@runs_kernels
@pytest.mark.parametrize(("opset", "scales"), covering(OPSETS, [(1, 1, 2, 2), (1, 1, 3, 1), (1, 1, 1, 4)]))
def test_upsampling(opset: int, scales: tuple[int, ...]) -> None:
    image = [noise(2, 2 * BLOCK, 3, 5)]
    agree("Upsample", image, opset, mode="nearest", coordinate_transformation_mode="asymmetric", scales=scales)
    for coordinates in ("asymmetric", "align_corners", "half_pixel") if opset >= 11 else ("asymmetric",):
        agree("Upsample", image, opset, mode="linear", coordinate_transformation_mode=coordinates, scales=scales)


def test_a_definition_refuses_what_the_kernel_refuses() -> None:
    """12 channels run where a block is 16, as plain ones, and fail where it is 8; 24 do the opposite."""
    for block, runs in ((8, 24), (16, 12)):
        for channels in (12, 24):
            message = model("Conv", [noise(1, channels, 1, 1), noise(48, channels, 1, 1)], 17, kernel_shape=(1, 1))
            define(message, block)
            feeds = {"x0": noise(1, channels, 1, 1), "x1": noise(48, channels, 1, 1)}
            if channels == runs:
                assert Session(message.SerializeToString()).run(None, feeds)[0].shape == (1, 48, 1, 1)
            else:
                with pytest.raises(Exception, match=r"[Rr]eshape"):
                    Session(message.SerializeToString()).run(None, feeds)
