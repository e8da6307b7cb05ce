"""The dialect `ascend`: names and shapes of formats as they are published, and the conversion TransData."""

from collections.abc import Callable
from itertools import permutations
from math import ceil

import numpy as np
import onnx
import pytest
from ascend_models import attributes_of, calls, run

from layoutopt.dialects.ascend import common_origin, format_name, published_shape
from layoutopt.formats import Format, as_shape, lookup, pack
from layoutopt.formats.catalog import c0, fractal_nz
from layoutopt.ir.graph import Graph, insert_cast
from layoutopt.ir.types import DType, Storage, TensorType
from layoutopt.onnx_io import check, emit, to_bytes
from layoutopt.testing.rules import lower

# --- names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "axes", "dtype", "expected"),
    [
        ("NCHW16c", "NCHW", DType.FLOAT16, "NC1HWC0"),
        ("NCHW16c", "NHWC", DType.FLOAT16, "NC1HWC0"),
        ("NCHW16c", "NCHW", DType.BFLOAT16, "NC1HWC0"),
        ("NCHW16c", "NCHW", DType.FLOAT32, "NC1HWC0"),
        ("NCHW8c", "NCHW", DType.FLOAT32, "NC1HWC0"),
        ("NCHW32c", "NCHW", DType.INT8, "NC1HWC0"),
        ("NCHW32c", "NCHW", DType.UINT8, "NC1HWC0"),
        ("NCHW64c", "NCHW", DType.INT4, "NC1HWC0"),
        ("NCHW4c", "NCHW", DType.FLOAT16, "NC1HWC0_C04"),
        ("NDCHW16c", "NCDHW", DType.FLOAT16, "NDC1HWC0"),
        ("NCW16c", "NCW", DType.FLOAT16, "NC1HWC0"),
        ("IHWO16o16i", "OIHW", DType.FLOAT16, "FRACTAL_Z"),
        ("IHWO16o32i", "OIHW", DType.INT8, "FRACTAL_Z"),
        ("IWO16o16i", "OIW", DType.FLOAT16, "FRACTAL_Z"),
        ("DIHWO16o16i", "OIDHW", DType.FLOAT16, "FRACTAL_Z_3D"),
        ("DHWOI16o16i", "OIDHW", DType.FLOAT16, "FRACTAL_Z_3D_TRANSPOSE"),
        ("NM16m16n", "MN", DType.FLOAT16, "FRACTAL_NZ"),
        ("ABNM16m16n", "ABMN", DType.FLOAT16, "FRACTAL_NZ"),
        ("ANM16m32n", "AMN", DType.INT8, "FRACTAL_NZ"),
        ("MN16n16m", "MN", DType.FLOAT16, "FRACTAL_Z"),
        ("MN16m16n", "MN", DType.FLOAT16, "FRACTAL_ZZ"),
        ("NHWC", "NCHW", DType.FLOAT16, "NHWC"),
        ("NCHW", "NCHW", DType.FLOAT16, "NCHW"),
        ("HWIO", "OIHW", DType.FLOAT16, "HWCN"),
        ("NDHWC", "NCDHW", DType.FLOAT16, "NDHWC"),
        ("MN", "MN", DType.FLOAT16, "ND"),
        ("MN", "MN", DType.STRING, "ND"),
        ("NCHW8c", "NCHW", DType.FLOAT16, None),
        ("NCHW16c", "NCHW", DType.INT8, None),
        ("NCHW32c", "NCHW", DType.FLOAT16, None),
        ("CHWN4c", "NCHW", DType.INT8, None),
        ("NM", "MN", DType.FLOAT16, None),
        ("NM32m16n", "MN", DType.FLOAT16, None),
    ],
)
def test_names(format: str, axes: str, dtype: DType, expected: str | None) -> None:
    assert format_name(Format.parse(format, axes), dtype) == expected


def test_the_origin_says_which_axes_are_meant() -> None:
    nchw, nhwc = Format.parse("NCHW16c", "NCHW"), Format.parse("NCHW16c", "NHWC")
    assert common_origin([Format.canonical(4), nchw], DType.FLOAT16) == ("NCHW", ["NCHW", "NC1HWC0"])
    assert common_origin([Format.canonical(4), nhwc], DType.FLOAT16) == ("NHWC", ["NHWC", "NC1HWC0"])
    assert common_origin([Format.canonical(4), fractal_nz(4)], DType.FLOAT16) == ("ND", ["ND", "FRACTAL_NZ"])
    assert common_origin([nhwc, fractal_nz(4)], DType.FLOAT16) == ("NHWC", ["NC1HWC0", "FRACTAL_NZ"])
    assert common_origin([nchw, Format.parse("NCHW8c")], DType.FLOAT16) is None


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.INT8, DType.INT4])
def test_published_shapes(dtype: DType) -> None:
    """The formulas of transfer_shape_utils.cc, written once more."""
    block = {DType.FLOAT16: 16, DType.INT8: 32, DType.INT4: 64}[dtype]
    formats = {key: lookup(key, dtype.label) for key in ("NC1HWC0", "NDC1HWC0", "FRACTAL_Z", "FRACTAL_Z_3D")}
    for n, c, h, w in ((1, 3, 7, 7), (20, 70, 3, 1), (64, 64, 1, 1)):
        c1, n1 = ceil(c / block), ceil(n / 16)
        assert published_shape(formats["NC1HWC0"], (n, c, h, w)) == (n, c1, h, w, block)
        assert published_shape(formats["FRACTAL_Z"], (n, c, h, w)) == (c1 * h * w, n1, 16, block)
        assert published_shape(formats["NDC1HWC0"], (n, c, 5, h, w)) == (n, 5, c1, h, w, block)
        assert published_shape(formats["FRACTAL_Z_3D"], (n, c, 5, h, w)) == (5 * c1 * h * w, n1, 16, block)
        assert published_shape(lookup("FRACTAL_Z_3D_TRANSPOSE", dtype.label), (n, c, 5, h, w)) == (
            5 * h * w * n1,
            c1,
            16,
            block,
        )
        assert published_shape(fractal_nz(4, c0=block), (n, c, h, w)) == (
            n,
            c,
            ceil(w / block),
            ceil(h / 16),
            16,
            block,
        )
        assert published_shape(fractal_nz(2, c0=block), (n, c)) == (ceil(c / block), n1, 16, block)
        assert published_shape(lookup("FRACTAL_ZN", dtype.label), (n, c)) == (ceil(n / block), ceil(c / 16), 16, block)
    shape, expected = as_shape(("n", 70, "h", "w")), as_shape(("n", ceil(70 / block), "h", "w", block))
    assert published_shape(formats["NC1HWC0"], shape) == expected


# --- TransData ---------------------------------------------------------------------------------------------------


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
    """Every pair of formats, as nodes with bodies: stock onnxruntime runs them."""
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
    assert len(calls(proto)) == len(pairs) and {node.op_type for node in calls(proto)} == {"TransData"}
    for node, (src, dst) in zip(calls(proto), pairs, strict=True):
        origin = attributes_of(node).pop("origin_format")
        names = [attributes_of(node)["src_format"], attributes_of(node)["dst_format"]]
        assert common_origin([src, dst], dtype) == (origin, names)
        assert [attributes_of(node)[key] for key in ("src_subformat", "dst_subformat", "groups")] == [0, 0, 1]
    got = run(to_bytes(lowered), {f"x{number}": pack(array, src) for number, (src, _) in enumerate(pairs)})
    for (_, dst), result in zip(pairs, got, strict=True):
        assert np.array_equal(result, pack(array, dst))
