"""The ops that move bytes: as many as `Counts` counts, with the bytes of all their runs."""

import onnx

from layoutopt import inference, onnx_io
from layoutopt.report.builder import remaining_moves

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


def test_the_bytes_of_a_body_count_once_per_run() -> None:
    (found,) = remaining_moves(inference.lift(onnx_io.from_message(permuted())))
    assert (found.op_type, found.body, found.name) == ("Transpose", "loop/body", "turn")
    assert found.bytes == 5 * 2 * 4 * 6 * 4
