"""Symbolic inference: inferred shapes and elements are right at every size, and facts that do not hold are not inferred."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.parser
import onnx_ir
import onnxruntime
import pytest

from layoutopt import inference, onnx_io
from layoutopt.extend import Node, type_function
from layoutopt.formats import Extent, as_shape, is_unknown
from layoutopt.inference import op_inference
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes
from layoutopt.ir.types import ArrayData, DType, TensorType
from layoutopt.ops.shape_functions import elements, shapes

HEADER = '<ir_version: 8, opset_import: ["" : 18]>'


def lifted(text: str, header: str = HEADER) -> tuple[onnx.ModelProto, Graph]:
    model = onnx.parser.parse_model(f"{header} {text}")
    for output in model.graph.output:
        output.ClearField("type")
    return model, inference.lift(onnx_ir.from_proto(model))


@dataclass(frozen=True)
class Fact:
    """A model, the expected shape or elements of a value, and the operators under test."""

    body: str
    value: str
    shape: str = ""  # its shape
    elements: str = ""  # its elements
    inputs: str = "float[N,4,H,W] x"
    header: str = HEADER

    @property
    def text(self) -> str:
        return f"net ({self.inputs}) => (float[?] {self.value}) {{ {self.body} }}"


NUMBERS = (
    "s = Shape (x) i = Constant <value_int: int = 2> () h = Gather (s, i) "
    "j = Constant <value_int: int = 3> () w = Gather (s, j) "
)
HALF = "two = Constant <value_int: int = 2> () "
IMAGE = "first = Constant <value_ints: ints = [2]> () last = Constant <value_ints: ints = [4]> () hw = Slice (s, first, last) "


def ints(name: str, *numbers: int) -> str:
    return f"{name} = Constant <value_ints: ints = [{', '.join(map(str, numbers))}]> () "


def filter_of(*shape: int) -> str:
    return ints("wshape", *shape) + "f = ConstantOfShape <value = float[1] {0.5}> (wshape) "


FACTS = {
    "Conv": Fact(
        filter_of(8, 4, 3, 3) + "y = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, f)", "y", "N,8,(H+1)//2,(W+1)//2"
    ),
    "Conv same": Fact(
        filter_of(8, 4, 3, 3) + 'y = Conv <strides = [2, 3], auto_pad = "SAME_UPPER"> (x, f)',
        "y",
        "N,8,(H+1)//2,(W+2)//3",
    ),
    "Conv valid dilated": Fact(filter_of(8, 4, 2, 2) + "y = Conv <dilations = [3, 3]> (x, f)", "y", "N,8,H-3,W-3"),
    "MaxPool": Fact("y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)", "y", "N,4,H//2,W//2"),
    "AveragePool": Fact("y = AveragePool <kernel_shape = [3, 1], pads = [1, 0, 1, 0]> (x)", "y", "N,4,H,W"),
    "LpPool": Fact("y = LpPool <kernel_shape = [2, 2]> (x)", "y", "N,4,H-1,W-1"),
    "ConvTranspose": Fact(
        filter_of(4, 3, 2, 2) + "y = ConvTranspose <strides = [2, 2], output_padding = [1, 0]> (x, f)",
        "y",
        "N,3,2*H+1,2*W",
    ),
    "DepthToSpace": Fact("y = DepthToSpace <blocksize = 2> (x)", "y", "N,1,2*H,2*W"),
    "SpaceToDepth": Fact("y = SpaceToDepth <blocksize = 2> (x)", "y", "N,16,H//2,W//2"),
    "Reshape rest": Fact(ints("t", 0, 4, -1) + "y = Reshape (x, t)", "y", "N,4,H*W"),
    "Reshape computed": Fact(
        NUMBERS
        + HALF
        + "q = Div (h, two) z = Constant <value_ints: ints = [0]> () qs = Unsqueeze (q, z) "
        + ints("r", -1)
        + ints("n", 0)
        + "t = Concat <axis = 0> (n, qs, r) y = Reshape (x, t)",
        "y",
        "N,H//2,(4*H*W)//(H//2)",
    ),
    "Compress": Fact(ints("k", 1, 0, 1, 0) + "c = Cast <to = 9> (k) y = Compress <axis = 1> (x, c)", "y"),
    "Flatten": Fact("y = Flatten <axis = 2> (x)", "y", "4*N,H*W"),
    "Expand": Fact(NUMBERS + filter_of(1, 4, 1, 1) + "y = Expand (f, s)", "y", "N,4,H,W"),
    "Tile": Fact(ints("r", 1, 2, 3, 1) + "y = Tile (x, r)", "y", "N,8,3*H,W"),
    "Pad": Fact(ints("p", 0, 0, 1, 0, 0, 0, 2, 0) + "y = Pad (x, p)", "y", "N,4,H+3,W"),
    "Pad to a multiple": Fact(
        NUMBERS
        + "seven = Constant <value_int: int = 7> () a = Mod (h, seven) b = Sub (seven, a) c = Mod (b, seven) "
        + ints("z", 0)
        + "d = Unsqueeze (c, z)"
        + ints("p", 0, 0, 0, 0, 0, 0)
        + ints("q", 0)
        + "pads = Concat <axis = 0> (p, d, q) y = Pad (x, pads)",
        "y",
        "N,4,7*((H+6)//7),W",
    ),
    "Slice": Fact(
        ints("b", 1, -3)
        + ints("e", 9223372036854775807, 9223372036854775807)
        + ints("a", 2, 3)
        + "x2 = Concat <axis = 3> (x, x, x) y = Slice (x2, b, e, a)",
        "y",
        "N,4,H-1,3",
    ),
    "Slice steps": Fact(
        ints("b", 1, -1)
        + ints("e", 2147483647, -9223372036854775807)
        + ints("a", 2, 3)
        + ints("st", 2, -1)
        + "y = Slice (x, b, e, a, st)",
        "y",
        "N,4,H//2,W",
    ),
    "Concat": Fact("y = Concat <axis = 2> (x, x)", "y", "N,4,2*H,W"),
    "Split": Fact("y, z = Split <axis = 2, num_outputs = 2> (x)", "y", "N,4,(H+1)//2,W"),
    "Split rest": Fact("z, y = Split <axis = 2, num_outputs = 2> (x)", "y", "N,4,H-((H+1)//2),W"),
    "Resize": Fact(
        ints("z", 0) + "sc = Constant <value = float[4] {1, 1, 2, 0.5}> () y = Resize (x, , sc)", "y", "N,4,2*H,W//2"
    ),
    "Resize sizes": Fact(
        NUMBERS + HALF + IMAGE + "d = Add (hw, two) y = Resize <axes = [2, 3]> (x, , , d)", "y", "N,4,H+2,W+2"
    ),
    "Upsample": Fact(
        "sc = Constant <value = float[4] {1, 1, 2, 3}> () y = Upsample (x, sc)",
        "y",
        "N,4,2*H,3*W",
        header='<ir_version: 4, opset_import: ["" : 9]>',
    ),
    "Range": Fact(
        NUMBERS + "z = Constant <value_int: int = 0> () o = Constant <value_int: int = 2> () y = Range (z, h, o)",
        "y",
        "(H+1)//2",
    ),
    "ConstantOfShape": Fact(NUMBERS + IMAGE + "y = ConstantOfShape (hw)", "y", "H,W"),
    "Einsum": Fact('y = Einsum <equation = "nchw,nchv->nvwc"> (x, x)', "y", "N,W,W,4"),
    "Col2Im": Fact(
        NUMBERS + IMAGE + ints("b", 1, 1) + ints("t", 0, 4, -1) + "r = Reshape (x, t) y = Col2Im (r, hw, b)",
        "y",
        "N,4,H,W",
    ),
    "Shape": Fact("y = Shape <start = 1, end = -1> (x)", "y", elements="4,H"),
    "Size": Fact("y = Size (x)", "y", elements="4*H*N*W"),
    "Constant": Fact(NUMBERS + ints("c", 3, 4, 5, 6) + "y = Add (s, c)", "y", elements="N+3,8,H+5,W+6"),
    "Identity": Fact(NUMBERS + "y = Identity (h)", "y", elements="H"),
    "Cast and Floor": Fact(
        NUMBERS
        + "f = Cast <to = 1> (h) t = Constant <value_float: float = 2.0> () m = Mul (f, t) fl = Floor (m) ce = Ceil (fl) "
        "ro = Round (ce) y = Cast <to = 7> (ro)",
        "y",
        elements="2*H",
    ),
    "Squeeze": Fact(
        NUMBERS + ints("z", 0) + "u = Unsqueeze (h, z) v = Unsqueeze (u, z) y = Squeeze (v)", "y", elements="H"
    ),
    "Reshape of a list": Fact(
        NUMBERS
        + ints("t", 2, 2)
        + "m = Reshape (s, t) tr = Transpose (m) fl = Flatten <axis = 0> (tr)"
        + ints("l", -1)
        + "y = Reshape (fl, l)",
        "y",
        elements="N,H,4,W",
    ),
    "Gather": Fact(NUMBERS + ints("o", 3, 0) + "y = Gather (s, o)", "y", elements="W,N"),
    "Slice of a list": Fact(
        NUMBERS
        + ints("b", -1)
        + ints("e", -9223372036854775807)
        + ints("a", 0)
        + ints("st", -1)
        + "y = Slice (s, b, e, a, st)",
        "y",
        elements="W,H,4,N",
    ),
    "Split of a list": Fact(NUMBERS + ints("z", 3, 1) + "a, y = Split (s, z)", "y", elements="W"),
    "Expand and Tile": Fact(
        NUMBERS + ints("z", 0) + "u = Unsqueeze (h, z)" + ints("two", 2) + "e = Expand (u, two) y = Tile (e, two)",
        "y",
        elements="H,H,H,H",
    ),
    "Where": Fact(
        NUMBERS + ints("m", 1, -1, 2, -1) + ints("neg", -1) + "eq = Equal (m, neg) no = Not (eq) y = Where (no, m, s)",
        "y",
        elements="1,4,2,W",
    ),
    "Comparisons": Fact(
        NUMBERS + "z = Constant <value_int: int = -1> () a = Less (z, h) b = Greater (z, h) c = LessOrEqual (h, h) "
        "d = GreaterOrEqual (z, h) e = Equal (z, h) y = Where (a, h, w) y2 = Where (b, h, w) y3 = Where (c, h, w) "
        "y4 = Where (d, h, w) y5 = Where (e, h, w)",
        "y4",
        elements="W",
    ),
    "Max and Min": Fact(NUMBERS + HALF + "b = Add (h, two) y = Max (h, b, two) y2 = Min (h, b)", "y", elements="H+2"),
    "Neg": Fact(NUMBERS + "n = Neg (w) m = Add (h, h) y = Add (m, n)", "y", elements="-W+2*H"),
    "Div": Fact(NUMBERS + HALF + "m = Mul (h, w) y = Div (m, h)", "y", elements="W"),
    "Div of fractions": Fact(
        NUMBERS + "f = Cast <to = 1> (h) g = Cast <to = 1> (w) m = Mul (f, g) y = Div (m, g)", "y", elements="H"
    ),
    "Mod": Fact(NUMBERS + HALF + "y = Mod (h, two)", "y", elements="-2*(H//2)+H"),
    "ReduceProd": Fact(NUMBERS + IMAGE + "y = ReduceProd <keepdims = 0> (hw)", "y", elements="H*W"),
    "ReduceSum": Fact(NUMBERS + IMAGE + "y = ReduceSum (hw)", "y", elements="W+H"),
    "ReduceMax": Fact(
        NUMBERS
        + ints("o", 2, 2)
        + "g = Gather (s, o)"
        + ints("up", 0, 3)
        + "b = Add (g, up) y = ReduceMax <keepdims = 0> (b) y2 = ReduceMin <keepdims = 0> (b)",
        "y",
        elements="H+3",
    ),
    "ConstantOfShape and Range of lists": Fact(
        NUMBERS
        + ints("four", 4)
        + "ones = ConstantOfShape <value = int64[1] {1}> (four) z = Constant <value_int: int = 0> () "
        "o = Constant <value_int: int = 1> () n = Constant <value_int: int = 4> () "
        "r = Range (z, n, o) a = Mul (s, ones) y = Add (a, r)",
        "y",
        elements="N,5,H+2,W+3",
    ),
    "Sub": Fact(NUMBERS + "y = Sub (h, h)", "y", elements="0"),
}

SIZES = ({"N": 2, "H": 9, "W": 8}, {"N": 1, "H": 16, "W": 6}, {"N": 3, "H": 7, "W": 10})


def wrong_facts(model: onnx.ModelProto, graph: Graph, sizes: Mapping[str, int]) -> list[str]:
    """The inferred facts that are wrong at some sizes; empty if the model does not run at these sizes."""
    everything = onnx.ModelProto()
    everything.CopyFrom(model)
    del everything.graph.output[:]
    named = (name for node in model.graph.node for name in node.output if name)
    everything.graph.output.extend(onnx.ValueInfoProto(name=name) for name in named)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(everything.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {
        value.name: np.ones([Extent.of(dim).at(sizes) or 1 for dim in value.shape or ()], np.float32)
        for value in graph.inputs
    }
    try:
        results = session.run(None, feed)
    except Exception:  # onnxruntime's exceptions have no common base
        return []
    found = zip((output.name for output in session.get_outputs()), results, strict=True)
    wrong = []
    for name, array in found:
        value = graph.value(name)
        if value.shape is not None and value.data is None:
            dims = [Extent.of(dim).at(sizes) for dim in value.shape]
            if len(dims) != array.ndim or any(
                dim not in (None, size) for dim, size in zip(dims, array.shape, strict=True)
            ):
                wrong.append(f"{name} is {array.shape}, not {value.shape}")
        for dim, number in zip(value.elements or (), array.reshape(-1).tolist(), strict=False):
            if dim is not None and Extent.of(dim).at(sizes) not in (None, number):
                wrong.append(f"{name} has {number}, not {dim}")
    return wrong


@pytest.mark.parametrize("fact", FACTS.values(), ids=FACTS)
def test_what_is_said_is_so(fact: Fact) -> None:
    model, graph = lifted(fact.text, fact.header)
    value = graph.value(fact.value)
    if fact.shape:
        assert ",".join(map(str, value.shape or ("none",))) == fact.shape
    if fact.elements:
        assert ",".join(map(str, value.elements or ("none",))) == fact.elements
    for sizes in SIZES:
        assert wrong_facts(model, graph, sizes) == []


def test_every_rule_is_tried() -> None:
    tried = {op for fact in FACTS.values() for op in re.findall(r"= ?(\w+) ?[<(]", fact.body)}
    alike = {"ConvInteger", "QLinearConv", "DeformConv"}  # the windows of Conv
    assert {*shapes.FUNCTIONS, *elements.FUNCTIONS} - tried <= alike


def shape_of(body: str, value: str = "y", inputs: str = "float[N,4,H,W] x", output: str = "float[?] y") -> str:
    model = onnx.parser.parse_model(f"{HEADER} net ({inputs}) => ({output}) {{ {body} }}")
    if output == "float[?] y":
        model.graph.output[0].ClearField("type")
    graph = inference.lift(onnx_ir.from_proto(model))
    return ",".join(map(str, graph.value(value).shape or ("none",)))


@pytest.mark.parametrize("count", ["2", "M"])
def test_what_is_sliced_at_computed_places_is_not_as_long_as_it_was(count: str) -> None:
    text = f"net (float[N,4,5] x, int64[{count}] b, int64[{count}] e) => (float[?] y) {{ y = Slice (x, b, e) }}"
    (y,) = lifted(text)[1].outputs
    assert y.shape is not None
    assert all(map(is_unknown, y.shape[:2]))
    assert y.shape[2] == 5 if count == "2" else y.shape[2] != 5


def test_of_two_dimensions_that_are_broadcast_nobody_knows_the_larger() -> None:
    shape = shape_of("y = Add (x, z)", inputs="float[N,4,H,W] x, float[M,4,H,1] z")
    assert shape.startswith("?") and shape.endswith(",4,H,W")


def test_two_unknown_extents_do_not_follow_from_the_number_of_elements() -> None:
    body = ints("n", 0) + "t = Concat <axis = 0> (n, a) y = Reshape (x, t)"
    assert re.fullmatch(r"N,\?\d+,\?\d+", shape_of(body, inputs="float[N,4,H,W] x, int64[2] a"))
    assert shape_of(body, inputs="float[N,4,H,W] x, int64[1] a") == "N,4*H*W"


def test_the_names_that_outputs_are_given_are_no_proof() -> None:
    """Declared names of output dimensions are not used: exporters name them like those of the image, whatever their size."""
    body = filter_of(8, 4, 3, 3) + "c = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, f) y = Relu (c)"
    assert shape_of(body, output="float[N,8,H,W] y") == "N,8,(H+1)//2,(W+1)//2"
    model = onnx.parser.parse_model(f"{HEADER} net (float[N,4,H,W] x) => (float[N,8,H,W] y) {{ {body} }}")
    emitted = onnx_io.emit(inference.lift(onnx_ir.from_proto(model)))
    assert str(emitted.graph.outputs[0].shape) == "[N,8,H,W]"
    inner = next(node for node in emitted.graph if node.op_type == "Conv").outputs[0]
    assert inner.shape is not None
    assert [getattr(dim, "value", dim) for dim in inner.shape] == ["N", 8, None, None]


def test_odd_names_go_in_and_out_as_they_are() -> None:
    for name in ("past + 1", "H*W", "a b", "unk__0", "3"):
        model = onnx.parser.parse_model(
            f"{HEADER} net (float[N,4] x) => (float[N,4] y) {{ a = Relu (x) y = Relu (a) }}"
        )
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = name
        model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = name
        emitted = onnx_io.emit(inference.lift(onnx_ir.from_proto(model)))
        values = (*emitted.graph.inputs, *emitted.graph.outputs, *next(iter(emitted.graph)).outputs)
        assert [getattr(value.shape[0], "value", None) for value in values if value.shape] == [name] * 3


def test_what_only_dead_ops_need_is_not_taken_for_granted() -> None:
    """(H - 8) / 2 is rounded down if H is at least 8; a dead op with a window of 8 does not prove that."""
    arithmetic = NUMBERS + "e = Constant <value_int: int = -8> () " + HALF + "b = Add (h, e) d = Div (b, two) "
    pool = "p = MaxPool <kernel_shape = [8, 1]> (x) "
    use = ints("z", 0) + "u = Unsqueeze (d, z) y = Expand (one, u) " + "q = Cast <to = 1> (u) "
    constants = "one = Constant <value = float[1] {1}> () "
    for read, known in (("", False), ("r = ReduceMax <keepdims = 0> (p) out = Mul (y, r)", True)):
        signature = f"net (float[N,4,H,W] x) => (float[?] {'out' if known else 'y'})"
        text = f"{HEADER} {signature} {{ {constants}{arithmetic}{pool}{use}{read} }}"
        model = onnx.parser.parse_model(text)
        model.graph.output[0].ClearField("type")
        graph = inference.lift(onnx_ir.from_proto(model))
        assert (graph.value("y").shape == as_shape(("(H//2)-4",))) == known
        assert is_unknown((graph.value("y").shape or ("",))[0]) != known


def test_a_second_inference_looks_only_at_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second inference infers only the Reshape whose target has become known and its successors."""
    text = (
        "net (float[N,4,H,W] x, int64[2] t) => (float[?] y, float[?] z) { r = Reshape (x, t) y = Relu (r) z = Abs (x) }"
    )
    _, graph = lifted(text)
    asked: list[str] = []
    infer = op_inference.infer_node
    monkeypatch.setattr(op_inference, "infer_node", lambda node: asked.append(node.op_type) or infer(node))
    inference.infer_again(graph)
    assert asked == []
    target = graph.new_value("known", TensorType(DType.INT64, (2,)), data=ArrayData(np.array([-1, 8])))
    graph.replace_uses(graph.value("t"), target)
    inference.infer_again(graph)
    assert asked == ["Reshape", "Relu"]
    assert graph.value("y").shape == as_shape(("(H*N*W)//2", 8))


