"""Portable models: native kernels where they fit and standard operators elsewhere, in one file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command_line import Cli
from parsed_models import parsed
from test_other_machines import BLOCKS, CONV, OTHER, has_blocks, network

import layoutopt
from layoutopt.cost_models.registry import host_target
from layoutopt.driver import portable
from layoutopt.runtime.portable import portable_block, portable_model
from layoutopt.runtime.session import Session, inference_session
from layoutopt.verification.gate import without_native_schemas

pytestmark = has_blocks


def feeds(model: onnx.ModelProto, batch: int = 1) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    constants = {tensor.name for tensor in model.graph.initializer}
    shapes = {
        info.name: [dim.dim_value or batch for dim in info.type.tensor_type.shape.dim]
        for info in model.graph.input
        if info.name not in constants
    }
    return {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def outputs(model: onnx.ModelProto, given: dict[str, np.ndarray], **options: Any) -> list[Any]:
    return list(Session(model.SerializeToString(), threads=1, **options).run(None, given))


def swapped(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, with the condition the other way round."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    choice = next(node for node in copy.graph.node if node.op_type == "If")
    other = onnx.helper.make_node("Not", [choice.input[0]], ["other way"])
    choice.input[0] = "other way"
    copy.graph.node.insert(len(copy.graph.node) - 1, other)
    return copy


def renamed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, as a runtime without schemas of the blocked operators reads it."""
    return without_native_schemas(onnx.ModelProto.FromString(model.SerializeToString()))


def loaded(model: onnx.ModelProto, folder: Path) -> list[onnx.NodeProto]:
    """The nodes that onnxruntime runs."""
    inference_session(model.SerializeToString(), saved=folder / "loaded.onnx")
    return list(onnx.load(folder / "loaded.onnx").graph.node)


def assert_runs_everywhere(
    model: onnx.ModelProto, target: str = "cpu", batch: int = 1, **options: Any
) -> onnx.ModelProto:
    result = layoutopt.optimize(model, target, portable=True, **options)
    assert result.report.verification.status == "passed" and result.report.portable is not None
    given = feeds(model, batch)
    expected = outputs(model, given)
    for each in (result.proto, renamed(result.proto), *([swapped(result.proto)] if target == "cpu" else [])):
        for optimised in (True, False):
            for got, want in zip(outputs(each, given, is_optimised=optimised), expected, strict=True):
                np.testing.assert_allclose(got, want, atol=2e-5 * max(1, float(np.abs(want).max())), rtol=0)
    return result.proto


@pytest.mark.parametrize("target", BLOCKS)
def test_one_file_runs_with_and_without_its_blocks(target: str) -> None:
    """In onnxruntime as it is, with the other branch, and without the schemas of the blocked operators."""
    model = assert_runs_everywhere(network(), "cpu" if target == host_target() else target)
    assert portable_block(node.name for node in model.graph.node) == BLOCKS[target]


def test_here_it_is_the_native_model(tmp_path: Path) -> None:
    """onnxruntime computes the condition when it loads the model, and drops the other branch."""
    model = network()
    native, both = layoutopt.optimize(model).proto, layoutopt.optimize(model, portable=True).proto
    kinds = [[(node.domain, node.op_type) for node in loaded(each, tmp_path)] for each in (native, both)]
    assert sorted(kinds[0]) == sorted(kinds[1])
    assert any("packed for blocks" in node.name for node in loaded(native, tmp_path))  # onnxruntime does not fold it
    given = feeds(model)
    for one, other in zip(outputs(native, given), outputs(both, given), strict=True):
        np.testing.assert_array_equal(one, other)


def test_elsewhere_the_native_branch_is_dropped(tmp_path: Path) -> None:
    for model in (
        layoutopt.optimize(network(), OTHER[host_target()], portable=True).proto,
        renamed(layoutopt.optimize(network(), portable=True).proto),
    ):
        assert "If" not in {node.op_type for node in loaded(model, tmp_path)}
        assert not any("packed for blocks" in node.name for node in loaded(model, tmp_path))


@pytest.mark.parametrize("channels", [20, 24, 40, 56, 120])
@pytest.mark.parametrize("target", BLOCKS)
def test_paddings_of_other_machines_load(channels: int, target: str) -> None:
    """What onnxruntime infers of an untaken branch does not contradict itself."""
    model = network_of(f"a = {CONV} (x, w) r = Tanh (a) m = Mul (r, x) y = {CONV} (m, w)", channels)
    result = layoutopt.optimize(model, target, portable=True)
    for each in (result.proto, renamed(result.proto)):
        assert outputs(each, feeds(model))[0].shape == (1, channels, 16, 16)


