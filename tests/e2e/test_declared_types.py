"""Wrong declared types: ignored where inference finds others; the model stays unchanged where they contradict each other."""

from pathlib import Path
from typing import Any

import onnx
import pytest
from parsed_models import parsed
from refusals import load, parse, turned

from layoutopt import optimize
from layoutopt.errors import ModelError
from layoutopt.formats import Extent, as_shape
from layoutopt.inference import lift
from layoutopt.onnx_io import emit, from_message, to_bytes

HEADER = '<ir_version: 10, opset_import: ["" : 18]>\n'


def test_declared_shapes_of_outputs_are_not_used_and_kept() -> None:
    """Inference neither contradicts nor implies the shape of y: emitted models declare it, and plans do not use it."""
    body = "g (float[2,3] x, int64[2] s) => (float[3,2] y) { y = Reshape(x, s) }"
    graph = lift(from_message(parse(body, HEADER)))
    assert graph.repairs == []
    assert all(isinstance(dim, Extent) for dim in graph.outputs[0].shape or (1,))
    emitted = onnx.ModelProto.FromString(to_bytes(emit(graph)))
    assert [dim.dim_value for dim in emitted.graph.output[0].type.tensor_type.shape.dim] == [3, 2]


def test_an_output_that_is_an_input_keeps_the_names_of_its_dimensions() -> None:
    """An exporter may declare the output with other names, or without any."""
    for declared in ("x", "float[?,?,?] x", "float[M,?,3] x"):
        graph = lift(from_message(parse(f"g (float[N,2,?] x) => ({declared}, y) {{ y = Relu(x) }}", HEADER)))
        *named, last = graph.inputs[0].shape or ()
        assert tuple(named) == as_shape(("N", 2))
        assert last == 3 or isinstance(last, Extent)


def test_a_number_in_place_of_a_symbolic_dimension_is_wrong() -> None:
    body = "g (float[N,3] x) => (float[1,3] y) { a = Relu(x) y = Abs(a) }"
    graph = lift(from_message(parse(body, HEADER)))
    assert [where for where, _ in graph.repairs] == ["y"]
    assert graph.outputs[0].shape == as_shape(("N", 3))


def test_a_number_for_an_extent_of_data_is_possible() -> None:
    body = "g (float[2,3] x) => (int64[2,8] y) { n = NonZero(x) a = Concat<axis = 1>(n, n) y = Neg(a) }"
    assert lift(from_message(parse(body, HEADER))).repairs == []


def test_bodies_are_repaired_too() -> None:
    model = parse(
        "g (float[2,3] x, bool c) => (float[2,3] y) { [cond] y = If (c) "
        "<then_branch = t () => (float[2,3] u) <float[9] q> { q = Relu(x) u = Abs(q) }, "
        "else_branch = e () => (float[2,4] v) { v = Relu(x) }> }",
        HEADER,
    )
    graph = lift(from_message(model))
    assert {where for where, _ in graph.repairs} == {"q", "v"}


def test_a_rewritten_model_declares_what_was_inferred() -> None:
    """A convolution between Transposes is rewritten; the wrong output shape of the original is gone."""
    result = optimize(turned(outputs="float[1,9] y"), "gpu-hopper", runtime="compiler")
    assert result.report.changed
    assert [dim.dim_value for dim in result.proto.graph.output[0].type.tensor_type.shape.dim] == [1, 8, 8, 32]


@pytest.mark.parametrize("batch", [{"dim_value": -1}, {"dim_param": ""}, {"dim_param": "N"}])
def test_a_declared_batch_behind_one_of_any_size_is_ignored(batch: dict[str, Any], tmp_path: Path) -> None:
    body = "c = Conv (x, w) t = Transpose <perm = [0, 2, 3, 1]> (c) y = Relu (t)"
    text = f"{HEADER}g (float[1,8,9,9] x) => (float[1,9,9,8] y) <float[1,8,9,9] c> {{ {body} }}"
    model = parsed(text, w=(8, 8, 1, 1))
    dim = model.graph.input[0].type.tensor_type.shape.dim[0]
    for field, value in batch.items():
        setattr(dim, field, value)
    path = tmp_path / "m.onnx"
    graph = load(path, model)
    assert [where for where, _ in graph.repairs] == ["c", "y"]
    assert all(isinstance(value.shape[0], Extent) for op in graph.ops for value in op.outputs)
    (output,) = onnx.ModelProto.FromString(to_bytes(emit(graph))).graph.output
    assert not output.type.tensor_type.shape.dim[0].HasField("dim_value")


CONTRADICTIONS = {
    "a branch that never runs": (
        """(float[1,3,8,8] x, bool c) => (float[1,3,8,8] y) { a = Identity (c) [if] y = If (a)
        <then_branch = t () => (r) { i = Cast <to = 7> (c) l = Loop (i, , x) <body = b (int64 k, bool d, s) => (bool e, o)
        { e = Identity (d) o = Relu (s) }> [conv] r = Conv <kernel_shape: ints = []> (l, w) },
        else_branch = e () => (r) { r = Relu (x) }> }""",
        "conv",
        "attribute kernel_shape has incorrect size",
    ),
    "an empty operand that Concat skips": (
        """(float[1,3,8,8] x, float[1,3,8,8] u) => (float[1,6,8,8] y) <float[1,3,8,8] d> { d = Slice (x, zero, zero, zero)
        [concat] y = Concat <axis = 1> (u, d) }""",
        "concat",
        "can't merge shape info",
    ),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_a_model_whose_shapes_contradict_each_other_is_left_as_it_is_if_it_runs(case: str, tmp_path: Path) -> None:
    body, where, fault = CONTRADICTIONS[case]
    model = parsed(f"{HEADER}g {body}", w=(3, 3, 1, 1), zero=[0])
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(model, path)
    for given in (path, model):
        result = optimize(given, "gpu-hopper", runtime="compiler")
        assert result.report.reason == "its shapes contradict each other"
        (note,) = [note for note in result.report.notes if note.source == "read"]
        assert note.where == where
        assert fault in note.reason
    optimize(path, "cpu").save(out)
    assert out.read_bytes() == path.read_bytes()
    with pytest.raises(ModelError, match=f"{where}: .*{fault}"):
        optimize(path, "gpu-hopper", strict=True)


def test_a_model_whose_shapes_contradict_each_other_is_refused_if_it_does_not_run() -> None:
    body = """<float[1,3,8,9] w, int64 two = {2}> { y = Loop (two, , x) <body = b (int64 k, bool c, s) => (bool d, o)
        { d = Identity (c) [cat] o = Concat <axis = 1> (s, w) }> }"""
    model = parsed(f"{HEADER}g (float[1,3,8,8] x) => (y) {body}", w=(1, 3, 8, 9))
    with pytest.raises(ModelError, match="cat: can't merge shape info"):
        optimize(model, "gpu-hopper", runtime="compiler")