def test_sizes_of_unknown_dimensions_are_measured() -> None:
    """The extents of a pool that rounds up are measured, because onnx computes them from numbers only."""
    _, graph = lifted(
        "net (float[N,4,H,W] x) => (float[?] y) "
        "{ p = MaxPool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1> (x) y = Relu (p) }"
    )
    height = (graph.value("p").shape or ())[2]
    assert is_unknown(height)
    sizes = inference.evaluate_extents(graph, Sizes.of(graph.inputs, {"H": (9, 33), "W": 8}))
    assert [sizes.at(height, point) for point in sizes.points] == [5, 9, 17]


FUNCTIONS = """<domain: "my", opset_import: ["" : 18, "my" : 1]> halved <by> (a) => (b) {
    n = Constant <value_int: int = @by> () s = Shape <start = 2> (a) h = Div (s, n)
    k = Shape <end = 2> (a) t = Concat <axis = 0> (k, h) b = Resize (a, , , t) }
<domain: "my", opset_import: ["" : 18, "my" : 1]> fourth (c) => (d) { e = my.halved <by = 2> (c) d = my.halved <by = 4> (e) }"""


def test_extents_pass_through_functions_that_call_functions() -> None:
    header = '<ir_version: 8, opset_import: ["" : 18, "my" : 1]>'
    model, graph = lifted(f"net (float[N,4,H,W] x) => (y) {{ f = my.fourth (x) y = Relu (f) }} {FUNCTIONS}", header)
    assert graph.value("y").shape == as_shape(("N", 4, "H//8", "W//8"))
    assert wrong_facts(model, graph, {"N": 2, "H": 16, "W": 24}) == []


def test_a_type_function_of_an_extension() -> None:
    @type_function("test.types::Halve")
    def halve(node: Node) -> list[TensorType]:
        dims = node.shape(0)
        assert dims is not None and dims[0] is not None
        return [TensorType(DType.FLOAT16, ((dims[0] // node.attributes["by"]).dim,))]

    header = '<ir_version: 8, opset_import: ["" : 18, "test.types" : 1]>'
    _, graph = lifted("net (float[N] x) => (y) { h = test.types.Halve <by = 2> (x) y = Relu (h) }", header)
    assert str(graph.value("y").type) == "float16[N//2]"


def test_element_types_that_a_schema_fixes() -> None:
    header = '<ir_version: 8, opset_import: ["" : 18, "ai.onnx.ml" : 1]>'
    _, graph = lifted("net (float[N,3] x) => (y) { s = ai.onnx.ml.Normalizer (x) y = Relu (s) }", header)
    assert str(graph.value("y").type) == "float32[?]"
