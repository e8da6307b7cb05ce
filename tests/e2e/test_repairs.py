"""Faults that ONNX Runtime tolerates: each is repaired and reported, the result is equal, and strict reading refuses it."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper
from parsed_models import parsed
from refusals import load, parse, refused, run, small, turned

from layoutopt import cli, optimize
from layoutopt.driver import model_faults, stages
from layoutopt.errors import ModelError
from layoutopt.formats import Extent, as_shape
from layoutopt.inference import lift
from layoutopt.ir.graph import Graph
from layoutopt.onnx_io import emit, from_message, to_bytes

Damage = Callable[[onnx.ModelProto], object]


def info(name: str, dtype: int, shape: list[int | str] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def declared(name: str, dtype: int, shape: list[int | str]) -> Damage:
    return lambda model: model.graph.value_info.append(info(name, dtype, shape))


def output(name: str, dtype: int, shape: list[int | str]) -> Damage:
    def damage(model: onnx.ModelProto) -> None:
        kept = [each for each in model.graph.output if each.name != name]
        del model.graph.output[:]
        model.graph.output.extend([*kept, info(name, dtype, shape)])

    return damage


def weight(*numbers: float) -> Damage:
    """Another initializer of the name of the weight."""
    return lambda model: model.graph.initializer.append(numpy_helper.from_array(np.array(numbers, np.float32), "w"))


def hidden_by_a_constant(model: onnx.ModelProto) -> None:
    value = numpy_helper.from_array(np.array([4, 5, 6], np.float32))
    model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], "const", value=value))


def two_constants(model: onnx.ModelProto) -> None:
    hidden_by_a_constant(model)
    del model.graph.initializer[:]
    other = helper.make_node("Constant", [], ["w"], "other", value=numpy_helper.from_array(np.ones(3, np.float32)))
    model.graph.node.insert(0, other)


def both(*damages: Damage) -> Damage:
    return lambda model: [damage(model) for damage in damages]


def opset(domain: str, number: int) -> Damage:
    return lambda model: model.opset_import.add(domain=domain, version=number)


def annotation(model: onnx.ModelProto) -> None:
    model.graph.quantization_annotation.add(tensor_name="a").quant_parameter_tensor_names.add(key="K", value="w")


def attribute_twice(model: onnx.ModelProto) -> None:
    node = model.graph.node[1]
    node.op_type, node.domain = "LeakyRelu", "ai.onnx"
    node.attribute.extend([helper.make_attribute("alpha", alpha) for alpha in (0.5, 0.25)])


def attribute_twice_in_a_function(model: onnx.ModelProto) -> None:
    attribute_twice(model)
    model.graph.node[1].domain = ""
    node = onnx.NodeProto.FromString(model.graph.node[1].SerializeToString())
    opsets = [helper.make_opsetid("", 18)]
    model.functions.append(helper.make_function("my", "f", ["a"], ["y"], [node], opsets))
    model.graph.node[1].CopyFrom(helper.make_node("f", ["a"], ["y"], domain="my"))
    model.opset_import.add(domain="my", version=1)


def large(damage: Damage) -> Damage:
    """The same with a weight of 40 elements: ONNX Runtime chooses by size."""

    def damage_large(model: onnx.ModelProto) -> None:
        damage(model)
        values = (*model.graph.initializer, *(attribute.t for node in model.graph.node for attribute in node.attribute))
        for number, tensor in enumerate(values):
            array = np.full((40, 1, 3), number + 2, np.float32)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
        model.graph.output[0].type.tensor_type.ClearField("shape")

    return damage_large


AGAIN, SAVED = weight(4, 5, 6), "occurs twice: the model is read as onnxruntime saves it"
CASES: dict[str, tuple[Damage, str, str]] = {
    "declared rank": (declared("a", 1, [6]), "a", "is declared as float32[6], but is float32[2,3]"),
    "declared extent": (declared("a", 1, [2, 4]), "a", "is declared as float32[2,4]"),
    "input declared again": (declared("x", 1, [2, 4]), "x", "is declared twice"),
    "input declared again, of another type": (declared("x", 7, [2, 3]), "x", "is declared twice"),
    "initializer declared again": (declared("w", 1, [7]), "w", "is declared twice"),
    "rank of an output": (output("y", 1, [6]), "y", "is declared as float32[6]"),
    "extent of an output": (output("y", 1, [2, 4]), "y", "is declared as float32[2,4]"),
    "scalar output": (output("y", 1, []), "y", "is declared as float32[]"),
    "input as an output of another shape": (output("x", 1, [5]), "x", "is declared twice"),
    "initializer as an output of another type": (output("w", 6, [3]), "w", "is declared twice"),
    "another initializer": (AGAIN, "graph 'g'", f"initializer 'w' {SAVED}"),
    "another large initializer": (large(AGAIN), "graph 'g'", f"initializer 'w' {SAVED}"),
    "large initializer and Constant": (large(hidden_by_a_constant), "const", "'w' is computed by 'const'"),
    "Constants": (two_constants, "const", "'w' is computed by 'const'"),
    "broken and unused": (
        lambda model: model.graph.initializer.add(name="q", dims=[5], data_type=1, float_data=[1.0]),
        "q",
        "needs 5 elements of data, has 1",
    ),
    "output twice": (lambda model: model.graph.output.append(info("y", 5, [7])), "y", "is declared twice"),
    "old IR version": (lambda model: setattr(model, "ir_version", 2), "model", "IR version 2 is not supported"),
    "negative IR version": (lambda model: setattr(model, "ir_version", -1), "model", "IR version -1 is not supported"),
    "opset twice": (opset("", 17), "model", f"the opset of 'ai.onnx' {SAVED}"),
    "opset twice, spelled otherwise": (opset("ai.onnx", 17), "model", f"the opset of 'ai.onnx' {SAVED}"),
    "impossible opset": (opset("some.where", 1 << 40), "model", "is not supported"),
    "impossible opset of a domain of onnx": (opset("ai.onnx.training", 0), "model", "is not supported"),
    "metadata twice": (
        lambda model: [model.metadata_props.add(key="a", value=value) for value in "12"],
        "model",
        f"metadata key 'a' {SAVED}",
    ),
    "attribute twice": (attribute_twice, "relu", f"attribute 'alpha' {SAVED}"),
    "attribute twice in a function": (attribute_twice_in_a_function, "relu", f"attribute 'alpha' {SAVED}"),
    "annotations twice": (both(annotation, annotation), "graph 'g'", f"annotation 'a' {SAVED}"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_onnxruntime_tolerates_is_repaired(case: str, tmp_path: Path) -> None:
    damage, where, reason = CASES[case]
    model = small()
    damage(model)
    expected = run(model.SerializeToString())
    path = tmp_path / "m.onnx"
    graph = load(path, model)
    (repair,) = graph.repairs
    assert repair[0] == where
    assert reason in repair[1]
    rewritten = run(to_bytes(emit(graph)))
    assert rewritten.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(rewritten[name], array)
    assert where == "model" or where in refused(path, model)
    emitted = onnx.ModelProto.FromString(to_bytes(emit(graph)))
    assert not load(path, emitted, strict=True).repairs


@pytest.mark.parametrize("case", CASES)
def test_what_onnxruntime_does_not_load_is_refused_as_by_strict_reading(case: str, tmp_path: Path) -> None:
    model = small()
    CASES[case][0](model)
    model.graph.node.add(op_type="Anything", domain="custom", input=["x"], output=["unused"])
    model.opset_import.add(domain="custom", version=1)
    path = tmp_path / "m.onnx"
    message = refused(path, model)
    with pytest.raises(ModelError) as caught:
        load(path, model)
    assert str(caught.value) == message


def test_sound_models_need_no_repair(tmp_path: Path) -> None:
    assert load(tmp_path / "m.onnx", small()).repairs == []


def test_messages_and_models_of_onnx_ir_are_repaired_and_not_changed() -> None:
    model = small()
    CASES["declared rank"][0](model)
    CASES["another initializer"][0](model)
    before = model.SerializeToString()
    graph = lift(from_message(model))
    assert [where for where, _ in graph.repairs] == ["graph 'g'", "a"]
    assert model.SerializeToString() == before
    alone = small()
    CASES["declared rank"][0](alone)
    lifted_from = ir.from_proto(alone)
    content = to_bytes(lifted_from)
    assert [where for where, _ in lift(lifted_from).repairs] == ["a"]
    assert to_bytes(lifted_from) == content
    with pytest.raises(ModelError, match="is declared as"):
        lift(lifted_from, strict=True)


def run_cli(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.main([str(each) for each in arguments])
    captured = capfd.readouterr()
    return code, captured.out, captured.err


def test_commands_warn_of_repairs_and_strict_refuses(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = small()
    CASES["extent of an output"][0](model)
    source, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(model, source)
    warning = "warning: {}y: is declared as float32[2,4], but is float32[2,3]: the declared shape is ignored\n"
    code, _, stderr = run_cli(capfd, "optimize", source, "-o", out, "-t", "gpu-hopper", "--runtime", "compiler")
    assert (code, stderr) == (0, warning.format(""))
    assert run_cli(capfd, "optimize", source, "-o", out, "-q")[::2] == (0, warning.format(""))
    code, _, stderr = run_cli(capfd, "inspect", source, "-t", "gpu-hopper", "--runtime", "compiler")
    assert (code, stderr) == (0, warning.format(""))
    code, _, stderr = run_cli(capfd, "verify", source, source)
    assert (code, stderr) == (0, warning.format(f"{source}: ") * 1)
    for command in (["optimize", source, "--dry-run"], ["inspect", source], ["verify", source, source]):
        code, _, stderr = run_cli(capfd, *command, "--config", "strict=true")
        assert code == 3
        assert re.fullmatch("error: y: is declared as .*\n", stderr)


def test_many_repairs_are_few_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = small()
    for number in range(9):
        model.graph.value_info.append(info(f"w{number}", 1, [7]))
        model.graph.initializer.add(name=f"w{number}", dims=[1], data_type=1, float_data=[1])
    onnx.save(model, tmp_path / "m.onnx")
    code, _, stderr = run_cli(capfd, "optimize", tmp_path / "m.onnx", "--dry-run")
    assert code == 0
    assert stderr.splitlines()[-1] == "warning: 4 more faults were repaired"
    assert len(stderr.splitlines()) == 6


def test_an_exception_is_judged_although_it_prevents_lifting(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(model_faults, "sample_inputs_for", fail)
    model = small()
    with pytest.raises(ZeroDivisionError), model_faults.reporting_invalid_model(model, {}):
        raise ZeroDivisionError
    model.graph.node[1].input[0] = "nothing"
    with pytest.raises(ModelError, match="nothing"), model_faults.reporting_invalid_model(model, {}):
        raise ZeroDivisionError


def rewritable_with_a_sequence() -> onnx.ModelProto:
    return turned(more="[list] s = SequenceConstruct (y)", outputs="float[1,8,8,32] y, seq(float[1]) s")


def test_a_fault_of_the_original_that_no_rule_repairs_leaves_it_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert optimize(rewritable_with_a_sequence(), "gpu-hopper", runtime="compiler").report.changed
    monkeypatch.setattr(sys.modules["layoutopt.inference.lift"], "_misdeclared_elements", lambda _: set())
    result = optimize(rewritable_with_a_sequence(), "gpu-hopper", runtime="compiler")
    assert result.report.reason == "onnx's checker finds a fault in it"
    assert [note.where for note in result.report.notes if note.source == "read"] == ["list"]
    assert result.proto == rewritable_with_a_sequence()
    with pytest.raises(ModelError, match="differ in rank"):
        optimize(rewritable_with_a_sequence(), "gpu-hopper", runtime="compiler", strict=True)


def test_a_fault_that_rewriting_adds_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(graph: Graph) -> ir.Model:
        model = emit(graph)
        model.graph.outputs[0].shape = ir.Shape([7])
        return model

    monkeypatch.setattr(stages.onnx_io, "emit", lambda graph: (spoil if graph.stage == "lowered" else emit)(graph))
    with pytest.raises(ModelError, match="differ in rank"):
        optimize(rewritable_with_a_sequence(), "gpu-hopper", runtime="compiler")


def test_an_operator_of_onnxruntime_whose_domain_is_not_imported() -> None:
    """ONNX Runtime imports its own domains itself."""
    more = "d = com.microsoft.QuickGelu (y) z = Transpose <perm = [0,3,1,2]> (d)"
    model = turned('<ir_version: 10, opset_import: ["" : 18]>', more, "float[1,32,8,8] z")
    assert [opset.domain for opset in model.opset_import] == [""]
    result = optimize(model, "gpu-hopper", runtime="compiler")
    assert result.report.changed
    assert result.report.verification.status == "passed"


def test_an_operator_that_only_onnxruntime_has_at_the_opset_of_a_function() -> None:
    """ai.onnx has LayerNormalization from opset 17 on, onnxruntime always (1.31 crashes if `stash_type` is missing)."""
    model = parsed(
        """<ir_version: 9, opset_import: ["" : 18, "made.up" : 1]>
        g (float[2,8,16] x) => (float[2,8,16] y) <float[16] s, float[16] b, float[16,16] w>
        { a = made.up.norm (x, s, b) y = MatMul (a, w) }
        <opset_import: ["" : 15], domain: "made.up">
        norm (x, s, b) => (y) { y = LayerNormalization <axis = -1, stash_type = 1> (x, s, b) }""",
        s=(16,),
        b=(16,),
        w=(16, 16),
    )
    assert optimize(model, "ascend-910b").report.verification.status == "passed"


# --- declared types that are wrong -----------------------------------------------------------------------

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
