"""Targets of CPUs that are named by hand: the file that `cpu` writes there, verified by definition on other machines."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from command_line import Cli
from parsed_models import parsed

import layoutopt
from layoutopt.cost_models import registry
from layoutopt.cost_models.registry import host_target
from layoutopt.runtime.kernel_queries import BLOCKED_DOMAIN
from layoutopt.runtime.session import Session

BLOCKS = {"cpu-avx2": 8, "cpu-avx512": 16}
OTHER = {"cpu-avx2": "cpu-avx512", "cpu-avx512": "cpu-avx2"}
CONV = "Conv <pads = [1,1,1,1]>"

has_blocks = pytest.mark.skipif(host_target() not in BLOCKS, reason="the blocks of this processor are not known")


def network() -> onnx.ModelProto:
    """A residual block with squeeze and excite, poolings and a first convolution of a plain image."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,32,32] x) => (float[?,?,?,?] y, float[?,?] z) {{
        a = {CONV} (x, w0, b0) r = Relu (a) m = MaxPool <kernel_shape = [2,2], strides = [2,2]> (r)
        c = {CONV} (m, w1, b1) h = HardSigmoid (c) d = Conv <group = 32, pads = [1,1,1,1]> (h, d1)
        g = GlobalAveragePool (d) k = Conv (g, k1) s = Sigmoid (k) e = Mul (d, s) t = Add (e, m)
        y = {CONV} (t, w1, b1) p = GlobalMaxPool (y) f = Flatten (p) q = MatMul (f, v1) z = Tanh (q) }}"""
    shapes = {"w0": (32, 3, 3, 3), "w1": (32, 32, 3, 3), "d1": (32, 1, 3, 3), "k1": (32, 32, 1, 1), "v1": (32, 10)}
    return parsed(text, **shapes, b0=(32,), b1=(32,))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    onnx.save(network(), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def native_ops(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.domain == BLOCKED_DOMAIN]


@has_blocks
def test_this_machine_by_name_is_this_machine(file: Path, cli: Cli) -> None:
    outs = [file.with_name(f"{target}.onnx") for target in ("cpu", host_target())]
    for out in outs:
        assert cli("optimize", str(file), "-o", str(out), "-t", out.stem, "-q").code == 0
    assert outs[0].read_bytes() == outs[1].read_bytes()


@has_blocks
def test_another_machine_is_verified_by_definition(file: Path, cli: Cli) -> None:
    other, out, report = OTHER[host_target()], file.with_name("out.onnx"), file.with_name("report.json")
    summary = cli("optimize", str(file), "-o", str(out), "-t", other, "--json", str(report))
    text = f"blocks of {BLOCKS[other]} channels by definition"
    assert summary.code == 0 and text in " ".join(summary.out.split())
    found = json.loads(report.read_text())["verification"]
    assert (found["status"], found["block_by_definition"]) == ("passed", BLOCKS[other])
    assert native_ops(onnx.load(out))
    compared = cli("verify", str(file), str(out))
    assert compared.code == 0 and f"block by definition {BLOCKS[other]}" in " ".join(compared.out.split())
    assert layoutopt.verify_models(str(file), str(out)).defined_block == BLOCKS[other]


@has_blocks
def test_this_machine_is_verified_by_kernels(file: Path) -> None:
    result = layoutopt.optimize(file)
    assert native_ops(result.proto)
    assert result.report.verification.block_by_definition is None


@has_blocks
def test_a_wrong_filter_of_another_machine_is_found(file: Path, cli: Cli) -> None:
    """Two numbers of one packed filter change places."""
    out = file.with_name("out.onnx")
    layoutopt.optimize(file, OTHER[host_target()]).save(out)
    model = onnx.load(out)
    tensor = max(model.graph.initializer, key=lambda each: each.ByteSize())
    values = onnx.numpy_helper.to_array(tensor).copy()
    values.reshape(-1)[[0, 1]] = values.reshape(-1)[[1, 0]]
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    onnx.save(model, out)
    assert cli("verify", str(file), str(out)).code == 7


def test_a_machine_whose_onnxruntime_has_no_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "blocked_channels", lambda: None)
    target = layoutopt.load_target("cpu")
    assert target.name == host_target()
    assert not any("{C0}" in format for row in target.spec.kernel for format in (row.formats or {}).values())
    result = layoutopt.optimize(network())
    assert not native_ops(result.proto)


def test_several_cpus_get_one_file_without_blocks() -> None:
    result = layoutopt.optimize(network(), "cpu-avx2,cpu-avx512")
    assert result.report.dialect == "functions"
    assert Session(result.proto.SerializeToString()).run(None, {"x": np.ones((1, 3, 32, 32), np.float32)})
