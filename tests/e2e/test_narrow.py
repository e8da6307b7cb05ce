"""Networks in half precision, quantised, and with onnxruntime's own operators, for GPUs and for Ascend."""

from itertools import product
from pathlib import Path

import light
import onnx
import pytest
import zoo
from narrow_models import quantized, saved, to_float16
from tiers import quick_first, tiered

import layoutopt
from layoutopt.report.schema import Report

NETWORKS = ("resnet50", "mobilenetv2", "segformer_b0", "vit_s")
TARGETS = ("gpu-hopper", "ascend-910b")


def assert_equal(report: Report) -> None:
    assert report.plan is not None and report.plan.gap == 0
    assert report.verification.status == "passed", report.verification.reason
    if report.changed:
        assert report.verification.largest_error is not None and report.verification.tolerance is not None
        assert report.verification.largest_error <= report.verification.tolerance
        assert report.verification.outputs_depend_on_inputs


EVERY = list(product(NETWORKS, TARGETS, ("functions", "ops")))
HALVES = [("mobilenetv2", "gpu-hopper", "functions")]


@pytest.mark.parametrize(("network", "target", "dialect"), quick_first(HALVES, EVERY))
def test_half_precision(network: str, target: str, dialect: str, tmp_path: Path) -> None:
    model = to_float16(onnx.load(zoo.save(network, tmp_path)))
    result = layoutopt.optimize(model, target, dialect=dialect)
    assert_equal(result.report)
    assert result.report.changed
    assert onnx.TensorProto.FLOAT16 in {tensor.data_type for tensor in result.proto.graph.initializer}


@pytest.mark.parametrize(
    ("network", "target", "dialect", "per_channel"),
    tiered(((*each, per_channel) for each, per_channel in product(EVERY, (True, False))), 0),
)
def test_integers(network: str, target: str, dialect: str, per_channel: bool, tmp_path: Path) -> None:
    path = quantized(zoo.save(network, tmp_path), per_channel=per_channel, folder=tmp_path)
    result = layoutopt.optimize(path, target, dialect=dialect)
    assert_equal(result.report)
    assert result.report.changed
    again = layoutopt.optimize(result.proto, target, dialect=dialect).report
    assert not again.changed


def as_saved(path: Path, level: str, target: str, folder: Path) -> None:
    model = saved(path, level, folder)
    report = layoutopt.optimize(model, target).report
    assert report.verification.status == "passed", report.verification.reason


@pytest.mark.parametrize(
    ("target", "level", "is_quantized"),
    [("cpu", "ORT_ENABLE_EXTENDED", True), ("ascend-910b", "ORT_ENABLE_ALL", True), ("cpu", "ORT_ENABLE_ALL", False)],
)
def test_models_that_onnxruntime_saved(target: str, level: str, is_quantized: bool, tmp_path: Path) -> None:
    path = tmp_path / "light.onnx"
    onnx.save(light.load("light_squeezenet"), path)
    model = quantized(path, per_channel=False, folder=tmp_path) if is_quantized else path
    as_saved(model, level, target, tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("level", ["ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"])
@pytest.mark.parametrize(
    ("network", "target"), list(product((*NETWORKS, "keras_mobilenetv3s", "swinv2"), (*TARGETS, "cpu")))
)
def test_networks_that_onnxruntime_saved(network: str, target: str, level: str, tmp_path: Path) -> None:
    path = zoo.save(network, tmp_path)
    as_saved(path, level, target, tmp_path)
    if network in NETWORKS:
        as_saved(quantized(path, per_channel=True, folder=tmp_path), level, target, tmp_path)
