"""Group normalisation as exporters write it: it is raised, expanded again, and stays blocked."""

from collections import Counter

import onnx
import onnx.parser
import pytest
from parsed_models import text_model
from tiers import covering

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
    mean: float = 0.0,
) -> onnx.ModelProto:
    """Two convolutions, and between them a group normalisation and SiLU."""
    extents, unknown, ones = ",".join(map(str, image)), ",?" * len(image), ",1" * len(image)
    scaled = "m = Mul(r, s) h = Add(m, b)" if affine else "h = Identity(r)"
    filters, affines = f"float[{channels},{channels}{ones}]", f"float[{channels}{ones}]"
    return text_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[{batch},{channels},{extents}] x) => (float[?,?{unknown}] y) <'
        f"int64[3] grouped = {{0, {groups}, -1}}, float[{groups}] one = {{{','.join(['1.0'] * groups)}}},"
        f" float[{groups}] zero = {{{','.join(['0.0'] * groups)}}}, float mean = {{{mean}}},"
        f" {filters} w, {filters} v{f', {affines} s, {affines} b' if affine else ''}> {{"
        f"i = Conv(x, w) c = Add(i, mean) q = Reshape(c, grouped)"
        f" n = InstanceNormalization <epsilon = 0.0001> (q, one, zero)"
        f" back = Shape(c) r = Reshape(n, back) {scaled} z = Sigmoid(h) a = Mul(h, z) y = Conv(a, v)}}"
    )


def blocked(model: onnx.ModelProto) -> Counter[str]:
    """The ops of the optimised and verified model, whose normalisation reads and writes blocks."""
    rank = len(model.graph.input[0].type.tensor_type.shape.dim)
    format = f"NC{'DHW'[5 - rank :]}{BLOCK}c" if rank > 3 else f"NCW{BLOCK}c"
    result = layoutopt.optimize(model, host_target(), dialect="onnxruntime", pins={"c": format, "h": format})
    assert result.report.verification.status == "passed"
    return Counter(node.op_type for node in result.proto.graph.node)


@BLOCKED
@pytest.mark.parametrize(
    ("sizes", "affine", "batch"),
    covering([(64, 1), (64, 4), (64, 8), (64, 64), (96, 16), (48, 1), (32, 8)], [True, False], [1, 2, "N"]),
)
def test_it_stays_blocked(sizes: tuple[int, int], affine: bool, batch: int | str) -> None:
    channels, groups = sizes
    found = blocked(network(channels, groups, batch=batch, affine=affine))
    plain = channels // groups % BLOCK != 0
    assert found["ReorderOutput"] == 1 + plain
    assert found["Transpose"] == found["Mul"] == found["Add"] == 0


@BLOCKED
@pytest.mark.parametrize(
    ("sample", "groups"),
    covering([((1, 1), 0), ((24, 33), 0), (("H", "W"), 0), ((40,), 0), ((6, 5), 100)], [4, 8]),
)
def test_every_image_is_normalised(sample: tuple[tuple[int | str, ...], float], groups: int) -> None:
    """A mean of 100 does not reduce accuracy; a one-pass variance would be the difference of two numbers near 10000."""
    image, mean = sample
    blocked(network(64, groups, image, mean=mean))


def test_it_keeps_channels_last() -> None:
    result = layoutopt.optimize(network(64, 8), "gpu-ampere", runtime="compiler", pins={"c": "NHWC", "h": "NHWC"})
    assert result.report.after.casts <= 2
    calls = [node for node in result.proto.graph.node if node.op_type == "GroupNormalization_NHWC"]
    assert [{each.name for each in call.attribute} >= {"num_groups", "epsilon"} for call in calls] == [True]
