"""Networks in half precision, quantised, and with onnxruntime's own operators, for GPUs and for Ascend."""

from collections import Counter
from itertools import product
from pathlib import Path

import light
import onnx
import pytest
import zoo
from narrow_models import quantized, saved, to_float16
from tiers import quick_first

import layoutopt
from layoutopt.report.schema import Report

NETWORKS = ("resnet50", "mobilenetv2", "segformer_b0", "vit_s")
TARGETS = ("gpu-hopper", "ascend-910b")


MOVERS = ("CastData", "Transpose", "Reshape", "Slice", "Pad")
_STEPS = ("QuantizeLinear", "DequantizeLinear")


def _kind(node: onnx.NodeProto) -> str:
    """The op type of a node, also of a call of a function, whose name contains its op and formats."""
    return node.op_type.split("_")[0] if node.domain == "layoutopt" else node.op_type


def qdq_neighbours(model: onnx.ModelProto) -> Counter[tuple[str, str]]:
    """The numbers of ops of each kind that read a DequantizeLinear, and of these ops that a QuantizeLinear reads.

    Data-movement ops are counted next to either.
    """
    graph = model.graph
    producers = {name: node for node in graph.node for name in node.output}
    quantized = {node.input[0] for node in graph.node if _kind(node) == _STEPS[0]}
    found: Counter[tuple[str, str]] = Counter()
    for node in graph.node:
        reads = any(_kind(producers[name]) == _STEPS[1] for name in node.input if name in producers)
        if _kind(node) in _STEPS:
            continue
        found[_kind(node), _STEPS[1]] += reads
        found[_kind(node), _STEPS[0]] += (reads or _kind(node) in MOVERS) and not quantized.isdisjoint(node.output)
    return +found


def assert_equal(report: Report) -> None:
    assert report.plan is not None and report.plan.gap == 0
    assert report.verification.status == "passed", report.verification.reason
    if report.changed:
        assert report.verification.largest_error is not None and report.verification.tolerance is not None
        assert report.verification.largest_error <= report.verification.tolerance
        assert report.verification.outputs_depend_on_inputs


def assert_whole(original: onnx.ModelProto, rewritten: onnx.ModelProto, dialect: str) -> None:
    """Assert that every op next to a DequantizeLinear or QuantizeLinear still is, and that no data-movement op is.

    In dialect `ops`, a Reshape or a Pad may follow the DequantizeLinear of a blocked filter with scales along one axis.
    """
    before, after = qdq_neighbours(original), qdq_neighbours(rewritten)
    for (kind, step), count in before.items():
        is_whole = kind in (*MOVERS, "Resize") or after[kind, step] >= count
        assert is_whole, f"{step} beside {kind}: {count}, now {after[kind, step]}"
    for kind, step in after:
        behind_scales = dialect == "ops" and kind in ("Reshape", "Pad") and step == "DequantizeLinear"
        assert kind not in MOVERS or behind_scales, f"{kind} beside {step}"


EVERY = list(product(NETWORKS, TARGETS, ("functions", "ops")))
HALVES = [("mobilenetv2", "gpu-hopper", "functions")]
INTEGERS = [("mobilenetv2", "gpu-hopper", "functions", True), ("mobilenetv2", "ascend-910b", "ops", True)]


@pytest.mark.parametrize(("network", "target", "dialect"), quick_first(HALVES, EVERY))
def test_half_precision(network: str, target: str, dialect: str, tmp_path: Path) -> None:
    model = to_float16(onnx.load(zoo.save(network, tmp_path)))
    result = layoutopt.optimize(model, target, dialect=dialect)
    assert_equal(result.report)
    assert result.report.changed
    assert onnx.TensorProto.FLOAT16 in {tensor.data_type for tensor in result.proto.graph.initializer}


@pytest.mark.parametrize(
    ("network", "target", "dialect", "per_channel"),
    quick_first(INTEGERS, [(*each, per_channel) for each, per_channel in product(EVERY, (True, False))]),
)
def test_integers(network: str, target: str, dialect: str, per_channel: bool, tmp_path: Path) -> None:
    path = quantized(zoo.save(network, tmp_path), per_channel=per_channel, folder=tmp_path)
    result = layoutopt.optimize(path, target, dialect=dialect)
    assert_equal(result.report)
    assert result.report.changed
    assert_whole(onnx.load(path), result.proto, dialect)
    again = layoutopt.optimize(result.proto, target, dialect=dialect).report
    assert not again.changed


def as_saved(path: Path, level: str, target: str, folder: Path) -> None:
    model = saved(path, level, folder)
    report = layoutopt.optimize(model, target).report
    assert report.verification.status == "passed", report.verification.reason


@pytest.mark.parametrize("level", ["ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"])
@pytest.mark.parametrize("target", [*TARGETS, "cpu"])
def test_models_that_onnxruntime_saved(target: str, level: str, tmp_path: Path) -> None:
    path = tmp_path / "light.onnx"
    onnx.save(light.load("light_squeezenet"), path)
    as_saved(path, level, target, tmp_path)
    as_saved(quantized(path, per_channel=False, folder=tmp_path), level, target, tmp_path)


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
