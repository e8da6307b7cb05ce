"""The dialect `ascend`: names and shapes of formats, the conversion TransData, packed filters, and written networks."""

import json
from collections.abc import Callable
from itertools import permutations
from math import ceil, gcd, lcm
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper
from parsed_models import text_model

import layoutopt
from layoutopt.cost_models import load_target
from layoutopt.dialects.ascend import ASCEND, TRANSDATA, common_origins, format_name, published_shape
from layoutopt.errors import FormatError
from layoutopt.formats import Conversion, Format, as_shape, lookup, pack
from layoutopt.formats.ascend import C1HWNCoC0, FractalZC04, GroupedFractalZ, pack_filter
from layoutopt.formats.catalog import c0, fractal_nz
from layoutopt.ir.graph import CAST, Graph, insert_cast
from layoutopt.ir.types import DType, Storage, TensorType
from layoutopt.onnx_io import check, emit, to_bytes
from layoutopt.ops import rules
from layoutopt.runtime.session import inference_session
from layoutopt.testing.rules import lower

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'


def run(model: bytes, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return list(inference_session(model).run(None, feeds))


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """The attributes of a node, with strings decoded."""
    return {name: each.value for name, each in onnx_ir.from_proto(node).attributes.items()}


def calls(model: onnx.ModelProto, op_type: str = "") -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.domain == ASCEND and node.op_type.startswith(op_type)]


def routes(model: onnx.ModelProto) -> list[tuple[str, str]]:
    """The source and target formats of the TransData nodes of a model."""
    return [
        (attributes_of(node)["src_format"], attributes_of(node)["dst_format"]) for node in calls(model, "TransData")
    ]


