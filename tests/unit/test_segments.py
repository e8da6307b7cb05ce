"""Quantised models are compared segment by segment: rounded values may differ by one step, permuted channels fail."""

import numpy as np
import onnx
import onnx.parser
import onnx_ir
import pytest
from onnx import numpy_helper

import layoutopt
from layoutopt import onnx_io
from layoutopt.errors import VerificationError
from layoutopt.formats import Format
from layoutopt.ir.types import DType
from layoutopt.verification import ObservedValue, Verification, gate, verify_models
from layoutopt.verification.comparison import PairOfModels
from layoutopt.verification.cuts import Cuts, relative_margin
from layoutopt.verification.runnable import Runnable
from layoutopt.verification.runs import Request

FOUR = Format.canonical(4)
DEPTH, CHANNELS, SIDE, STEP = 5, 16, 24, 0.03
BETWEEN = [f"q{number}" for number in range(DEPTH + 1)]


def chain(
    *,
    gain: float = 1.0,
    swapped: tuple[int, int] = (0, 0),
    drift: float = 0.0,
    touched: float = 0.0,
    scale: float = 1.0,
    end: str = "Identity",
) -> onnx_ir.Model:
    """Convolutions of integers behind a float product, with a fault in the third one.

    Args:
        gain: a factor in front of all.
        swapped: two output channels.
        drift: how many steps one channel is off.
        touched: how many steps one element is off.
        scale: a factor of one weight.
        end: the op behind all.
    """
    generator = np.random.default_rng(0)
    shape = f"[1,{CHANNELS},{SIDE},{SIDE}]"
    header = '<ir_version: 8, opset_import: ["" : 17]>'
    model = onnx.parser.parse_model(f"{header} g (float{shape} x) => (float{shape} y) {{}}")
    tensors = {"s": np.float32(STEP), "ws": np.float32(0.004), "gain": np.float32(1.3 * gain)}
    off = np.zeros((1, CHANNELS, SIDE, SIDE), np.float32)
    off[:, 5], off[0, 1, 7, 10] = STEP * drift, STEP * touched
    tensors["off"] = off
    lines = ["m = Mul (x, gain)", "q0 = QuantizeLinear (m, s)"]
    for number in range(DEPTH):
        weight = np.clip(40 * generator.normal(size=(CHANNELS, CHANNELS, 3, 3)), -127, 127).astype(np.int8)
        if number == 2:
            order = np.arange(CHANNELS)
            order[list(swapped)] = order[list(swapped[::-1])]
            weight = weight[order]
            weight[2, 3, 1, 1] = np.round(scale * weight[2, 3, 1, 1])
        tensors[f"w{number}"] = weight
        lines += [f"d{number} = DequantizeLinear (q{number}, s)", f"v{number} = DequantizeLinear (w{number}, ws)"]
        lines += [f"p{number} = Conv <pads = [1, 1, 1, 1]> (d{number}, v{number})"]
        lines += [f"c{number} = Add (p{number}, off)" if number == 2 else f"c{number} = Identity (p{number})"]
        lines += [f"q{number + 1} = QuantizeLinear (c{number}, s)"]
    lines += [f"z = DequantizeLinear (q{DEPTH}, s)", f"y = {end} (z)"]
    model.graph.node.extend(onnx.parser.parse_node(line) for line in lines)
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in tensors.items())
    return onnx_ir.serde.deserialize_model(model)


def compared(
    rewritten: onnx_ir.Model, original: onnx_ir.Model | None = None, *, knows_fractions: bool = True
) -> Verification:
    dtypes = dict.fromkeys(BETWEEN, DType.UINT8)
    margins = dict.fromkeys(BETWEEN, relative_margin(DType.FLOAT32)) if knows_fractions else {}
    cuts = Cuts([ObservedValue(name, name, FOUR) for name in BETWEEN], dtypes, frozenset(BETWEEN), margins)
    return PairOfModels(
        runnable(original or chain()), runnable(rewritten), Request(), cuts, is_optimised=False
    ).verdict()


def runnable(model: onnx_ir.Model) -> Runnable:
    return Runnable.of(onnx_io.to_bytes(model))


