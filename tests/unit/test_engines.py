"""Engines: a runtime of a package, which times, verifies and measures, and OpenVINO, where it is installed."""

import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from parsed_models import text_model

import layoutopt
from layoutopt.cost_models import RuntimeSpec, find_runtime, runtime_names, runtime_spec
from layoutopt.driver.prices import VARIABLE
from layoutopt.errors import LayoutoptError, VerificationError
from layoutopt.extend import Engine, ExecutedLayer, LoadedModel
from layoutopt.runtime import engines
from layoutopt.runtime.session import inference_session
from layoutopt.verification import Runnable

CHANNELS_LAST = """<ir_version: 10, opset_import: ["" : 18]> g (float[1,28,28,16] x) => (float[1,28,28,16] y)
<float[16,16,1,1] v, float[16,16,1,1] w> {
  a = Transpose <perm = [0, 3, 1, 2]> (x) b = Conv (a, v) c = Transpose <perm = [0, 2, 3, 1]> (b) d = Relu (c)
  e = Transpose <perm = [0, 3, 1, 2]> (d) f = Conv (e, w) y = Transpose <perm = [0, 2, 3, 1]> (f)
}"""
RUNTIME = """
description = "a test"
runs_in = "this process"
dialects = ["standard"]
kernels = "standard"
engine = "mine"
"""


class Model(LoadedModel):
    """A model in onnxruntime whose runs can be changed."""

    def __init__(self, engine: "Mine", model: bytes | str) -> None:
        message = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model)
        self.transposes = sum(node.op_type == "Transpose" for node in message.graph.node)
        self.is_direct = [node.op_type for node in message.graph.node] == ["Conv"]
        self.engine, self.session = engine, inference_session(model)

    def run(self, feed: Mapping[str, Any]) -> Sequence[Any]:
        if self.transposes in self.engine.refused:
            raise RuntimeError("Exception from src/file.cpp:1:\nthe kernel is too large\n")
        outputs = self.session.run(None, dict(feed))
        if self.engine.is_timed and self.is_direct:
            np.linalg.svd(np.ones((200, 200)))
        if self.transposes in self.engine.wrong:
            outputs[0] = outputs[0] + 1
        return list(outputs)

    def layers(self) -> Sequence[ExecutedLayer]:
        return [ExecutedLayer("Reorder", (), 0.0, moves=True, is_interface=True)]


class Mine(Engine):
    """An engine; `wrong` and `refused` are the numbers of Transposes of models that it computes wrongly, or not at all."""

    name, version = "mine", "1"

    def __init__(self) -> None:
        self.loaded, self.is_timed = 0, False
        self.wrong: Sequence[int] = ()
        self.refused: Sequence[int] = ()

    def load(self, model: bytes | str, threads: int, trace: Path | None = None) -> LoadedModel:
        self.loaded += 1
        return Model(self, model)


ENGINE = Mine()
PATH: Path


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Mine:
    """The runtime of a package that declares two entry points: a file, and an engine."""
    path, engine = tmp_path / "mine.toml", Mine()
    path.write_text(RUNTIME)
    monkeypatch.setitem(globals(), "PATH", path)
    monkeypatch.setitem(globals(), "ENGINE", engine)
    for group, value in ((runtime_spec.EXTENSIONS, "PATH"), (engines.ENGINES, "ENGINE")):
        monkeypatch.setitem(vars(group), "found", {"mine": EntryPoint("mine", f"{__name__}:{value}", group.group)})
        monkeypatch.setitem(vars(group), "_loaded", dict(vars(group)["_loaded"]))
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr("layoutopt.driver.prices.default_folder", lambda: tmp_path)
    monkeypatch.setattr("layoutopt.timing.speed_up._MAX_SECONDS", 0.5)
    return engine


def optimized(**options: Any) -> layoutopt.Result:
    return layoutopt.optimize(text_model(CHANNELS_LAST), "cpu", runtime="mine", **options)


def test_a_runtime_of_a_package_times_verifies_and_measures(mine: Mine, tmp_path: Path) -> None:
    report = optimized().report
    assert report.measurement is not None
    assert report.calibration is not None and report.calibration.known > 3
    assert any('"runtime": "mine 1"' in path.read_text() for path in tmp_path.glob("*.jsonl"))
    loaded = mine.loaded
    assert loaded > report.calibration.known
    optimized(measure=False, calibrate=False)
    assert mine.loaded == loaded + 1  # it verifies


def test_a_result_that_only_the_engine_computes_wrongly_is_an_error(mine: Mine) -> None:
    original = CHANNELS_LAST.count("Transpose")
    mine.wrong = [count for count in range(9) if count != original]
    with pytest.raises(VerificationError, match="in mine, the rewritten model is not equivalent to the original"):
        optimized(measure=False, calibrate=False)
    mine.wrong = range(9)
    report = optimized(measure=False, calibrate=False).report
    assert not report.changed and "the original fails in mine, too" in report.reason


