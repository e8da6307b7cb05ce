"""Blocked resampling by onnxruntime's kernels equals Resize in every mode in which the dialect uses them."""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from math import ceil, floor

import numpy as np
import onnx
import onnx.parser
import pytest
from text_models import text_model
from tiers import tiered

import layoutopt
from layoutopt.cost_models.registry import host_target
from layoutopt.ops.feature_maps import REPEATING_MODES

pytestmark = pytest.mark.skipif(
    host_target() not in ("cpu-avx2", "cpu-avx512"), reason="the blocks of this processor are not known"
)

PIXELS = ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "asymmetric", "align_corners")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
MODES = tiered([("linear", ROUNDINGS[:1]), ("nearest", ROUNDINGS[1:3]), ("nearest", (ROUNDINGS[0], ROUNDINGS[3]))], 2)


def network(
    node: str, image: tuple[int | str, int | str], opset: int, channels: int = 32, batch: str = "1"
) -> onnx.ModelProto:
    """A resampling between two convolutions without a bias or an activation."""
    extents, filters = ",".join(map(str, image)), f"float[{channels},{channels},3,3]"
    return text_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[{batch},{channels},{extents}] x) => (float[?,?,?,?] y)'
        f"<{filters} w1, {filters} w2> {{"
        f"a = Conv <pads = [1,1,1,1]> (x, w1) b = {node} y = Conv <pads = [1,1,1,1]> (b, w2)}}"
    )


def constants(model: onnx.ModelProto, **arrays: np.ndarray) -> onnx.ModelProto:
    for name, array in arrays.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def kinds(model: onnx.ModelProto, pins: dict[str, str] | None = None) -> Counter[str]:
    """The ops of the optimised and verified model."""
    symbols = {dim.dim_param for dim in model.graph.input[0].type.tensor_type.shape.dim if dim.dim_param}
    sizes = dict.fromkeys(symbols, 9)  # verification at the usual size of images takes long
    result = layoutopt.optimize(model, host_target(), dialect="onnxruntime", pins=pins or {}, dims=sizes)
    assert result.report.verification.status == "passed"
    return Counter(f"{node.domain}:{node.op_type}".removeprefix(":") for node in result.proto.graph.node)


def position_of(coordinates: str, rounding: str, index: int, before: int, scale: int) -> int:
    """The index of the nearest element of x by the definition of Resize, in exact arithmetic."""
    after = before * scale
    match coordinates:
        case "asymmetric":
            at = Fraction(index, scale)
        case "tf_half_pixel_for_nn":
            at = (index + Fraction(1, 2)) / scale
        case "align_corners":
            at = Fraction(index * (before - 1), after - 1) if after > 1 else Fraction(0)
        case _:
            at = (index + Fraction(1, 2)) / scale - Fraction(1, 2)
            if coordinates == "pytorch_half_pixel" and after == 1:
                at = Fraction(0)
    half = Fraction(1, 2)
    found = {
        "floor": floor(at),
        "ceil": ceil(at),
        "round_prefer_floor": ceil(at - half),
        "round_prefer_ceil": floor(at + half),
    }
    return min(max(found[rounding], 0), before - 1)


def test_what_repeats_is_known() -> None:
    """REPEATING contains exactly the modes that repeat elements for all extents and scales."""
    ways = product((*PIXELS, "tf_half_pixel_for_nn"), ROUNDINGS)
    cases = [
        (before, scale, index) for before in range(1, 7) for scale in range(1, 9) for index in range(before * scale)
    ]
    repeating = {
        way
        for way in ways
        if all(position_of(*way, index, before, scale) == index // scale for before, scale, index in cases)
    }
    assert repeating == REPEATING_MODES


@pytest.mark.parametrize("pixels", PIXELS)
@pytest.mark.parametrize(("mode", "roundings"), MODES)
def test_every_mode_by_scales_and_by_sizes(mode: str, roundings: Sequence[str], pixels: str) -> None:
    """For integral scales the blocked kernel is used if it is equivalent; otherwise Resize runs on the blocked array."""
    for rounding in roundings:
        attributes = f'mode="{mode}", coordinate_transformation_mode="{pixels}", nearest_mode="{rounding}"'
        for scales in ((3, 2), (1.5, 2), (0.5, 0.7)):
            by_scales = constants(
                network(f"Resize <{attributes}> (a, , s)", (6, 5), 19), s=np.asarray([1, 1, *scales], np.float32)
            )
            sizes = np.asarray([floor(extent * scale) for extent, scale in zip((6, 5), scales, strict=True)], np.int64)
            by_sizes = constants(network(f"Resize <axes=[2,3], {attributes}> (a, , , s)", (6, 5), 19), s=sizes)
            whole = all(scale == int(scale) for scale in scales)
            repeats = mode == "nearest" and (pixels, rounding) in REPEATING_MODES
            native = whole and (mode == "linear" or repeats)
            for model in (by_scales, by_sizes):
                found = kinds(model)
                assert found["com.microsoft.nchwc:Upsample"] == native, (attributes, scales)
                assert found["Resize"] == (not native), (attributes, scales)
                assert not found["Transpose"], (attributes, scales)


@pytest.mark.parametrize("channels", [31, 40])
@pytest.mark.parametrize("batch", ["1", "N"])
@pytest.mark.parametrize("image", [(1, 1), ("H", "W")])
def test_any_channel_count_batch_and_image(channels: int, batch: str, image: tuple[int | str, int | str]) -> None:
    for mode, scale in product(("nearest", "linear"), (2, 1.5)):
        model = network(f'Resize <mode="{mode}"> (a, , s)', image, 18, channels, batch)
        block = {"cpu-avx2": 8, "cpu-avx512": 16}[host_target()]
        pins = dict.fromkeys("ab", f"NCHW{block}c")
        found = kinds(constants(model, s=np.asarray([1, 1, scale, scale], np.float32)), pins)
        assert found["com.microsoft.nchwc:Upsample"] == (scale == 2)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scale", [2, 1.5])
def test_every_opset(mode: str, scale: float) -> None:
    scales = np.asarray([1, 1, scale, scale], np.float32)
    inline = f'Upsample <mode="{mode}", scales=[1.0,1.0,{float(scale)},{float(scale)}]> (a)'
    nodes = {7: inline, 9: f'Upsample <mode="{mode}"> (a, s)', 10: f'Resize <mode="{mode}"> (a, s)'}
    nodes |= {11: f'Resize <mode="{mode}"> (a, r, s)', 13: f'Resize <mode="{mode}"> (a, , s)'}
    for opset, node in nodes.items():
        used = {"s": scales, "r": np.empty(0, np.float32)}
        model = constants(network(node, (4, 5), opset), **{name: used[name] for name in used if f", {name}" in node})
        found = kinds(model)
        assert found["com.microsoft.nchwc:Upsample"] == (scale == 2) and not found["Transpose"], opset