def wrong(verdict: Verification) -> set[str]:
    return {each.name for each in verdict.comparisons if not each.passed}


def test_roundings_differ_and_are_none_the_worse_for_it() -> None:
    other = chain(gain=1 + 2e-5)
    assert not verify_models(onnx_io.to_bytes(chain()), onnx_io.to_bytes(other)).is_conclusive
    assert compared(other).status == "passed"


@pytest.mark.parametrize("swapped", [(0, 1), (3, 11)])
def test_channels_that_change_places_are_found(swapped: tuple[int, int]) -> None:
    for knows_fractions in (True, False):
        verdict = compared(chain(swapped=swapped), knows_fractions=knows_fractions)
        assert verdict.status == "failed"
        assert wrong(verdict) == {"q3"}, "every other piece is right, and gets what the original computed"


@pytest.mark.parametrize("gain", [1.01, 1.001, 0.999])
def test_so_is_another_scale(gain: float) -> None:
    assert wrong(compared(chain(gain=gain))) == {"q0"}


@pytest.mark.parametrize("change", [{"drift": 0.1}, {"drift": -0.5}, {"scale": 0.0}, {"scale": -1.0}], ids=str)
def test_so_is_a_channel_that_is_a_little_off(change: dict[str, float]) -> None:
    assert wrong(compared(chain(**change))) == {"q3"}


def test_so_is_one_step_in_one_element_where_no_rounding_explains_it() -> None:
    """One step in one element is detected, unless the values before rounding are unknown."""
    assert wrong(compared(chain(touched=1.0))) == {"q3"}
    assert compared(chain(touched=1.0), knows_fractions=False).status == "passed"


def cut(gain: float = 1.0, *, bias: float = 0.0, inside: bool = False) -> onnx_ir.Model:
    """A model that rounds float16 values down, at its output or inside of it."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float16[1,16,24,24] x) => (REPLY) {
        c = Conv <pads = [1, 1, 1, 1]> (x, w)
        m = Mul (c, gain)
        b = Add (m, bias)
        y = Cast <to = 6> (b)
        f = Cast <to = 10> (y)
        z = Sigmoid (f)
    }"""
    reply = "float16[1,16,24,24] z" if inside else "int32[1,16,24,24] y"
    model = onnx.parser.parse_model(text.replace("REPLY", reply))
    del model.graph.node[6 if inside else 4 :]
    weight = 0.5 * np.random.default_rng(0).normal(size=(16, 16, 3, 3))
    tensors = {"w": weight, "gain": np.asarray(gain), "bias": np.asarray(bias)}
    model.graph.initializer.extend(
        numpy_helper.from_array(array.astype(np.float16), name) for name, array in tensors.items()
    )
    return onnx_ir.serde.deserialize_model(model)


def cut_apart(rewritten: onnx_ir.Model, *, inside: bool) -> Verification:
    values = [ObservedValue("y", "y", FOUR)] if inside else []
    cuts = Cuts(values, {"y": DType.INT32} if inside else {}, frozenset("y"), {"y": relative_margin(DType.FLOAT16)})
    return PairOfModels(
        runnable(cut(inside=inside)), runnable(rewritten), Request(), cuts, is_optimised=False
    ).verdict()


@pytest.mark.parametrize("inside", [False, True])
def test_a_fraction_that_is_cut_off_may_fall_on_the_other_side(inside: bool) -> None:
    other = cut(1 + 2**-10, inside=inside)
    assert not verify_models(onnx_io.to_bytes(cut(inside=inside)), onnx_io.to_bytes(other)).is_conclusive
    assert cut_apart(other, inside=inside).status == "passed"


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("change", [{"gain": 1.05}, {"bias": 1.0}, {"bias": -0.5}], ids=str)
def test_no_more_than_that(change: dict[str, float], inside: bool) -> None:
    assert "y" in wrong(cut_apart(cut(inside=inside, **change), inside=inside))


def test_segments_do_not_clear_a_model_that_cannot_be_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "compare_as_a_whole", lambda *_, **__: Verification("failed", "it cannot be run"))
    with pytest.raises(VerificationError, match="it cannot be run"):
        layoutopt.optimize(cut(), "ascend-910b")