def convolutions(filters: list[tuple[tuple[int, ...], int]], shape: list[int], dtype: str = "float") -> onnx.ModelProto:
    """Convolutions behind each other, given by the shapes of their filters and their groups."""
    declared, lines = [], []
    for number, (filter_, group) in enumerate(filters):
        extents = ",".join(map(str, filter_))
        declared += [f"{dtype}[{extents}] w{number}", f"{dtype}[{filter_[0]}] b{number}"]
        operands = f"{f'y{number - 1}' if number else 'x'}, w{number}, b{number}"
        pads = [extent // 2 for extent in filter_[2:]] * 2
        lines.append(f"[conv{number}] y{number} = Conv <group = {group}, pads = {pads}> ({operands})")
    signature = f"({dtype}[{','.join(map(str, shape))}] x) => (y{len(filters) - 1})"
    return text_model(f"{HEADER} g {signature} <{', '.join(declared)}> {{ {' '.join(lines)} }}")


@pytest.mark.parametrize(
    ("format", "axes", "dtype", "expected"),
    [
        ("NCHW16c", "NCHW", DType.FLOAT16, "NC1HWC0"),
        ("NCHW16c", "NHWC", DType.FLOAT16, "NC1HWC0"),
        ("NCHW16c", "NCHW", DType.FLOAT32, "NC1HWC0"),
        ("NCHW8c", "NCHW", DType.FLOAT32, "NC1HWC0"),
        ("NCHW32c", "NCHW", DType.INT8, "NC1HWC0"),
        ("NCHW4c", "NCHW", DType.FLOAT16, "NC1HWC0_C04"),
        ("NDCHW16c", "NCDHW", DType.FLOAT16, "NDC1HWC0"),
        ("NCW16c", "NCW", DType.FLOAT16, "NC1HWC0"),
        ("IHWO16o16i", "OIHW", DType.FLOAT16, "FRACTAL_Z"),
        ("DIHWO16o16i", "OIDHW", DType.FLOAT16, "FRACTAL_Z_3D"),
        ("DHWOI16o16i", "OIDHW", DType.FLOAT16, "FRACTAL_Z_3D_TRANSPOSE"),
        ("NM16m16n", "MN", DType.FLOAT16, "FRACTAL_NZ"),
        ("MN16n16m", "MN", DType.FLOAT16, "FRACTAL_Z"),
        ("NHWC", "NCHW", DType.FLOAT16, "NHWC"),
        ("NCHW", "NCHW", DType.FLOAT16, "NCHW"),
        ("HWIO", "OIHW", DType.FLOAT16, "HWCN"),
        ("MN", "MN", DType.FLOAT16, "ND"),
        ("NCHW8c", "NCHW", DType.FLOAT16, None),
        ("NCHW32c", "NCHW", DType.FLOAT16, None),
        ("CHWN4c", "NCHW", DType.INT8, None),
        ("NM", "MN", DType.FLOAT16, None),
    ],
)
def test_names(format: str, axes: str, dtype: DType, expected: str | None) -> None:
    assert format_name(Format.parse(format, axes), dtype) == expected


def test_the_origin_says_which_axes_are_meant() -> None:
    nchw, nhwc = Format.parse("NCHW16c", "NCHW"), Format.parse("NCHW16c", "NHWC")
    assert next(common_origins([Format.canonical(4), nchw], DType.FLOAT16)) == ("NCHW", ["NCHW", "NC1HWC0"])
    assert next(common_origins([Format.canonical(4), nhwc], DType.FLOAT16)) == ("NHWC", ["NHWC", "NC1HWC0"])
    assert next(common_origins([Format.canonical(4), fractal_nz(4)], DType.FLOAT16)) == ("ND", ["ND", "FRACTAL_NZ"])
    assert next(common_origins([nhwc, fractal_nz(4)], DType.FLOAT16)) == ("NHWC", ["NC1HWC0", "FRACTAL_NZ"])
    assert not [*common_origins([nchw, Format.parse("NCHW8c")], DType.FLOAT16)]


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.INT8, DType.INT4])
def test_published_shapes(dtype: DType) -> None:
    """The formulas of transfer_shape_utils.cc, written once more."""
    block = {DType.FLOAT16: 16, DType.INT8: 32, DType.INT4: 64}[dtype]
    for n, c, h, w in ((1, 3, 7, 7), (20, 70, 3, 1), (64, 64, 1, 1)):
        c1, n1, pixels, image, volume = ceil(c / block), ceil(n / 16), h * w, (n, c, h, w), (n, c, 5, h, w)
        for name, shape, expected in (
            ("NC1HWC0", image, (n, c1, h, w, block)),
            ("FRACTAL_Z", image, (c1 * pixels, n1, 16, block)),
            ("NDC1HWC0", volume, (n, 5, c1, h, w, block)),
            ("FRACTAL_Z_3D", volume, (5 * c1 * pixels, n1, 16, block)),
            ("FRACTAL_Z_3D_TRANSPOSE", volume, (5 * pixels * n1, c1, 16, block)),
            ("FRACTAL_ZN", (n, c), (ceil(n / block), ceil(c / 16), 16, block)),
        ):
            assert published_shape(lookup(name, dtype.label), shape) == expected
        assert published_shape(fractal_nz(4, block), image) == (n, c, ceil(w / block), ceil(h / 16), 16, block)
        assert published_shape(fractal_nz(2, block), (n, c)) == (c1, n1, 16, block)
    shape, expected = as_shape(("n", 70, "h", "w")), as_shape(("n", ceil(70 / block), "h", "w", block))
    assert published_shape(lookup("NC1HWC0", dtype.label), shape) == expected


PAIRS = [
    tuple(pair)
    for plain, stored in json.loads((Path(__file__).parents[1] / "published" / "cann.json").read_text())["pairs"]
    for pair in ((plain, stored), (stored, plain))
]


def test_transdata_has_the_published_pairs() -> None:
    assert set(PAIRS) == TRANSDATA and len(PAIRS) == 18


def test_the_page_names_every_op_with_a_kernel() -> None:
    page = (Path(__file__).parents[2] / "docs" / "ascend.md").read_text(encoding="utf-8")
    families = {family for target in ASCENDS for kernel in load_target(target).spec.kernel for family in kernel.family}
    ops = {name.rpartition(":")[2] for name, rule in rules().items() if rule.family in families - {"normalization"}}
    assert all(f"`{name}_…`" in page for name in ops - {"MatMul"})


def images(dtype: DType) -> list[Format]:
    names = ("NC1HWC0", "NC1HWC0_C04", "FRACTAL_Z")
    plain = [Format.canonical(4), Format.parse("NHWC"), fractal_nz(4, c0=c0(dtype.label))]
    return plain + [lookup(each, dtype.label) for each in names]


