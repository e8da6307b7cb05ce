"""What onnxruntime makes of a model, written down: nothing is left to do, and nothing that callers see has changed."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir
import pytest

import layoutopt
from layoutopt import onnx_io
from layoutopt.cost_models.registry import host_target
from layoutopt.errors import ModelError
from layoutopt.onnx_io.settle import forget_inner_types, settle
from layoutopt.verify import verify_models

MODEL = """<ir_version: 8, opset_import: ["" : 17], producer_name: "someone">
named (float[batch,16,8,8] x) => (float[batch,16,8,8] y, float[batch,16,8,8] z)
<float two = {2.0}>
{
    a = Conv <pads = [1, 1, 1, 1]> (x, w)
    r = Relu (a)
    i = Identity (r)
    s = Sigmoid (i)
    y = Mul (s, i)
    z = Mul (y, two)
}"""


@pytest.fixture
def model() -> onnx_ir.Model:
    proto = onnx.parser.parse_model(MODEL)
    weight = np.random.default_rng(0).normal(size=(16, 16, 3, 3)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    proto.metadata_props.add(key="kept", value="yes")
    return onnx_ir.from_proto(proto)


def test_it_computes_the_same(model: onnx_ir.Model) -> None:
    verdict = verify_models(onnx_io.to_bytes(model), onnx_io.to_bytes(settle(model)))
    assert verdict.status == "passed"


def test_it_is_a_fixed_point(model: onnx_ir.Model) -> None:
    settled = settle(model)
    assert len(settled.graph) < len(model.graph)
    assert onnx_io.fingerprint(settle(settled)) == onnx_io.fingerprint(settled)


def test_callers_see_no_difference(model: onnx_ir.Model) -> None:
    settled = settle(model)
    for side in ("inputs", "outputs"):
        before, after = getattr(model.graph, side), getattr(settled.graph, side)
        assert [(v.name, v.dtype, v.shape) for v in before] == [(v.name, v.dtype, v.shape) for v in after]
    assert (settled.graph.name, settled.producer_name) == ("named", "someone")
    assert settled.metadata_props == {"kept": "yes"}
    assert set(settled.opset_imports) == {node.domain for node in settled.graph} | {""}


def test_inner_types_can_be_dropped(model: onnx_ir.Model, tmp_path: Path) -> None:
    settled = settle(model)
    whole = onnx_io.to_bytes(settled)
    forget_inner_types(settled)
    assert not onnx.load_from_string(onnx_io.to_bytes(settled)).graph.value_info
    assert verify_models(whole, onnx_io.to_bytes(settled)).status == "passed"


def test_what_cannot_be_loaded_is_said_in_one_line(model: onnx_ir.Model) -> None:
    model.graph[0].op_type = "NoSuchOp"
    with pytest.raises(ModelError, match="onnxruntime cannot load it") as found:
        settle(model)
    assert "\n" not in str(found.value)


FOREIGN = """<ir_version: 8, opset_import: ["" : 17, "theirs" : 1]>
g (float[1,32,56,56] x) => (float[1,32,56,56] y) {
    a = Conv <pads = [1, 1, 1, 1]> (x, w)
    b = theirs.Foo (a)
    c = Conv <pads = [1, 1, 1, 1]> (b, w)
    r = Relu (c)
    y = Conv <pads = [1, 1, 1, 1]> (r, w)
}"""


@pytest.mark.skipif(host_target() not in ("cpu-avx2", "cpu-avx512"), reason="no blocked kernels here")
def test_ops_of_others_are_no_reason_to_refuse() -> None:
    proto = onnx.parser.parse_model(FOREIGN)
    weight = np.random.default_rng(0).normal(size=(32, 32, 3, 3)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    report = layoutopt.optimize(proto, "cpu").report
    assert report.changed
    assert report.verification.status == "not verified"
    assert [note.source for note in report.notes if note.source == "settle"] == ["settle"]
