"""Group normalisation as exporters write it: it is raised, expanded again, and stays blocked."""

from collections import Counter

import numpy as np
import onnx
import onnx.parser
import pytest

import layoutopt
from layoutopt.cost_models.registry import host_target

BLOCK = {"cpu-avx2": 8, "cpu-avx512": 16}.get(host_target(), 16)
BLOCKED = pytest.mark.skipif(
    host_target() not in ("cpu-avx2", "cpu-avx512"), reason="the blocks of this processor are not known"
)


def network(
    channels: int,
    groups: int,
    image: tuple[int | str, ...] = (6, 5),
    batch: int | str = 1,
    affine: bool = True,
    opset: int = 17,
    offset: float = 0.0,
) -> onnx.ModelProto:
    """Two convolutions, and between them a group normalisation and SiLU."""
    generator = np.random.default_rng(0)
    extents, ones = ",".join(map(str, image)), ",".join("1" * len(image))
    unknown = ",".join("?" for _ in range(2 + len(image)))
    scaled = "m = Mul(r, s) h = Add(m, b)" if affine else "h = Identity(r)"
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[{batch},{channels},{extents}] x) => (float[{unknown}] y) <'
        f"int64[3] grouped = {{0, {groups}, -1}}, float[{groups}] one = {{{','.join(['1.0'] * groups)}}},"
        f" float[{groups}] zero = {{{','.join(['0.0'] * groups)}}}> {{"
        f"c = Conv(x, w, t) q = Reshape(c, grouped) n = InstanceNormalization <epsilon = 0.0001> (q, one, zero)"
        f" back = Shape(c) r = Reshape(n, back) {scaled} z = Sigmoid(h) a = Mul(h, z) y = Conv(a, v)}}"
    )
    arrays = {
        "w": generator.normal(size=(channels, channels, *(1 for _ in image)), scale=channels**-0.5),
        "v": generator.normal(size=(channels, channels, *(1 for _ in image)), scale=channels**-0.5),
        "t": np.full(channels, offset),
        **dict.fromkeys("sb", generator.uniform(0.5, 2.0, size=(channels, *map(int, ones.split(","))))),
    }
    used = {name for node in model.graph.node for name in node.input}
    for name in sorted(used & arrays.keys()):
        model.graph.initializer.append(onnx.numpy_helper.from_array(arrays[name].astype(np.float32), name))
    return model


def blocked(model: onnx.ModelProto) -> Counter[str]:
    """The ops of the optimised and verified model, whose normalisation reads and writes blocks."""
    rank = len(model.graph.initializer[-1].dims)
    format = f"NC{'DHW'[5 - rank :]}{BLOCK}c" if rank > 3 else f"NCW{BLOCK}c"
    result = layoutopt.optimize(model, host_target(), dialect="onnxruntime", pins={"c": format, "h": format})
    assert result.report.verification.status == "passed"
    return Counter(node.op_type for node in result.proto.graph.node)


@BLOCKED
@pytest.mark.parametrize("batch", [1, 2, "N"])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(("channels", "groups"), [(64, 1), (64, 4), (64, 8), (64, 64), (96, 16), (48, 1), (32, 8)])
def test_it_stays_blocked(channels: int, groups: int, affine: bool, batch: int | str) -> None:
    found = blocked(network(channels, groups, batch=batch, affine=affine))
    plain = batch == "N" and channels // groups % BLOCK != 0  # filters cannot be computed per sample then
    assert found["ReorderOutput"] == 1 + plain
    assert found["Transpose"] == found["Mul"] == found["Add"] == 0


@BLOCKED
@pytest.mark.parametrize("image", [(1, 1), (24, 33), ("H", "W"), (40,), (4, 6, 5)])
@pytest.mark.parametrize("groups", [4, 8])
def test_every_image_is_normalised(image: tuple[int | str, ...], groups: int) -> None:
    blocked(network(64, groups, image))


@BLOCKED
@pytest.mark.parametrize("groups", [4, 8])
def test_a_large_mean_does_no_harm(groups: int) -> None:
    """A mean of 100 does not reduce accuracy; a one-pass variance would be the difference of two numbers near 10000."""
    blocked(network(64, groups, offset=100.0))


def test_it_keeps_channels_last() -> None:
    result = layoutopt.optimize(network(64, 8), "gpu-ampere", runtime="compiler", pins={"c": "NHWC", "h": "NHWC"})
    assert result.report.after.casts <= 2
    calls = [node for node in result.proto.graph.node if node.op_type == "GroupNormalization_NHWC"]
    assert [{each.name for each in call.attribute} >= {"num_groups", "epsilon"} for call in calls] == [True]
