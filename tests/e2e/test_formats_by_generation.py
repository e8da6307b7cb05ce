"""Formats of a convolutional network and of an encoder, by element type and generation, are those that the vendors document.

    float16   NHWC on tensor cores; NC1HWC0 with C0 16, FRACTAL_NZ for products
    int8      NCHW32 on Turing, NHWC from Ampere on; NC1HWC0 with C0 32, FRACTAL_NZ for products

Sources: NVIDIA Convolutional Layers User's Guide (NHWC), TensorRT's and cuDNN's INT8x32 (Turing), CUTLASS functionality.md
(NHWC from sm80 on), CANN's Data Layout Formats and the K0 of its platform tables (C0). That results are equal is what
`optimize` verifies.
"""

from pathlib import Path

import onnx
import pytest
import zoo
from narrow_models import quantized, to_float16

import layoutopt
from layoutopt.formats import Format, c0, fractal_nz, lookup
from layoutopt.report.schema import OpReport, Report

TARGETS = ("gpu-turing", "gpu-ampere", "gpu-hopper", "ascend-310", "ascend-910b")
IMAGES = {
    ("float16", "gpu-turing"): "NHWC",
    ("float16", "gpu-ampere"): "NHWC",
    ("float16", "gpu-hopper"): "NHWC",
    ("float16", "ascend-310"): "NC1HWC0",
    ("float16", "ascend-910b"): "NC1HWC0",
    ("int8", "gpu-turing"): "NCHW32",
    ("int8", "gpu-ampere"): "NHWC",
    ("int8", "gpu-hopper"): "NHWC",
    ("int8", "ascend-310"): "NC1HWC0",
    ("int8", "ascend-910b"): "NC1HWC0",
}
FIRST = {
    ("float16", "gpu-turing"): "NCHW",
    ("float16", "gpu-ampere"): "NCHW",
    ("float16", "gpu-hopper"): "NCHW",
    ("float16", "ascend-310"): "NC1HWC0_C04",
    ("int8", "gpu-turing"): "NCHW4",
    ("int8", "ascend-310"): "NC1HWC0_C04",
}
"""What the first convolution, of three channels, reads in place of that."""


@pytest.fixture(scope="module", params=["float16", "int8"])
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def planned(network: str, dtype: str, target: str, folder: Path) -> Report:
    path = zoo.save(network, folder)
    if dtype == "float16":
        onnx.save(to_float16(onnx.load(path)), path)
    else:
        path = quantized(path, per_channel=True, folder=folder)
    report = layoutopt.optimize(path, target).report
    assert report.plan is not None and report.plan.gap == 0
    assert report.verification.status == "passed", report.verification.reason
    return report


def bare(format: str | None) -> str:
    """A format without its padding."""
    return str(format).split("(")[0]


def of(report: Report, *kinds: str) -> list[OpReport]:
    return [op for op in report.ops if op.kind in kinds]


@pytest.mark.thorough
@pytest.mark.parametrize("target", TARGETS)
def test_images(dtype: str, target: str, tmp_path: Path) -> None:
    report = planned("resnet50", dtype, target, tmp_path)
    usual = str(lookup(IMAGES[dtype, target], dtype))
    first, *others = of(report, "Conv")
    assert bare(first.inputs[0]) == str(lookup(FIRST.get((dtype, target), IMAGES[dtype, target]), dtype))
    assert {bare(op.outputs[0]) for op in (first, *others)} == {usual}
    assert {bare(op.inputs[0]) for op in others} == {usual}
    moving = [cast for cast in report.casts if cast.moves_data and Format.parse(bare(cast.src)).rank == 4]
    assert len(moving) <= 2 and not any(cast.is_weight for cast in moving)


@pytest.mark.thorough
@pytest.mark.parametrize("target", TARGETS)
def test_products(dtype: str, target: str, tmp_path: Path) -> None:
    """GPUs read B by strides, column-major if int8; Ascend reads weights as fractals, and the 310 reads all operands so."""
    report = planned("vit_s", dtype, target, tmp_path)
    products = of(report, "MatMul")
    dense = [op for op in products if Format.parse(bare(op.inputs[1])).rank == 2]
    assert len(dense) == 72
    weights = {bare(op.inputs[1]) for op in dense}
    if target.startswith("gpu"):
        assert weights <= ({"NM"} if dtype == "int8" else {"MN", "NM"})
        return
    by_columns = dtype == "int8" and target == "ascend-310"
    assert weights == {str(lookup("FRACTAL_ZN" if by_columns else "FRACTAL_NZ", dtype))}
    if target == "ascend-310":
        fractals = {str(fractal_nz(rank, c0=c0(dtype))) for rank in (3, 4)}
        assert {bare(format) for op in products for format in (op.inputs[0], *op.outputs)} <= fractals
