"""Networks of the zoo, deployed ones and decoders, for three families of hardware."""

from collections import Counter
from itertools import product
from pathlib import Path

import light
import onnx
import onnxruntime
import pytest
import zoo
from narrow_models import quantized, saved, to_float16
from parsed_models import parsed
from tiers import quick_first, tiered

import layoutopt
from layoutopt.report.schema import Report

TARGETS = ("cpu-avx512", "gpu-hopper", "ascend-910b")
DIALECTS = ("functions", "ops")
WAYS = (*product(TARGETS, DIALECTS), ("cpu", None))  # the last one: this machine, native kernels
NETWORKS = (*zoo.NAMES, *light.NAMES)
SMALL = "light_squeezenet"
QUICK = [
    (SMALL, *WAYS[0]),
    (SMALL, *WAYS[3]),
    (SMALL, *WAYS[4]),
    ("mobilenetv2", *WAYS[1]),
    ("keras_mobilenetv3s", *WAYS[-1]),
]


def optimized(network: str, folder: Path, target: str, dialect: str | None = None, verify: bool = True) -> Report:
    if network in zoo.NAMES:
        path = zoo.save(network, folder)
        return layoutopt.optimize(path, target, dialect=dialect, verify=verify).report
    return layoutopt.optimize(light.load(network), target, dialect=dialect, verify=verify).report


def assert_equal_and_proven(report: Report) -> None:
    assert report.plan.gap == 0
    assert report.plan.seconds_after <= report.plan.seconds_before
    assert report.after.weight_casts == 0
    assert report.verification.status == "passed"
    if report.changed:
        assert report.verification.outputs_depend_on_inputs
        assert report.verification.largest_error <= 1e-4


EVERY = [(name, *way) for name, way in product(NETWORKS, WAYS)]


@pytest.mark.parametrize(("network", "target", "dialect"), quick_first(QUICK, EVERY))
def test_a_network_computes_the_same(network: str, target: str, dialect: str | None, tmp_path: Path) -> None:
    assert_equal_and_proven(optimized(network, tmp_path, target, dialect))


MOVES = {"keras_mobilenetv3s": 0, "resnet50": 1}
MORE = {"segformer_b0": 2, "sd_vae_decoder": 2, "upernet": 2, "keras_densenet121": 0}
MORE |= dict.fromkeys(("mobilenetv2", "efficientnet_b0", "whisper_enc", "convnext_tiny", "detr", "vit_s"), 1)


@pytest.mark.parametrize(("network", "most"), quick_first(MOVES.items(), MORE.items()))
def test_few_activations_are_moved_on_a_gpu(network: str, most: int, tmp_path: Path) -> None:
    report = optimized(network, tmp_path, "gpu-hopper", "functions", verify=False)
    assert report.after.casts + report.after.transposes <= most


# --- deployed networks, and decoders with key-value caches -------------------------------------------------

RUNTIMES = (
    ("cpu", None),
    ("cpu-avx512", None),
    ("cpu", "any"),
    ("gpu-hopper", "compiler"),
    ("ascend-910b", "compiler"),
)
SMALL_DEPLOYED = [(name, "cpu", None) for name in ("silero_vad", "silero_vad_sequence")]
SMALL_DECODERS = [("qwen2_genai_int4", "cpu", None)]


@pytest.mark.parametrize(
    ("network", "target", "runtime"),
    quick_first(SMALL_DEPLOYED, [(name, *way) for name, way in product(zoo.DEPLOYED, RUNTIMES)]),
)
def test_a_deployed_network_computes_the_same(network: str, target: str, runtime: str | None, tmp_path: Path) -> None:
    report = layoutopt.optimize(zoo.save(network, tmp_path), target, runtime=runtime).report
    assert report.plan is not None and report.plan.gap == 0
    assert report.verification.status == "passed"
    assert (report.verification.largest_error or 0) <= 1e-4
    assert set(zoo.SIZES) <= set(zoo.DEPLOYED)


@pytest.mark.parametrize(
    ("network", "target", "runtime"),
    quick_first(SMALL_DECODERS, [(name, *way) for name, way in product(zoo.DECODERS, RUNTIMES)]),
)
def test_a_decoder_computes_the_same_with_full_and_with_empty_caches(
    network: str, target: str, runtime: str | None, tmp_path: Path
) -> None:
    report = layoutopt.optimize(zoo.save(network, tmp_path), target, runtime=runtime).report
    assert report.verification.status == "passed"
    if report.changed:
        caches = [
            size for sizes in report.verification.sizes for name, size in sizes.items() if name.startswith("past")
        ]
        assert max(caches) > 0 and min(caches) == 0


# --- half precision, integers, onnxruntime's own operators -----------------------------------------------

