"""Quantised models are compared piece by piece: a rounding may fall on the other side, a channel may not go elsewhere."""

import numpy as np
import onnx
import onnx.parser
import onnx_ir
import pytest
from onnx import numpy_helper

from layoutopt import onnx_io
from layoutopt.formats import Format
from layoutopt.ir.types import DType
from layoutopt.probes import Probe
from layoutopt.rounding import step_by_step
from layoutopt.verify import Verification, verify_models

DEPTH, CHANNELS, SIDE = 5, 16, 24
BETWEEN = [f"q{number}" for number in range(DEPTH + 1)]


def chain(*, gain: float = 1.0, swapped: tuple[int, int] = (0, 0)) -> onnx_ir.Model:
    """Convolutions of integers behind a float product; `gain` is a factor in front, `swapped` two channels behind the third."""
    generator = np.random.default_rng(0)
    shape = f"[1,{CHANNELS},{SIDE},{SIDE}]"
    header = '<ir_version: 8, opset_import: ["" : 17]>'
    model = onnx.parser.parse_model(f"{header} g (float{shape} x) => (float{shape} y) {{}}")
    tensors = {"s": np.float32(0.03), "ws": np.float32(0.004), "gain": np.float32(1.3 * gain)}
    lines = ["m = Mul (x, gain)", "q0 = QuantizeLinear (m, s)"]
    for number in range(DEPTH):
        weight = np.clip(40 * generator.normal(size=(CHANNELS, CHANNELS, 3, 3)), -127, 127).astype(np.int8)
        if number == 2:
            order = np.arange(CHANNELS)
            order[list(swapped)] = order[list(swapped[::-1])]
            weight = weight[order]
        tensors[f"w{number}"] = weight
        lines += [f"d{number} = DequantizeLinear (q{number}, s)", f"v{number} = DequantizeLinear (w{number}, ws)"]
        lines += [f"c{number} = Conv <pads = [1, 1, 1, 1]> (d{number}, v{number})"]
        lines += [f"q{number + 1} = QuantizeLinear (c{number}, s)"]
    lines.append(f"y = DequantizeLinear (q{DEPTH}, s)")
    model.graph.node.extend(onnx.parser.parse_node(line) for line in lines)
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in tensors.items())
    return onnx_ir.serde.deserialize_model(model)


def compared(rewritten: onnx_ir.Model) -> Verification:
    steps = [Probe(name, name, Format.canonical(4)) for name in BETWEEN]
    original = onnx_io.to_bytes_exposing(chain(), BETWEEN)
    return step_by_step(original, onnx_io.to_bytes_cut(rewritten, dict.fromkeys(BETWEEN, DType.UINT8)), steps)


def test_roundings_differ_and_are_none_the_worse_for_it() -> None:
    other = chain(gain=1 + 2e-5)
    assert verify_models(onnx_io.to_bytes(chain()), onnx_io.to_bytes(other)).status == "failed"
    assert compared(other).status == "passed"


@pytest.mark.parametrize("swapped", [(0, 1), (3, 11)])
def test_channels_that_change_places_are_found(swapped: tuple[int, int]) -> None:
    verdict = compared(chain(swapped=swapped))
    assert verdict.status == "failed"
    wrong = {each.name for each in verdict.comparisons if not each.passed}
    assert wrong == {"q3"}, "every other piece is right, and gets what the original computed"


def test_so_is_another_scale() -> None:
    assert compared(chain(gain=1.01)).status == "failed"
