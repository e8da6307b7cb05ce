"""Reading, lifting and emitting preserve every part of a model; functions are inlined while the model stays small."""

import re
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, parser

from layoutopt import inference, onnx_io
from layoutopt.errors import InvariantError, ModelError
from layoutopt.formats import as_shape
from layoutopt.inference import lift
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import ArrayData, DType, TensorType
from layoutopt.onnx_io import check, emit, fingerprint, to_bytes
from layoutopt.onnx_io.messages import inner_graphs, keep_messages

DATA = Path(onnx.__file__).parent / "backend/test/data"
HEADER = '<ir_version: 10, opset_import: ["" : 18, "custom" : 1]>\n'
CONDITIONAL = (
    "g (float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}> { a = Abs(x) [cond] y = If (c) "
    "<then_branch = t () => (float[2] u) { x2 = Relu(a) u = Add(x2, w) }, "
    "else_branch = e () => (float[2] v) { n = Neg(x) v = Neg(n) }> }"
)


def parse(body: str, header: str = HEADER) -> onnx.ModelProto:
    return parser.parse_model(header + body)


def lifted(model: onnx.ModelProto | str) -> Graph:
    return lift(ir.from_proto(parse(model) if isinstance(model, str) else model))


def emitted(model: onnx.ModelProto | str) -> onnx.ModelProto:
    """A model after lift and emit, which must be stable and leave the original as it was."""
    model = parse(model) if isinstance(model, str) else model
    original = ir.from_proto(model)
    before = to_bytes(original)
    content = to_bytes(emit(lift(original)))
    assert to_bytes(original) == before
    result = onnx.ModelProto.FromString(content)
    assert to_bytes(emit(lift(ir.from_proto(result)))) == content
    return result


def plain(message: object) -> str:
    """A message as text; fields that are there but empty do not count."""
    return re.sub(r'(?m)^ *\w+: ""\n', "", str(message))


def nodes(model: onnx.ModelProto, declared: onnx.ModelProto | None = None) -> list[str]:
    """Every node as text, without constants, and the types in bodies that `declared` lacks, because emit adds inferred ones."""
    copy, declared = (onnx.ModelProto.FromString(each.SerializeToString()) for each in (model, declared or model))
    for each in (copy, declared):
        _drop_constants(each.graph)
    for node, other in zip(copy.graph.node, declared.graph.node, strict=False):  # other lengths differ as text
        _drop_types(node, other)
    return [plain(node) for node in copy.graph.node]


def _drop_constants(graph: onnx.GraphProto) -> None:
    """Remove the constants of a graph and its bodies, at any depth."""
    graph.ClearField("initializer")
    keep_messages(graph.node, [node for node in graph.node if node.op_type != "Constant"])
    for each in inner_graphs(graph.node):
        _drop_constants(each)


def _drop_types(node: onnx.NodeProto, declared: onnx.NodeProto) -> None:
    """Remove the types in a node's bodies that the bodies of another node lack, at any depth."""
    for attr, other in zip(node.attribute, declared.attribute, strict=False):
        if not attr.HasField("g"):
            continue
        attr.g.ClearField("value_info")
        for side in ("input", "output"):
            for value, known in zip(getattr(attr.g, side), getattr(other.g, side), strict=False):
                if not known.HasField("type"):
                    value.ClearField("type")
        for inner, other_inner in zip(attr.g.node, other.g.node, strict=False):
            _drop_types(inner, other_inner)


def test_unknown_dimensions_are_names_of_their_own() -> None:
    graph = lifted("g (float[?,?,N] x) => (float[?,?,N] y) { y = Relu(x) }")
    assert graph.value("x").shape == graph.value("y").shape == as_shape(("?x[0]", "?x[1]", "N"))
    shape = emitted("g (float[?,?,N] x) => (float[?,?,N] y) { a = Abs(x) y = Relu(a) }").graph.value_info[0].type
    assert [dim.dim_param for dim in shape.tensor_type.shape.dim] == ["", "", "N"]


def test_constant_nodes() -> None:
    body = (
        "g (float[2] x) => (float[2] y, int64[2] i) { k = Constant <value = float[2] {1, 2}> () [add] a = Add(x, k) "
        "[named] f = Constant <value_float = 2.0> () i = Constant <value_ints = [3, 4]> () y = Mul(a, f) }"
    )
    graph = lifted(body)
    assert len(graph) == 2
    assert graph.value("f").type == TensorType(DType.FLOAT32, ())
    model = emitted(body)
    assert [node.op_type for node in model.graph.node] == ["Add", "Mul"]
    assert [tensor.name for tensor in model.graph.initializer] == ["k", "f", "i"]


def test_strings_keep_nuls_at_their_end() -> None:
    constant = helper.make_node("Constant", [], ["s"], value_strings=[b"a\0"])
    model = parse("g () => (string[1] y) { y = Identity(s) }")
    model.graph.node.insert(0, constant)
    assert b"a\0" in emitted(model).SerializeToString()


def test_names_of_subgraphs_give_way() -> None:
    graph = lifted(CONDITIONAL)
    graph.rename(graph.value("a"), "x2")
    model = onnx.ModelProto.FromString(to_bytes(emit(graph)))
    first, second = model.graph.node[-1].attribute[0].g.node
    assert (first.input, first.output, second.input) == (["x2"], ["x2_2"], ["x2_2", "w"])
    check(emit(graph))


