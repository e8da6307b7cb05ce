"""The formats that the built-in targets prefer are those of the vendors' documentation."""

import time
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from layoutopt.cost_models import RooflineModel, load_target
from layoutopt.formats import Format
from layoutopt.ir import types as ir
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, DType, Padding, Signature, Slot, Storage, TensorType, Value
from layoutopt.ops import OperandFormats, canonical_signature, rule_of, signature_of
from layoutopt.planner import PlanRequest, make_plan

Op = partial(ir.Op, version=18)
IN, W, OUT = Slot("in", 0), Slot("in", 1), Slot("out", 0)
IMAGE = (1, 64, 56, 56)


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
        ("gpu-turing", DType.INT8, "NCHW32c"),
        ("gpu-turing", DType.INT4, "NCHW64c"),
        ("gpu-ampere", DType.FLOAT32, "NHWC"),
        ("gpu-ampere", DType.BFLOAT16, "NHWC"),
        ("gpu-ampere", DType.INT8, "NHWC"),
        ("gpu-ampere", DType.INT4, "NCHW64c"),
        ("gpu-hopper", DType.FLOAT16, "NHWC"),
        ("gpu-hopper", DType.FLOAT32, "NHWC"),
        ("gpu-hopper", DType.INT8, "NHWC"),
        ("cpu-avx512", DType.FLOAT32, "NCHW16c"),
        ("cpu-avx2", DType.FLOAT32, "NCHW8c"),
        ("cpu-avx2", DType.INT8, "NHWC"),
        ("cpu-neon", DType.FLOAT32, "NCHW"),
        ("cpu-neon", DType.FLOAT16, "NCHW"),
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


def test_free_casts_of_int8_kernels() -> None:
    turing = {
        (str(known[IN]), str(known[OUT]))
        for known in load_target("gpu-turing").preferred_formats(conv(dtype=DType.INT8))
    }
    assert {("NCHW4c", "NCHW32c"), ("NCHW4c", "NHWC")} <= turing


def test_padded_channels_are_computed() -> None:
    model = load_target("ascend-910b")
    blocked = {
        IN: Format.parse("NCHW16c"),
        W: Format.parse("IHWO16o16i", "OIHW"),
        OUT: Format.parse("NCHW16c"),
    }
    three, sixteen = (seconds(model, conv(c, 1024, size=224, kernel=7, dtype=DType.FLOAT16), blocked) for c in (3, 16))
    assert three == pytest.approx(sixteen, rel=1e-6)


def test_unaligned_channels_cost_more() -> None:
    model = load_target("gpu-hopper")
    nhwc = {IN: Format.parse("NHWC"), W: Format.parse("OHWI", "OIHW"), OUT: Format.parse("NHWC")}
    odd, even = (seconds(model, conv(c, 512, size=56, dtype=DType.FLOAT16), nhwc) for c in (511, 512))
    assert odd > 2 * even


@pytest.mark.parametrize("target", ["gpu-ampere", "gpu-hopper"])
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT16])
@pytest.mark.parametrize("group", [1, 64])
def test_channels_last_pays_for_the_cast_of_an_image(target: str, dtype: DType, group: int) -> None:
    """Channels-last is faster for a network of 50 small convolutions, dense or depthwise, including the cast of the image."""
    model = load_target(target)
    op = conv(64, 64, size=56, group=group, dtype=dtype)
    nhwc = {IN: Format.parse("NHWC"), W: Format.parse("OHWI", "OIHW"), OUT: Format.parse("NHWC")}
    gain = model.kernel_seconds(op, canonical_signature(op)) - seconds(model, op, nhwc)
    image = value("image", (1, 3, 224, 224), dtype)
    cast = model.conversion_seconds(image, Storage(Format.parse("NCHW")), Storage(Format.parse("NHWC")))
    assert 50 * gain > cast * (4 if group == 1 else 1)


