"""The formats that the built-in targets prefer are those of the vendors' documentation."""

from collections.abc import Sequence
from functools import partial

import pytest

from layoutopt.cost_models import RooflineModel, load_target
from layoutopt.formats import Format
from layoutopt.ir import types as ir
from layoutopt.ir.types import Array, DType, Signature, Slot, Storage, TensorType, Value
from layoutopt.ops import OperandFormats, canonical_signature, signature_of

Op = partial(ir.Op, version=18)
IN, W, OUT = Slot("in", 0), Slot("in", 1), Slot("out", 0)


class Weights:
    """Constant elements that are never read."""

    nbytes = 0

    def numpy(self) -> Array:
        raise AssertionError("a cost model has no business with weights")


def value(name: str, shape: Sequence[int | str], dtype: DType = DType.FLOAT32, *, constant: bool = False) -> Value:
    return Value(name, TensorType(dtype, tuple(shape)), data=Weights() if constant else None)


def conv(
    channels: int = 64,
    filters: int = 64,
    *,
    size: int = 56,
    kernel: int = 3,
    group: int = 1,
    dtype: DType = DType.FLOAT32,
    rank: int = 4,
) -> ir.Op:
    spatial, window = (size,) * (rank - 2), (kernel,) * (rank - 2)
    return Op(
        "Conv",
        (
            value("x", (1, channels, *spatial), dtype),
            value("w", (filters, channels // group, *window), dtype, constant=True),
        ),
        (value("y", (1, filters, *spatial), dtype),),
        attributes={"group": group, "kernel_shape": window, "pads": (kernel // 2,) * (2 * len(window))},
    )


def matmul(m: int = 512, k: int = 512, n: int = 512, *, dtype: DType = DType.FLOAT32) -> ir.Op:
    operands = (value("a", (1, m, k), dtype), value("b", (k, n), dtype, constant=True))
    return Op("MatMul", operands, (value("y", (1, m, n), dtype),))


def seconds(model: RooflineModel, op: ir.Op, known: OperandFormats) -> float:
    signature = signature_of(op, known)
    assert isinstance(signature, Signature)
    return model.kernel_seconds(op, signature)


def preferred(model: RooflineModel, op: ir.Op) -> tuple[str, str]:
    """The formats of x and y in the fastest of the target's preferred signatures."""
    best = min(model.preferred_formats(op), key=lambda known: seconds(model, op, known))
    assert seconds(model, op, best) <= model.kernel_seconds(op, canonical_signature(op))
    return str(best[IN]), str(best[OUT])


@pytest.mark.parametrize(
    ("target", "dtype", "format"),
    [
        ("gpu-turing", DType.FLOAT16, "NHWC"),
        ("gpu-turing", DType.FLOAT32, "NCHW"),
        ("gpu-ampere", DType.FLOAT32, "NHWC"),
        ("gpu-ampere", DType.BFLOAT16, "NHWC"),
        ("gpu-hopper", DType.FLOAT16, "NHWC"),
        ("cpu-avx512", DType.FLOAT32, "NCHW16c"),
        ("cpu-avx2", DType.FLOAT32, "NCHW8c"),
        ("cpu-avx2", DType.INT8, "NHWC"),
        ("cpu-neon", DType.FLOAT32, "NCHW"),
        ("ascend-310", DType.FLOAT16, "NCHW16c"),
        ("ascend-310", DType.INT8, "NCHW32c"),
        ("ascend-910b", DType.BFLOAT16, "NCHW16c"),
        ("ascend-910b", DType.INT4, "NCHW64c"),
    ],
)
def test_preferred_formats_of_a_convolution(target: str, dtype: DType, format: str) -> None:
    op = conv(256, 256, size=56, dtype=dtype)
    assert preferred(load_target(target), op) == (format, format)


def test_the_filter_of_a_convolution() -> None:
    hopper = load_target("gpu-hopper").preferred_formats(conv())[0]
    assert hopper[W].name("OIHW") == "OHWI"
    ascend = load_target("ascend-310").preferred_formats(conv(dtype=DType.INT8))[0]
    assert ascend[W].name("OIHW") == "IHWO16o32i"
    cpu = load_target("cpu-avx512").preferred_formats(conv())[0]
    assert cpu[W].name("OIHW") == "OIHW16i16o"


@pytest.mark.parametrize(("rank", "format"), [(3, "NWC"), (4, "NHWC"), (5, "NDHWC")])
def test_any_number_of_spatial_axes(rank: int, format: str) -> None:
    op = conv(256, 256, size=28, rank=rank, dtype=DType.FLOAT16)
    assert preferred(load_target("gpu-hopper"), op) == (format, format)


def test_the_first_convolution_writes_blocks_from_a_plain_image() -> None:
    model = load_target("cpu-avx512")
    assert preferred(model, conv(3, 64, size=224, kernel=7)) == ("NCHW", "NCHW16c")
    assert all(str(known[IN]) != "NCHW" or str(known[OUT]) == "NCHW" for known in model.preferred_formats(conv(64, 64)))


@pytest.mark.parametrize("target", ["gpu-hopper", "cpu-avx2"])
def test_matrix_products_take_strides(target: str) -> None:
    model = load_target(target)
    op = Op(
        "MatMul",
        (value("q", (1, 12, 197, 64), DType.FLOAT16), value("k", (1, 12, 64, 197), DType.FLOAT16)),
        (value("y", (1, 12, 197, 197), DType.FLOAT16),),
    )
    if target == "cpu-avx2":
        op = Op("MatMul", tuple(value(v.name, v.shape or ()) for v in op.inputs if v), (value("y", (1, 12, 197, 197)),))
    plain = model.kernel_seconds(op, canonical_signature(op))
    heads = {IN: Format.plain((0, 2, 1, 3)), Slot("in", 1): Format.plain((0, 3, 1, 2))}
    assert seconds(model, op, heads) == plain
    assert seconds(model, op, {IN: Format.plain((3, 0, 1, 2))}) == plain
    assert seconds(model, op, {IN: Format.plain((0, 2, 3, 1))}) > plain


def test_matrix_products_on_ascend() -> None:
    first = load_target("ascend-310").preferred_formats(matmul(dtype=DType.FLOAT16))[0]
    assert first[IN].name("BMN") == "BNM16m16n"
    assert first[W].name("MN") == "NM16m16n"
    assert load_target("ascend-310").preferred_formats(matmul(dtype=DType.INT8))[0][W].name("MN") == "MN16n32m"
    model = load_target("ascend-910b")
    known = model.preferred_formats(matmul(dtype=DType.INT8))
    assert known[0][W].name("MN") == "NM16m32n"
    mixed = [each for each in known if each[IN].is_canonical and not each[W].is_canonical]
    op = matmul(dtype=DType.INT8)
    assert seconds(model, op, mixed[0]) < model.kernel_seconds(op, canonical_signature(op)) * 1.001


def test_unknown_ranks_and_symbolic_extents() -> None:
    model = load_target("ascend-910b")
    unknown = Value("u", TensorType(DType.FLOAT16, None))
    op = Op("Conv", (unknown, value("w", (8, 8, 3, 3))), (Value("y", TensorType(DType.FLOAT16, None)),))
    assert not model.preferred_formats(op)
    assert model.kernel_seconds(op, canonical_signature(op)) > 0
    symbolic = conv(dtype=DType.FLOAT16)
    symbolic.inputs = (value("x", ("n", 64, "h", "w"), DType.FLOAT16), symbolic.inputs[1])
    symbolic.outputs = (value("y", ("n", 64, "h", "w"), DType.FLOAT16),)
    assert model.preferred_formats(symbolic)
    channels = conv(dtype=DType.FLOAT16)
    channels.inputs = (value("x", (1, "c", 8, 8), DType.FLOAT16), channels.inputs[1])
    assert not model.preferred_formats(channels)
    src, dst = Storage(Format.parse("NCHW")), Storage(Format.parse("NHWC"))
    assert model.conversion_seconds(unknown, src, dst) > 0 == model.conversion_seconds(unknown, src, src)
