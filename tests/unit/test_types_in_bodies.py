"""Types in bodies follow from the operands of the op, and hold in every iteration."""

import control_flow_models
import onnx_ir as ir
import pytest
from onnx import parser

from layoutopt.errors import ModelError
from layoutopt.inference import lift
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op
from layoutopt.onnx_io import emit, to_bytes

HEADER = '<ir_version: 8, opset_import: ["" : {}]>\n'


def lifted(text: str, opset: int = 18) -> Graph:
    return lift(ir.from_proto(parser.parse_model(HEADER.format(opset) + text)))


def bodied(graph: Graph) -> Op:
    return next(op for op in graph.ops if op.bodies)


def types(values: object) -> list[str]:
    return [str(value.type) for value in values]  # type: ignore[attr-defined]


LOOP = """g (float[1,N] x, float[1,N] z, int64 m) => (y) {{
    y = Loop (m, , x) <body = b (int64 i, bool c, s) => (bool d, r) {{ d = Identity(c) {} }}> }}"""


@pytest.mark.parametrize(
    ("step", "inside", "outside"),
    [
        ("r = Add(s, z)", "float32[1,N]", "float32[1,N]"),
        ("r = Concat <axis = 0> (s, z)", "float32[?,N]", "float32[?,N]"),
        ("r = Concat <axis = 1> (s, z)", "float32[1,?]", "float32[1,?]"),
        ("r = Transpose (s)", "float32[?,?]", "float32[?,?]"),
        ("e = Relu(s) r = MatMul(z, e)", "float32[1,N]", "float32[1,N]"),
        ("h = Shape(s) r = Expand(z, h)", "float32[1,N]", "float32[1,N]"),
        ("n = NonZero(s) r = Cast <to = 1> (n)", "float32[?,?]", "float32[?,?]"),
        ("f = Flatten <axis = 0> (s) r = Squeeze (f)", "float32[?]", "float32[?]"),
    ],
)
def test_a_state_has_the_shape_that_no_iteration_changes(step: str, inside: str, outside: str) -> None:
    text = LOOP.format(step) if "MatMul" not in step else LOOP.format(step).replace("float[1,N] z", "float[1,1] z")
    op = bodied(lifted(text))
    assert plain(op.bodies["body"].inputs[2]) == inside
    assert plain(op.outputs[0]) == outside


def plain(value: object) -> str:
    """A type, with one name for all unknown dimensions."""
    shape = value.shape  # type: ignore[attr-defined]
    dims = [] if shape is None else ["?" if "?" in str(dim) else str(dim) for dim in shape]
    return f"{value.dtype}[{'?' if shape is None else ','.join(dims)}]"  # type: ignore[attr-defined]


def test_names_that_a_body_declares_are_not_believed() -> None:
    op = bodied(
        lifted("""g (float[N,8] x, int64 m) => (float[M,8] y) {
        y = Loop (m, , x) <body = b (int64 i, bool c, float[N,8] s) => (bool d, float[N,8] r) {
            d = Identity(c) r = Concat <axis = 0> (s, s) }> }""")
    )
    assert plain(op.bodies["body"].inputs[2]) == "float32[?,8]"
    assert plain(op.outputs[0]) == "float32[?,8]"


def test_outputs_of_iterations_are_put_together() -> None:
    op = bodied(
        lifted("""g (float[1,8] x, int64 m) => (float[?,?] y, float[?,?,?] a, float[?] n) <int64 k = {3}> {
        y, a, n = Loop (k, , x) <body = b (int64 i, bool c, s) => (bool d, r, o, q) {
            d = Identity(c) r = Relu(s) o = Transpose(s) q = ReduceSum <keepdims = 0> (s) }> }""")
    )
    assert types(op.outputs) == ["float32[1,8]", "float32[3,8,1]", "float32[3]"]


def test_the_length_of_a_sequence_that_follows_from_other_shapes() -> None:
    """The first inference finds the length of the sequence; a second one finds nothing new."""
    first = lifted("""g (float[2,3,8] x, float[2,8] h) => (float[?,?] y, float[?,?,?] a) {
        n = Constant <value_ints = [-1]> () b = Shape <end = 1> (x) c = Shape <start = 1, end = 2> (x)
        t = Concat <axis = 0> (b, c, n) r = Reshape(x, t) z = Transpose <perm = [1, 0, 2]> (r)
        y, a = Scan <num_scan_inputs = 1, body = b (s, e) => (r, o) {
            r = Add(s, e) u = Unsqueeze(e, n) o = Squeeze(u, n) }> (h, z) }""")
    assert types(bodied(first).outputs) == ["float32[2,8]", "float32[3,2,8]"]
    assert to_bytes(emit(lift(emit(first)))) == to_bytes(emit(first))


def test_branches_of_different_element_types() -> None:
    text = """g (float[N,8] x, bool c) => (y) { [cond] y = If (c)
        <then_branch = t () => (r) { r = Relu(x) }, else_branch = e () => (r) { r = Cast <to = 7> (x) }> }"""
    with pytest.raises(ModelError, match="cond: mismatched tensor element type: float32 vs int64"):
        lifted(text)


def test_what_branches_have_in_common() -> None:
    op = bodied(
        lifted("""g (float[N,8] x, bool c) => (float[?,?] y) {
        y = If (c) <then_branch = t () => (r) { r = Relu(x) }, else_branch = e () => (r) { r = Concat <axis = 0> (x, x)
        }> }""")
    )
    assert plain(op.outputs[0]) == "float32[?,8]"


def test_types_do_not_change_when_a_model_is_lifted_again() -> None:
    for name in control_flow_models.MODELS:
        first = lift(ir.from_proto(control_flow_models.load(name)))
        second = lift(emit(first))
        assert to_bytes(emit(second)) == to_bytes(emit(first)), name
        for one, other in zip(first.regions(), second.regions(), strict=True):
            assert [plain(value) for value in other.values] == [plain(value) for value in one.values], name