def test_no_kernel_is_worse_than_converting_to_one_that_exists() -> None:
    model = load_target("ascend-910b")
    op = conv()
    x, y = op.inputs[0], op.outputs[0]
    assert x is not None and y is not None
    plain, blocked = Storage(Format.parse("NCHW")), Storage(Format.parse("NCHW16c"))
    native = min(seconds(model, op, known) for known in model.preferred_formats(op))
    casts = model.conversion_seconds(x, plain, blocked) + model.conversion_seconds(y, blocked, plain)
    assert model.kernel_seconds(op, canonical_signature(op)) == pytest.approx(native + casts, rel=0.02)
    assert model.kernel_seconds(op, canonical_signature(op)) > native + casts


def test_weights_are_converted_ahead_of_time() -> None:
    model = load_target("gpu-hopper")
    constant, dynamic = conv(dtype=DType.FLOAT16), conv(dtype=DType.FLOAT16)
    weight = dynamic.inputs[1]
    assert weight is not None
    weight.data = None
    odd = {IN: Format.parse("NHWC"), OUT: Format.parse("NHWC")}
    assert seconds(model, dynamic, odd) > seconds(model, constant, odd)


@pytest.mark.parametrize("target", ["gpu-hopper", "cpu-avx2"])
def test_matrix_products_take_strides(target: str) -> None:
    model = load_target(target)
    op = Op(
        "MatMul",
        (value("q", (1, 12, 197, 64), DType.FLOAT16), value("k", (1, 12, 64, 197), DType.FLOAT16)),
        (value("y", (1, 12, 197, 197), DType.FLOAT16),),
    )
    if target == "cpu-avx2":
        op = Op(
            "MatMul",
            tuple(value(v.name, v.shape or ()) for v in op.inputs if v),
            (value("y", (1, 12, 197, 197)),),
        )
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


def test_integer_matrix_products_want_transposed_weights() -> None:
    model = load_target("gpu-ampere")
    op = matmul(2048, 2048, 2048, dtype=DType.INT8)
    best = min(model.preferred_formats(op), key=lambda known: seconds(model, op, known))
    assert [str(best[slot]) for slot in (IN, W, OUT)] == ["NCW", "NM", "NCW"]


def test_transposed_operands_of_gemm() -> None:
    model = load_target("gpu-ampere")
    operands = (value("a", (64, 512), DType.INT8), value("b", (256, 512), DType.INT8, constant=True))
    op = Op("Gemm", operands, (value("y", (64, 256), DType.INT8),), attributes={"transB": 1})
    assert model.preferred_formats(op)[0][W].is_canonical


def test_agnostic_ops_run_at_memory_bandwidth_in_any_format() -> None:
    model = load_target("gpu-hopper")
    op = Op("Relu", (value("x", IMAGE),), (value("y", IMAGE),))
    assert not model.preferred_formats(op)
    both = {IN: Format.parse("NCHW16c"), OUT: Format.parse("NCHW16c")}
    memory = model.spec.memory
    expected = 2 * 4 * np.prod(IMAGE) / (memory.bandwidth.value * memory.kernel_efficiency.value)
    assert seconds(model, op, both) == pytest.approx(expected + model.spec.launch.overhead.value)
    assert seconds(model, op, both) == model.kernel_seconds(op, canonical_signature(op))


def test_renames_are_free() -> None:
    op = Op("Transpose", (value("x", IMAGE),), (value("y", (1, 56, 56, 64)),), attributes={"perm": (0, 2, 3, 1)})
    rule = rule_of(op)
    assert rule is not None
    signature = rule.signature(op, {IN: Format.parse("NHWC")})
    assert isinstance(signature, Signature)
    assert load_target("cpu-avx2").kernel_seconds(op, signature) == 0


def test_an_op_without_a_rule_is_priced() -> None:
    op = Op("NonMaxSuppression", (value("boxes", IMAGE), None), (value("y", ("n", 3), DType.INT64),))
    model = load_target("gpu-hopper")
    assert model.kernel_seconds(op, canonical_signature(op)) > 0
    assert not model.preferred_formats(op)


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