def volumes(dtype: DType) -> list[Format]:
    names = ("ncdhw", "ndhwc", "NDC1HWC0", "FRACTAL_Z_3D", "FRACTAL_Z_3D_TRANSPOSE")
    return [lookup(each, dtype.label) for each in names]


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.INT8])
@pytest.mark.parametrize(("of", "shape"), [(images, (2, 5, 4, 3)), (volumes, (2, 5, 2, 4, 3))])
def test_transdata_converts(of: Callable[[DType], list[Format]], shape: tuple[int, ...], dtype: DType) -> None:
    """Every pair of formats, in steps of the published pairs, as nodes with bodies: stock onnxruntime runs them."""
    array = np.random.default_rng(0).integers(-100, 100, shape).astype(dtype.numpy)
    graph = Graph("casts", {"": 17})
    pairs = list(permutations(of(dtype), 2))
    for number, (src, dst) in enumerate(pairs):
        value = graph.new_value(f"x{number}", TensorType(dtype, shape), storage=Storage(src))
        graph.inputs.append(value)
        graph.outputs.append(insert_cast(graph, value, Storage(dst)))
    graph.stage = "cast"
    lowered = emit(lower(graph, "ascend"))
    check(lowered)
    proto = onnx.ModelProto()
    proto.ParseFromString(to_bytes(lowered))
    assert {node.op_type for node in calls(proto)} == {"TransData"} and set(routes(proto)) <= set(PAIRS)
    for node in calls(proto):
        assert [attributes_of(node)[key] for key in ("src_subformat", "dst_subformat", "groups")] == [0, 0, 1]
        assert len(node.attribute) == 5
    got = run(to_bytes(lowered), {f"x{number}": pack(array, src) for number, (src, _) in enumerate(pairs)})
    for (_, dst), result in zip(pairs, got, strict=True):
        assert np.array_equal(result, pack(array, dst))


def numbered(*shape: int) -> np.ndarray:
    return np.arange(1, 1 + np.prod(shape), dtype=np.int32).reshape(shape)