def test_models_that_the_engine_does_not_run(mine: Mine) -> None:
    """A result that it runs is written although it does not run the original; one that it does not run is not."""
    mine.refused = [CHANNELS_LAST.count("Transpose")]
    report = optimized(calibrate=False).report
    assert report.changed and report.measurement is not None
    assert report.measurement.reason == "mine: the kernel is too large"
    mine.refused = range(9)
    report = optimized(calibrate=False).report
    assert not report.changed and report.reason.endswith("mine cannot run it: the kernel is too large")


def test_a_plan_without_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(LayoutoptError, match=r"needs the package openvino; .*pip install 'layoutopt\[openvino\]'"):
        layoutopt.optimize(text_model(CHANNELS_LAST), "cpu", runtime="openvino")
    off = dict.fromkeys(("verify", "measure", "calibrate"), False)
    assert layoutopt.optimize(text_model(CHANNELS_LAST), "cpu", runtime="openvino", **off).report.changed


def test_winograd_is_written_in_standard_operators_where_it_is_timed_as_faster(mine: Mine) -> None:
    text = """<ir_version: 10, opset_import: ["" : 18]> g (float[1,256,15,14] x) => (float[1,256,15,14] y)
        <float[256,256,3,3] w, float[256] b> { y = Conv <pads = [1, 1, 1, 1]> (x, w, b) }"""
    mine.is_timed = True  # direct convolutions take longest
    result = layoutopt.optimize(text_model(text), "cpu", runtime="mine", measure=False)
    kinds = [node.op_type for node in result.proto.graph.node]
    assert kinds.count("Conv") > 16 and "DepthToSpace" in kinds
    assert all(not node.domain for node in result.proto.graph.node)


# --- the ops that runtimes execute ------------------------------------------------------------------------------

KERNELS = {
    "convolution": ("1,16,14,14", "16,16,3,3", "16,1,1", "Conv <pads = [1, 1, 1, 1]> (x, w)"),
    "transposed_convolution": ("1,16,14,14", "16,16,1,1", "16,1,1", "ConvTranspose (x, w)"),
    "matmul": ("2,14,16", "16,16", "16", "MatMul (x, w)"),
}
SPECS = [spec for spec in map(find_runtime, runtime_names()) if not spec.is_emulated]
FUSED = [(spec, family, op) for spec in SPECS for row in spec.fuses for family in row.family for op in row.ops or ()]


def executed(spec: RuntimeSpec, text: str, path: Path) -> list[str]:
    """The kinds of ops that a runtime executes, without those that only move data, and those at inputs and outputs."""
    model = text_model(f'<ir_version: 10, opset_import: ["" : 22]> g {text}').SerializeToString()
    if not spec.engine:
        Runnable.of(model).save_optimised(path, {}, threads=1, disabled=("NchwcTransformer",))
        return [node.op_type for node in onnx.load(path).graph.node if node.op_type != "Reshape"]
    pytest.importorskip(spec.engine)
    layers = engines.find_engine(spec.engine).load(model, 1).layers()
    return [each.kind for each in layers if not (each.moves or each.is_interface or each.kind == "Reshape")]


@pytest.mark.parametrize(("spec", "family", "op"), FUSED, ids=lambda each: getattr(each, "name", each))
def test_a_runtime_fuses_the_epilogues_that_its_file_lists(
    spec: RuntimeSpec, family: str, op: str, tmp_path: Path
) -> None:
    shape, filters, channels, kernel = KERNELS[family]
    operands = {"Clip": "a, low, high", **dict.fromkeys(("Add", "Mul", "Sub", "Div"), "a, c")}.get(op, "a")
    text = f"""(float[{shape}] x) => (float[{shape}] y) <float[{filters}] w, float[{channels}] c,
        float low = {{0}}, float high = {{6}}> {{ a = {kernel} y = {op} ({operands}) }}"""
    (kind,) = executed(spec, text, tmp_path / "optimised.onnx")
    assert kind != op


def test_openvino_adds_residuals_in_convolutions(tmp_path: Path) -> None:
    conv = "Conv <pads = [1, 1, 1, 1]>"
    text = f"""(float[1,16,14,14] x) => (float[1,16,14,14] y) <float[16,16,3,3] v, float[16,16,3,3] w>
        {{ a = {conv} (x, v) b = {conv} (a, w) c = {conv} (b, v) y = Add (a, c) }}"""
    assert executed(find_runtime("openvino"), text, tmp_path) == ["Convolution"] * 3