def test_prices_are_remembered_by_structure() -> None:
    model = load_target("gpu-hopper")
    assert model.preferred_formats(conv()) is model.preferred_formats(conv())
    assert model.preferred_formats(conv()) is not model.preferred_formats(conv(kernel=1))
    ops = [conv(64 * (1 + index % 4)) for index in range(2000)]
    signatures = [canonical_signature(op) for op in ops]
    start = time.perf_counter()
    for op, signature in zip(ops, signatures, strict=True):
        for _ in range(5):
            model.kernel_seconds(op, signature)
    assert time.perf_counter() - start < 2  # 0.15 s on a quiet machine; 20,000 ops in a few seconds


def test_a_mask_reads_and_writes() -> None:
    model = load_target("cpu-avx2")
    x = value("x", (1, 17, 56, 56))
    blocked = Format.parse("NCHW8c")
    mask = model.conversion_seconds(x, Storage(blocked, Padding.ANY), Storage(blocked))
    memory = model.spec.memory
    moved = 2 * 4 * 24 * 56 * 56
    expected = moved / (memory.bandwidth.value * memory.blocked_cast_efficiency.value)
    assert mask == pytest.approx(expected + model.spec.launch.overhead.value)
    assert model.conversion_seconds(x, Storage(blocked), Storage(blocked, Padding.ANY)) == 0


def chain(dtype: DType, ops: int = 12) -> Graph:
    """Alternating dense and depthwise convolutions on an image, with activations."""
    graph = Graph("chain")
    x = graph.add_value(value("image", (1, 3, 224, 224), dtype))
    graph.inputs.append(x)
    shape = (1, 64, 112, 112)
    for index in range(ops):
        group = 64 if index % 2 else 1
        filters = (64, 3 if index == 0 else 64 // group, 3, 3)
        w = graph.add_value(value(f"w{index}", filters, dtype, constant=True))
        y = graph.add_value(value(f"y{index}", shape, dtype))
        strides = (2, 2) if index == 0 else (1, 1)
        attributes: dict[str, ir.Attribute] = {"group": group, "pads": (1, 1, 1, 1), "strides": strides}
        graph.add_op(Op("Conv", (x, w), (y,), attributes=attributes))
        x = graph.add_value(value(f"z{index}", shape, dtype))
        graph.add_op(Op("Relu", (y,), (x,)))
    pooled = graph.add_value(value("pooled", (1, 64, 1, 1), dtype))
    graph.add_op(Op("GlobalAveragePool", (x,), (pooled,)))
    graph.outputs.append(pooled)
    return graph


@pytest.mark.parametrize(
    ("target", "dtype", "format"),
    [
        ("gpu-hopper", DType.FLOAT32, "NHWC"),
        ("gpu-hopper", DType.FLOAT16, "NHWC"),
        ("cpu-avx512", DType.FLOAT32, "NCHW16c"),
        ("cpu-avx2", DType.FLOAT32, "NCHW8c"),
        ("ascend-310", DType.FLOAT16, "NCHW16c"),
    ],
)
def test_a_network_is_planned_in_one_format(target: str, dtype: DType, format: str) -> None:
    plan = make_plan(PlanRequest(chain(dtype), load_target(target)))
    assert plan.improves
    formats = [str(signature.outputs[0].format) for signature in plan.signatures.values() if signature.outputs[0]]
    assert set(formats[:-1]) == {format}


def test_operations_of_a_batch_of_products_with_transposed_rows() -> None:
    operands = value("a", (2, 128, 64)), value("b", (2, 128, 32))
    op = Op("FusedMatMul", operands, (value("y", (2, 64, 32)),), domain="com.microsoft", attributes={"transA": 1})
    rule = rule_of(op)
    assert rule is not None and rule.flops(op) == 2 * 2 * 64 * 32 * 128