NARROWED = ("resnet50", "mobilenetv2", "segformer_b0", "vit_s")
ACCELERATORS = ("gpu-hopper", "ascend-910b")


def assert_equal(report: Report) -> None:
    assert report.plan is not None and report.plan.gap == 0
    assert report.verification.status == "passed", report.verification.reason
    if report.changed:
        assert report.verification.largest_error <= report.verification.tolerance
        assert report.verification.outputs_depend_on_inputs


EVERY_NARROWED = list(product(NARROWED, ACCELERATORS, ("functions", "ops")))
HALVES = [("mobilenetv2", "gpu-hopper", "functions")]


@pytest.mark.parametrize(("network", "target", "dialect"), quick_first(HALVES, EVERY_NARROWED))
def test_half_precision(network: str, target: str, dialect: str, tmp_path: Path) -> None:
    model = to_float16(onnx.load(zoo.save(network, tmp_path)))
    result = layoutopt.optimize(model, target, dialect=dialect)
    assert_equal(result.report)
    assert result.report.changed
    assert onnx.TensorProto.FLOAT16 in {tensor.data_type for tensor in result.proto.graph.initializer}


@pytest.mark.parametrize(
    ("network", "target", "dialect", "per_channel"),
    tiered(((*each, per_channel) for each, per_channel in product(EVERY_NARROWED, (True, False))), 0),
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
    ("network", "target"), list(product((*NARROWED, "keras_mobilenetv3s", "swinv2"), (*ACCELERATORS, "cpu")))
)
def test_networks_that_onnxruntime_saved(network: str, target: str, level: str, tmp_path: Path) -> None:
    path = zoo.save(network, tmp_path)
    as_saved(path, level, target, tmp_path)
    if network in NARROWED:
        as_saved(quantized(path, per_channel=True, folder=tmp_path), level, target, tmp_path)


# --- standard operators alone ----------------------------------------------------------------------------

CHANNELS_LAST = """<ir_version: 9, opset_import: ["" : 18]>
g (float[1,16,16,8] x) => (float[1,16,16,8] y)
<float half = {0.5}>
{
    a = Transpose <perm = [0, 3, 1, 2]> (x)
    b = Conv <pads = [1, 1, 1, 1]> (a, v)
    c = Transpose <perm = [0, 2, 3, 1]> (b)
    d = Relu (c)
    m = ReduceMean <keepdims = 1> (d, axes)
    h = Sigmoid (m)
    e = Mul (d, h)
    f = Transpose <perm = [0, 3, 1, 2]> (e)
    k = Conv <pads = [1, 1, 1, 1]> (f, w)
    o = Transpose <perm = [0, 2, 3, 1]> (k)
    y = Mul (o, half)
}"""


def executed(model: onnx.ModelProto | Path, folder: Path) -> Counter[str]:
    """The ops by type after the optimiser of onnxruntime, at the level that is the same on all processors."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    options.log_severity_level = 3
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(folder / "optimised.onnx").graph.node)


@pytest.mark.parametrize("target", ["gpu-hopper", "ascend-910b", "cpu-avx512"])
def test_a_channels_last_model_has_transposes_at_its_ends_only(target: str) -> None:
    model = parsed(CHANNELS_LAST, v=(8, 8, 3, 3), w=(8, 8, 3, 3), axes=[1, 2])
    result = layoutopt.optimize(model, target, dialect="standard")
    kinds = Counter(node.op_type for node in result.proto.graph.node)
    assert kinds["Transpose"] == 2 and result.report.verification.status == "passed"
    assert {domain.domain for domain in result.proto.opset_import} == {""} and not result.proto.functions


@pytest.mark.parametrize("network", tiered(["keras_mobilenetv3s", "mobilevit", "mobilenetv2", "efficientnet_b0"], 1))
def test_networks_execute_no_more_transposes_than_the_original(network: str, tmp_path: Path) -> None:
    path = zoo.save(network, tmp_path)
    result = layoutopt.optimize(path, "gpu-hopper", dialect="standard", verify=False)
    before, after = executed(path, tmp_path), executed(result.proto, tmp_path)
    assert after["Transpose"] <= before["Transpose"]
    assert after.total() <= before.total()


@pytest.mark.parametrize("network", tiered(["sd_vae_decoder", "keras_mobilenetv3s", "whisper_enc", "mobilevit"], 1))
def test_the_file_has_no_more_transposes_than_the_original(network: str, tmp_path: Path) -> None:
    path = zoo.save(network, tmp_path)
    result = layoutopt.optimize(path, "gpu-hopper", runtime="any", verify=False)
    kinds = [Counter(node.op_type for node in model.graph.node) for model in (onnx.load(path), result.proto)]
    # Also where no product absorbs a Transpose, and where equal ones are not shared.
    assert kinds[1]["Transpose"] <= kinds[0]["Transpose"]