@pytest.mark.parametrize(
    "body",
    [
        "g (float[2] x) => (float[2] x) { }",
        "g (float[2] x) => (float[2] x, float[2] y, float[2] y) { y = Relu(x) }",
        "g (float[2] x) => (float[2] y, float[2] w) <float[2] w = {1, 2}> { y = Add(x, w) }",
        "g () => (float[2] k) { k = Constant <value = float[2] {1, 2}> () }",
        "g (seq(float[2]) x) => (seq(float[2]) y) { y = Identity(x) }",
        "g (float[N] x) => (float[M] y) { y = Relu(x) }",
        CONDITIONAL,
    ],
)
def test_odd_interfaces_round_trip(body: str) -> None:
    model = parse(body)
    result = emitted(model)
    assert nodes(result) == nodes(model)
    for side in ("input", "output"):
        before, after = getattr(model.graph, side), getattr(result.graph, side)
        assert [info.name for info in after] == [info.name for info in before]
        assert all(new == old for new, old in zip(after, before, strict=True) if old.HasField("type"))
    check(ir.from_proto(result))


def test_everything_that_is_not_modelled_is_kept() -> None:
    model = parse(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { [one] a = Mul(x, w) [two] y = loc.f(a) }",
        (
            '<ir_version: 10, opset_import: ["" : 18, "loc" : 1], producer_name: "me", producer_version: "2", '
            'domain: "d", model_version: 7, doc_string: "model", metadata_props: ["k" : "v"]>'
        ),
    )
    function = helper.make_function(
        "loc", "f", ["p"], ["r"], [helper.make_node("Relu", ["p"], ["r"])], [helper.make_opsetid("", 18)]
    )
    function.doc_string = "function"
    model.functions.append(function)
    graph = model.graph
    graph.doc_string = graph.node[0].doc_string = graph.input[0].doc_string = "text"
    annotation = graph.quantization_annotation.add(tensor_name="a")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="w")
    for part in (graph, graph.node[0], graph.input[0], graph.initializer[0]):
        part.metadata_props.add(key="from", value="test")
    graph.input[0].type.denotation = "IMAGE"
    graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_CHANNEL"
    result = emitted(model)
    result.graph.ClearField("value_info")
    model.graph.ClearField("value_info")
    assert plain(result) == plain(model)


def test_a_constant_must_be_what_it_is_declared_as() -> None:
    graph = lifted("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    graph.value("w").data = ArrayData(np.zeros(3, np.float32))
    with pytest.raises(InvariantError, match="declared"):
        to_bytes(emit(graph))


def test_fingerprint() -> None:
    base = parse("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    value = fingerprint(ir.from_proto(base))
    assert value == fingerprint(emit(lifted(base)))
    base.metadata_props.add(key="a", value="b")
    base.graph.node[0].doc_string = "text"
    assert value == fingerprint(ir.from_proto(base))
    base.graph.initializer[0].float_data[0] = 3
    assert value != fingerprint(ir.from_proto(base))
    large = [
        parse(f"g () => (float[2000] y) <float[2000] w = {{{','.join([fill] * 2000)}}}> {{ y = Relu(w) }}")
        for fill in ("1", "2")
    ]
    assert fingerprint(ir.from_proto(large[0])) == fingerprint(ir.from_proto(large[1]))


def assert_round_trip(model: onnx.ModelProto) -> None:
    result = emitted(model)
    assert nodes(result, declared=model) == nodes(model)
    constants = {each.name for each in model.graph.initializer} if model.ir_version < 4 else set()
    assert plain([*result.graph.input]) == plain([each for each in model.graph.input if each.name not in constants])
    before, after = ([*map(plain, (each.graph.output, each.functions))] for each in (model, result))
    assert before == after
    check(ir.from_proto(result))
    onnx.checker.check_model(result)


@pytest.mark.thorough
def test_every_operator_round_trips() -> None:
    """The models of onnx's own tests, some 1,900; collecting them runs them all in numpy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        models = {case.name: case.model for case in collect_testcases(None) if case.model is not None}
    assert len(models) > 1000
    for name, model in models.items():
        try:
            assert_round_trip(model)
        except (AssertionError, ModelError) as error:
            raise AssertionError(name) from error


@pytest.mark.parametrize("folder", ["simple", "pytorch-operator", "pytorch-converted"])
def test_exported_models_round_trip(folder: str) -> None:
    paths = sorted((DATA / folder).glob("*/model.onnx"))
    assert paths
    for path in paths:
        assert_round_trip(onnx.load(path))


def doubling(depth: int) -> onnx.ModelProto:
    """A call of f{depth}, which calls f{depth-1} twice, and so on: 2**depth Relus."""
    calls = (f"a = my.f{level - 1} (x) y = my.f{level - 1} (a)" for level in range(1, depth + 1))
    bodies = enumerate(("y = Relu (x)", *calls))
    imports = 'opset_import: ["" : 18, "my" : 1]'
    functions = (f'<domain: "my", {imports}> f{level} (x) => (y) {{ {body} }}' for level, body in bodies)
    main = f"<ir_version: 9, {imports}> g (float[1,4] x) => (float[1,4] y) {{ [call] y = my.f{depth} (x) }}"
    return parser.parse_model("\n".join((main, *functions)))


def inlined(depth: int) -> tuple[ir.Model, dict[str, str]]:
    return onnx_io.inline_functions(onnx_io.from_message(doubling(depth)), lambda kind: False)


@pytest.mark.parametrize("depth", [1, 3, 6])
def test_small_functions_are_inlined(depth: int) -> None:
    found, kept = inlined(depth)
    assert not kept
    assert len(list(found.graph)) == 2**depth


@pytest.mark.parametrize("depth", [16, 30])
def test_calls_stay_where_inlining_would_lead_to_too_many_ops(depth: int) -> None:
    found, kept = inlined(depth)
    assert any("inlining would lead to more than" in reason for reason in kept.values())
    nodes = sum(len(list(each)) for each in (found.graph, *found.functions.values()))
    assert nodes < 400 * 2**11
    assert len(inference.lift(found).ops) <= 2**11
