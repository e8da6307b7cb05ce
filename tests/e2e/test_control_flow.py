"""Networks in the bodies of If, Loop and Scan: the same numbers for every target, in every dialect, and few casts."""

from collections import Counter
from itertools import product

import control_flow_models
import onnx
import pytest
from onnx import parser
from parsed_models import parsed
from tiers import covering

import layoutopt
from layoutopt.ops import is_canonical

TARGETS = ("gpu-hopper", "ascend-910b", "cpu-avx512")
WAYS = (*product(TARGETS, ("functions", "ops")), ("cpu", None))
NAMES = tuple(control_flow_models.MODELS)


@pytest.mark.parametrize(("name", "way"), covering(NAMES, WAYS))
def test_a_model_computes_the_same(name: str, way: tuple[str, str | None]) -> None:
    result = layoutopt.optimize(control_flow_models.load(name), way[0], dialect=way[1])
    report = result.report
    assert report.verification.status == "passed", report.verification.reason
    assert report.plan is not None and report.plan.gap == 0
    assert not report.changed or report.verification.outputs_depend_on_inputs
    assert report.after.weight_casts == 0


@pytest.mark.parametrize(("target", "format"), [("ascend-910b", "NCHW8c"), ("cpu-avx512", "NCHW16c")])
def test_the_boundary_of_a_loop_is_canonical_and_its_body_is_planned(
    target: str, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = control_flow_models.MODELS["loop"].replace("12,12", "56,56").replace("[1,16,", "[1,64,")
    wide = f"# constants: w0(64,64,3,3) w1(64,64,3,3) w2(64,64,3,3) v(64,64,1,1) b(64)\n{wide}"
    monkeypatch.setitem(control_flow_models.MODELS, "wide", wide)
    result = layoutopt.optimize(control_flow_models.load("wide"), target, runtime="compiler")
    assert result.report.verification.status == "passed"
    (loop,) = (op for op in result.graph.ops if op.bodies)
    assert loop.signature is not None and is_canonical(loop.signature)
    body = loop.bodies["body"]
    convolutions = [op for op in body.ops if op.kind == "Conv"]
    assert {str(op.y.storage) for op in convolutions} == {format}
    assert {op.inputs[1].is_constant for op in convolutions if op.inputs[1] is not None} == {True}
    assert {report.body for report in result.report.ops} == {"", "loop/body"}
    assert sum(cast.body == "loop/body" for cast in result.report.casts) == 2


def test_weights_of_several_bodies_are_written_once() -> None:
    model = layoutopt.optimize(control_flow_models.load("if"), "ascend-910b", dialect="ops").proto
    graphs = [model.graph, *(attr.g for node in model.graph.node for attr in node.attribute if attr.HasField("g"))]
    assert len(graphs) == 3
    large = [tensor.name for graph in graphs for tensor in graph.initializer if len(tensor.raw_data) > 4096]
    assert [name.split("__")[0] for name in large] == ["w0", "w1"]


def test_a_certain_branch_takes_the_place_of_its_if() -> None:
    result = layoutopt.optimize(control_flow_models.load("certain_if"), "ascend-910b", dialect="ops")
    assert not any(op.bodies for op in result.graph.ops)
    assert Counter(op.kind for op in result.graph.ops)["Conv"] == 2


def test_the_block_guard_stands_outside_of_bodies() -> None:
    result = layoutopt.optimize(control_flow_models.load("blocked_only_inside"), "cpu")
    if not result.report.changed:
        pytest.skip("no blocked kernels here")
    names = [node.name for node in result.proto.graph.node]
    assert sum("packed for blocks" in name for name in names) == 1


# --- functions ---------------------------------------------------------------------------------------------------------

FUNCTIONS = """<domain: "my", opset_import: ["" : {block}, "my" : 1]>
    block <alpha: float = 0.3, kernel: ints> (x, w) => (y) {{
      c = Conv <kernel_shape: ints = @kernel, pads = [1, 1, 1, 1]> (x, w)
      y = my.act <alpha: float = @alpha> (c)
    }}
    ---
    <domain: "my", opset_import: ["" : {act}]>
    act <alpha: float = 0.5> (x) => (y) {{
      zero = Constant <value = float {{0.0}}> () m = ReduceMax <keepdims = 0> (x) p = Greater(m, zero)
      y = If (p) <
        then_branch = t () => (c) {{ c = LeakyRelu <alpha: float = @alpha> (x) }},
        else_branch = e () => (c) {{ c = Neg(x) }}>
    }}
    ---
    <domain: "my", opset_import: ["" : 18]>
    unused (x) => (y) {{ y = Relu(x) }}"""
CALLS = """<ir_version: 10, opset_import: ["" : 18, "my" : 1, "com.microsoft" : 1]>
    g (float[1,64,28,28] x, bool b) => (float[1,64,28,28] y) {
      c = my.block <alpha = 0.2, kernel = [3, 3]> (x, w)
      q = If (b) <
        then_branch = t () => (d) { c_2 = Neg(c) d = my.block <kernel = [3, 3]> (c_2, w) },
        else_branch = e () => (d) { d = my.act(c) }>
      y = my.block <kernel = [3, 3]> (q, w)
    }"""


def calling(block: int = 18, act: int = 18) -> onnx.ModelProto:
    model = parsed(CALLS, w=(64, 64, 3, 3))
    texts = FUNCTIONS.format(block=block, act=act).split("---")
    model.functions.extend(parser.parse_function(text) for text in texts)
    return model


@pytest.mark.parametrize("way", [("ascend-910b", "ops"), ("ascend-910b", "functions")])
def test_segments_do_not_begin_inside_of_functions(way: tuple[str, str]) -> None:
    verification = layoutopt.optimize(calling(), way[0], dialect=way[1]).report.verification
    assert verification.status == "passed"
    assert verification.reason.startswith("segment by segment; as a whole y differs by ")


@pytest.mark.parametrize("way", [("ascend-910b", "ops"), ("ascend-910b", "functions"), ("cpu", None)])
@pytest.mark.parametrize("block", [18, 17])
def test_functions_are_inlined(way: tuple[str, str | None], block: int) -> None:
    result = layoutopt.optimize(calling(block), way[0], dialect=way[1])
    assert result.report.changed and result.report.verification.status == "passed"
    assert {function.name for function in result.proto.functions if function.domain == "my"} <= {"unused"}
    assert Counter(op.kind for graph in result.graph.regions() for op in graph.ops)["Conv"] == 3


BRANCHES = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1,16,12,12] x) => (float[1,16,12,12] y, float[1,16,12,12] z) <bool c = {1}> {
      y = If (c) <
        then_branch = t () => (float[1,16,12,12] a) { a = Conv <pads = [1, 1, 1, 1]> (x, w) },
        else_branch = e () => (float[1,16,12,12] b) { b = Neg (x) }>
      z = If (c) <
        then_branch = t () => (float[1,16,12,12] a) { a = Conv <pads = [1, 1, 1, 1]> (y, w) },
        else_branch = e () => (float[1,16,12,12] b) { b = Neg (x) }>
    }"""


@pytest.mark.parametrize("way", [("ascend-910b", "ops"), ("cpu", None)])
def test_nodes_of_one_name_in_branches_that_become_one_graph(way: tuple[str, str | None]) -> None:
    model = parsed(BRANCHES, w=(16, 16, 3, 3))
    for node in model.graph.node:
        node.attribute[0].g.node[0].name = "one"
    result = layoutopt.optimize(model, way[0], dialect=way[1])
    assert result.report.verification.status == "passed"
    assert result.report.changed
    names = [node.name for node in result.proto.graph.node if node.name]
    assert len(set(names)) == len(names)