def network_of(body: str, channels: int = 32, batch: str = "1", more: str = "") -> onnx.ModelProto:
    shape = f"float[{batch},{channels},16,16]"
    head = f'<ir_version: 8, opset_import: ["" : 17]> g ({shape} x) => (float[?,?,?,?] y{more})'
    return parsed(f"{head} {{ {body} }}", w=(channels, channels, 3, 3))


def test_symbolic_batch() -> None:
    model = network_of(f"a = {CONV} (x, w) r = Relu (a) y = {CONV} (r, w)", batch="N")
    assert_runs_everywhere(model, batch=3)


def test_outputs_that_are_inputs_constants_or_equal() -> None:
    more = ", float[1,32,16,16] x2, float[32,32,3,3] w2, float[?,?,?,?] y2"
    body = f"a = {CONV} (x, w) r = Relu (a) y = {CONV} (r, w) x2 = Identity (x) w2 = Identity (w) y2 = Identity (y)"
    assert_runs_everywhere(network_of(body, more=more))


def test_weights_of_both_branches_are_stored_once(tmp_path: Path) -> None:
    """Those of the matrix product; a convolution's have another order in each."""
    model = network()
    large = onnx.numpy_helper.from_array(np.random.default_rng(0).normal(size=(10, 5000)).astype(np.float32), "v2")
    model.graph.initializer.append(large)
    model.graph.node.append(onnx.helper.make_node("MatMul", ["z", "v2"], ["u"]))
    model.graph.output.append(onnx.helper.make_tensor_value_info("u", onnx.TensorProto.FLOAT, [1, 5000]))
    sizes = {}
    for is_portable in (False, True):
        out = tmp_path / f"{is_portable}.onnx"
        layoutopt.optimize(model, portable=is_portable).save(out, external_data=f"{is_portable}.data")
        sizes[is_portable] = out.with_suffix(".data").stat().st_size
        assert Session(out).run(None, feeds(model))
    convolutions = sum(tensor.ByteSize() for tensor in network().graph.initializer)
    assert sizes[True] < sizes[False] + 1.3 * convolutions


def test_a_second_run_and_other_options() -> None:
    first = layoutopt.optimize(network(), portable=True)
    assert not layoutopt.optimize(first.proto, portable=True).report.changed
    again = layoutopt.optimize(first.proto)
    assert again.report.reason == "it is a portable result; optimise its original"


def test_a_wrong_standard_branch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although this machine does not run it."""

    def spoiled(native: Any, standard: Any, block: int) -> Any:
        node = next(node for node in standard.graph if node.op_type == "Relu")
        node.op_type = "Neg"
        return portable_model(native, standard, block)

    monkeypatch.setattr(portable, "portable_model", spoiled)
    with pytest.raises(layoutopt.VerificationError, match="where blocks have another size"):
        layoutopt.optimize(network(), portable=True)


def test_the_command_line(cli: Cli, tmp_path: Path) -> None:
    model, out, report = tmp_path / "model.onnx", tmp_path / "out.onnx", tmp_path / "report.json"
    onnx.save(network(), model)
    target = OTHER[host_target()]
    summary = cli("optimize", str(model), "-o", str(out), "-t", target, "--portable", "-v", "--json", str(report))
    assert summary.code == 0, summary.err
    text = f"native kernels where blocks have {BLOCKS[target]} channels, the operators of the original elsewhere"
    assert text in " ".join(summary.out.split())
    assert json.loads(report.read_text())["portable"] == {"block": BLOCKS[target], "standard_changed": False}
    assert cli("check", str(out)).code == 0
    assert cli("verify", str(model), str(out)).code == 0
    assert cli("bench", str(model), str(out), "--seconds", "0.01").code == 0


@pytest.mark.parametrize(
    ("target", "options", "reason"),
    [
        ("gpu-hopper", {}, "needs a native dialect"),
        ("cpu-avx2,cpu-avx512", {}, "needs a native dialect"),
        ("cpu-avx2", {"mode": "training"}, "needs the mode inference"),
        ("cpu-avx2", {"portable": "yes"}, "should be a valid boolean"),
    ],
)
def test_refusals(target: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(layoutopt.ArgumentError, match=reason):
        layoutopt.optimize(network(), target, **{"portable": True, **options})