@given(st.integers(1, 9), st.integers(1, 20), st.integers(1, 20), st.sampled_from([8, 16, 32]))
def test_groups_are_blocks_on_a_diagonal(groups: int, n: int, c: int, c0: int) -> None:
    """Every element of the packed memory is that of its group, output channel and input channel."""
    h, w = 2, 3
    filter = numbered(groups * n, c, h, w)
    storage = GroupedFractalZ(groups, c0)
    memory = pack_filter(filter, storage)
    together = min(lcm(c0 // gcd(c, c0), 16 // gcd(n, 16)), groups)
    sets, depth, width = ceil(groups / together), ceil(together * c / c0), ceil(together * n / 16)
    assert memory.shape == (sets * depth * h * w, width, 16, c0)
    dense = (
        memory.reshape(sets, depth, h, w, width * 16, c0)
        .transpose(0, 4, 1, 5, 2, 3)
        .reshape(sets, width * 16, -1, h, w)
    )
    for which in range(sets):
        want = np.zeros_like(dense[which])
        for place in range(min(together, groups - which * together)):
            group = which * together + place
            want[place * n : (place + 1) * n, place * c : (place + 1) * c] = filter[group * n : (group + 1) * n]
        np.testing.assert_array_equal(dense[which], want)
    np.testing.assert_array_equal(memory.reshape(-1)[storage.offsets(filter.shape)], filter)


@given(st.integers(1, 33), st.integers(1, 4), st.integers(1, 5), st.integers(1, 5), st.sampled_from([8, 16, 32]))
def test_c04(n: int, c: int, h: int, w: int, c0: int) -> None:
    filter = numbered(n, c, h, w)
    memory = pack_filter(filter, FractalZC04(c0))
    assert memory.shape == (ceil(4 * h * w / c0), ceil(n / 16), 16, c0)
    for fractal, column, output, place in np.ndindex(*memory.shape):
        pixel, channel = divmod(fractal * c0 + place, 4)
        row, left = divmod(pixel, w)
        inside = column * 16 + output < n and channel < c and row < h
        want = filter[column * 16 + output, channel, row, left] if inside else 0
        assert memory[fractal, column, output, place] == want
    np.testing.assert_array_equal(memory.reshape(-1)[FractalZC04(c0).offsets(filter.shape)], filter)


@given(st.integers(1, 3), st.integers(1, 37), st.integers(1, 3), st.integers(1, 3))
def test_depthwise_squares(n: int, c: int, h: int, w: int) -> None:
    filter = numbered(n, c, h, w)
    memory = pack_filter(filter, C1HWNCoC0())
    assert memory.shape == (ceil(c / 16), h, w, n, 16, 16)
    for block, row, left, multiple, first, second in np.ndindex(*memory.shape):
        channel = block * 16 + second
        want = filter[multiple, channel, row, left] if first == second and channel < c else 0
        assert memory[block, row, left, multiple, first, second] == want
    np.testing.assert_array_equal(memory.reshape(-1)[C1HWNCoC0().offsets(filter.shape)], filter)


def test_errors() -> None:
    with pytest.raises(FormatError, match="not 3 equal groups"):
        pack_filter(numbered(4, 1, 1, 1), GroupedFractalZ(3))
    with pytest.raises(FormatError, match="at most 4"):
        pack_filter(numbered(4, 5, 1, 1), FractalZC04())
    with pytest.raises(FormatError, match="four axes"):
        pack_filter(numbered(4, 5), C1HWNCoC0())


ASCENDS = ("ascend-310", "ascend-910b")


@pytest.mark.parametrize("target", ASCENDS)
@pytest.mark.parametrize(
    ("shape", "group", "image"),
    [
        ((64, 4, 3, 3), 16, [1, 64, 20, 20]),
        ((72, 24, 3, 3), 3, [1, 72, 20, 20]),
        ((40, 5, 1, 1), 4, [2, 20, 24, 24]),
        ((64, 4, 3), 16, [1, 64, 400]),
        ((40, 1, 3, 3), 40, [1, 40, 20, 20]),
    ],
)
def test_filters_with_groups(target: str, shape: tuple[int, ...], group: int, image: list[int]) -> None:
    """Packed filters have the published storage of the original filter, zeros included; `optimize` verifies the outputs."""
    around = [((channels, channels, *(3,) * (len(shape) - 2)), 1) for channels in (image[1], shape[0])]
    model = convolutions([around[0], (shape, group), around[1]], image)
    result = layoutopt.optimize(model, target, dialect="ascend")
    assert result.report.verification.status == "passed"
    node = next(node for node in calls(result.proto) if node.name == "conv1")
    weights = {each.name: numpy_helper.to_array(each) for each in result.proto.graph.initializer}
    (packed,) = (weights[each] for each in node.input if each in weights and weights[each].ndim > 1)
    whole = numpy_helper.to_array(next(each for each in model.graph.initializer if each.name == "w1"))
    whole = whole.reshape(*shape[:2], *(1,) * (4 - len(shape)), *shape[2:])
    block = load_target(target).spec.block(DType.FLOAT32)
    if group == shape[0]:
        expected, title = pack_filter(whole.swapaxes(0, 1), C1HWNCoC0(block)), "C1HWNCoC0"
    else:
        expected, title = pack_filter(whole, GroupedFractalZ(group, block)), "FRACTAL_Z"
    assert np.array_equal(packed, expected)
    assert [*attributes_of(node)["input_formats"]] == ["NC1HWC0", title, "ND"]
    attributes, row = attributes_of(node), [1] * (4 - len(shape))
    assert [*attributes["kernel_shape"]] == [*shape[2:]] and attributes["data_format"] == "NCHW"
    assert [*attributes["strides"]] == [*attributes["dilations"]] == [1, 1, *row, *[1] * len(shape[2:])]
    assert [*attributes["pads"]] == [0, 0] * len(row) + [each for side in shape[2:] for each in (side // 2,) * 2]
    assert (node.op_type, attributes.get("groups")) == (
        ("DepthwiseConv2D", None) if group == shape[0] else ("Conv2D", group)
    )
    assert not set(weights) - {each for node in result.proto.graph.node for each in node.input}


def test_the_first_layer_is_of_four_channels() -> None:
    model = convolutions([((64, 3, 7, 7), 1), ((64, 64, 3, 3), 1)], [1, 3, 112, 112], "float16")
    result = layoutopt.optimize(model, "ascend-310", dialect="ascend")
    first, second = calls(result.proto, "Conv")
    assert [*attributes_of(first)["input_formats"]] == ["NC1HWC0_C04", "FRACTAL_Z_C04", "ND"]
    assert [*attributes_of(second)["input_formats"]] == ["NC1HWC0", "FRACTAL_Z", "ND"]
    weights = {each.name: numpy_helper.to_array(each) for each in result.proto.graph.initializer}
    whole = numpy_helper.to_array(model.graph.initializer[0])
    assert any(np.array_equal(each, pack_filter(whole, FractalZC04())) for each in weights.values())
    assert [node.op_type for node in result.proto.graph.node if node.domain == "layoutopt"] == ["CastData"]


HYBRID = (
    HEADER
    + """ g (float[1,64,SIZE,SIZE] x) => (y)
<float[64,64,3,3] w, float[64,128] up, float[128,64] down, int64[3] flat = {1, 64, -1}, int64[4] image = {1, 64, SIZE, SIZE}>
{
    c = Conv <pads = [1, 1, 1, 1]> (x, w)
    f = Reshape (c, flat)
    t = Transpose <perm = [0, 2, 1]> (f)
    p = MatMul (t, up)
    q = Relu (p)
    r = MatMul (q, down)
    u = Transpose <perm = [0, 2, 1]> (r)
    v = Reshape (u, image)
    y = Conv <pads = [1, 1, 1, 1]> (v, w)
}"""
)


def hybrid(size: int) -> onnx.ModelProto:
    """Convolution, flattened into tokens, two products, back into an image, convolution."""
    return text_model(HYBRID.replace("SIZE", str(size)))


@pytest.mark.parametrize(("size", "is_free"), [(56, True), (50, False)])
def test_between_convolution_and_product_is_one_step(size: int, is_free: bool) -> None:
    """NC1HWC0 becomes FRACTAL_NZ, whose rows are the pixels, padded to 16, by a Reshape or by TransData through NHWC."""
    result = layoutopt.optimize(hybrid(size), "ascend-310", dialect="ascend")
    between = [("NC1HWC0", "NHWC"), ("ND", "FRACTAL_NZ"), ("FRACTAL_NZ", "ND"), ("NHWC", "NC1HWC0")]
    assert routes(result.proto) == [("NCHW", "NC1HWC0"), *([] if is_free else between), ("NC1HWC0", "NCHW")]
    model = load_target("ascend-310")
    for op in (op for op in result.graph.ops if op.op_type == CAST and not op.inputs[0].is_constant):
        value, src, dst = op.inputs[0], op.inputs[0].storage, op.outputs[0].storage
        if value.rank != 3:
            continue
        steps = Conversion(src.format, dst.format).steps(value.static_shape)
        moving = [type(step).__name__ for step in steps if type(step).__name__ != "Reshape"]
        seconds = model.conversion_seconds(value, src, dst)
        plain = Storage(Format.canonical(3))
        detour = model.conversion_seconds(value, src, plain) + model.conversion_seconds(value, plain, dst)
        if is_free:
            assert not moving and not seconds
        else:
            assert moving in (["Pad"], ["Slice"]) and 0 < seconds <= detour * (1 + 1e-9)


@pytest.mark.parametrize(("target", "left"), [("ascend-310", "FRACTAL_NZ"), ("ascend-910b", "ND")])
def test_products_are_fractal_nz(target: str, left: str) -> None:
    """The 910B converts plain operands to fractals when it loads them, so a few products are not worth a TransData."""
    products = "a = MatMul (x, w) b = MatMul (a, w) c = MatMul (b, w) y = MatMul (c, w)"
    model = text_model(f"{HEADER} g (float16[1,512,512] x) => (y) <float16[512,512] w> {{ {products} }}")
    result = layoutopt.optimize(model, target, dialect="ascend")
    assert {tuple(attributes_of(node)["input_formats"]) for node in calls(result.proto, "BatchMatMul")} == {
        (left, "FRACTAL_NZ")
    }
    (shape,) = (list(each.dims) for each in result.proto.graph.initializer if len(each.dims) > 1)
    assert shape == [32, 32, 16, 16]


def test_it_is_read_like_any_other(tmp_path: Path) -> None:
    """A second run for the same target changes nothing; one for another target removes the functions and stays equivalent."""
    model = hybrid(20)
    written = layoutopt.optimize(model, "ascend-310", dialect="ascend").proto
    onnx.checker.check_model(written, full_check=True)
    assert written.ir_version >= 10
    keys = [(each.domain, each.name, each.overload) for each in written.functions]
    assert len(set(keys)) == len(keys) and {each[0] for each in keys} == {ASCEND}
    again = layoutopt.optimize(written, "ascend-310", dialect="ascend")
    assert not again.report.changed and again.proto == written
    other = layoutopt.optimize(written, "gpu-hopper", dialect="ops").proto
    assert {node.domain for node in other.graph.node} == {""} and not other.functions
    assert ASCEND not in {each.domain for each in other.opset_import}
    feeds = {"x": np.random.default_rng(1).standard_normal((1, 64, 20, 20)).astype(np.float32)}
    results = [run(each.SerializeToString(), feeds)[0] for each in (model, written, other)]
    assert np.allclose(results[0], results[1], atol=1e-5) and np.allclose(results[0], results[2], atol=1e-5)
