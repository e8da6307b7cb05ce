"""The ops that move bytes: as many as `Counts` counts, with the bytes of all their runs."""

import onnx
import pytest
from command_line import convolutions
from control_flow_models import MODELS, load

from layoutopt import api, inference, onnx_io
from layoutopt.report.builder import counts
from layoutopt.report.remaining_moves import remaining_moves

PERMUTED = """<ir_version: 8, opset_import: ["" : 18]>
g (float[4,6] x) => (float[4,6] y) <int64 m = {5}, bool t = {1}> {
  [loop] y = Loop (m, t, x) <body = again (int64 i, bool c, float[4,6] s) => (bool d, float[4,6] r) {
    d = Identity(c)
    [turn] p = Transpose <perm = [1, 0]> (s)
    [flat] r = Reshape <allowzero = 0> (p, e)
  }>
}"""


def permuted() -> onnx.ModelProto:
    model = onnx.parser.parse_model(PERMUTED)
    model.graph.initializer.append(onnx.helper.make_tensor("e", onnx.TensorProto.INT64, [2], [4, 6]))
    return model


@pytest.mark.parametrize("name", ["convolutions", *MODELS])
def test_as_many_as_are_counted_before_planning(name: str) -> None:
    model = convolutions() if name == "convolutions" else load(name)
    graph = inference.lift(onnx_io.from_message(model))
    found, counted = remaining_moves(graph), counts(graph)
    kinds = [each.kind for each in found]
    assert (kinds.count("transpose"), kinds.count("cast")) == (counted.transposes, counted.casts)
    assert all(each.bytes and each.name and "requires" in each.reason for each in found)


@pytest.mark.parametrize("name", ["loop", "loop_with_outputs", "mapped_sequence"])
def test_as_many_as_are_counted_after_planning(name: str) -> None:
    result = api.optimize(load(name), "ascend-310", verify=False, measure=False, calibrate=False)
    assert result.report.changed
    kinds = [each.kind for each in remaining_moves(result.graph)]
    counted = result.report.after
    assert (kinds.count("transpose"), kinds.count("cast")) == (counted.transposes, counted.casts)


def test_the_bytes_of_a_body_count_once_per_run() -> None:
    (found,) = remaining_moves(inference.lift(onnx_io.from_message(permuted())))
    assert (found.op_type, found.body, found.name) == ("Transpose", "loop/body", "turn")
    assert found.bytes == 5 * 2 * 4 * 6 * 4
