"""Plans in the dialect `standard` use formats that standard operators express: no more Transposes than onnxruntime leaves."""

from collections import Counter
from pathlib import Path

import onnx
import onnxruntime
import pytest
import zoo
from parsed_models import parsed
from tiers import tiered

import layoutopt

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
