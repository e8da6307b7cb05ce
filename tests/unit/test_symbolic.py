"""Symbolic inference: shapes and elements that hold at every size, contradictions, bodies, and operators of onnxruntime."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import control_flow_models
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser

from layoutopt import inference, onnx_io
from layoutopt.errors import ModelError
from layoutopt.extend import type_function
from layoutopt.formats import Extent, as_shape, is_unknown
from layoutopt.inference import lift
from layoutopt.inference.op_inference import infer_elements
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import ArrayData, DType, Op, TensorType
from layoutopt.onnx_io import emit, to_bytes
from layoutopt.ops.shape_functions import Node, Operand, as_elements, elements, elements_of, shapes, shapes_of
from layoutopt.runtime.session import inference_session
from layoutopt.sample_inputs.dimensions import Dimensions, plausible_sizes

HEADER = '<ir_version: 8, opset_import: ["" : 18]>'


def parsed(text: str, header: str = HEADER) -> onnx.ModelProto:
    """A model that does not declare its outputs."""
    model = parser.parse_model(f"{header} {text}")
    for output in model.graph.output:
        output.ClearField("type")
    return model


def lifted(text: str, header: str = HEADER) -> Graph:
    return lift(ir.from_proto(parsed(text, header)))


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


def wrong_facts(model: onnx.ModelProto, graph: Graph, sizes: Mapping[str, int]) -> list[str]:
    """The inferred facts that are wrong at some sizes; empty if the model does not run at these sizes."""
    everything = onnx.ModelProto()
    everything.CopyFrom(model)
    del everything.graph.output[:]
    named = (name for node in model.graph.node for name in node.output if name)
    everything.graph.output.extend(onnx.ValueInfoProto(name=name) for name in named)
    session = inference_session(everything.SerializeToString(), is_optimised=False)
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


@pytest.mark.parametrize("count", ["2", "M"])
def test_what_is_sliced_at_computed_places_is_not_as_long_as_it_was(count: str) -> None:
    text = f"net (float[N,4,5] x, int64[{count}] b, int64[{count}] e) => (float[?] y) {{ y = Slice (x, b, e) }}"
    (y,) = lifted(text).outputs
    assert all(map(is_unknown, y.shape[:2]))
    assert y.shape[2] == 5 if count == "2" else y.shape[2] != 5


def test_the_names_that_outputs_are_given_are_no_proof() -> None:
    """Declared names of output dimensions are not used: exporters name them like those of the image, whatever their size."""
    body = filter_of(8, 4, 3, 3) + "c = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, f) y = Relu (c)"
    model = parser.parse_model(f"{HEADER} net (float[N,4,H,W] x) => (float[N,8,H,W] y) {{ {body} }}")
    graph = lift(ir.from_proto(model))
    assert graph.value("y").shape == as_shape(("N", 8, "(H+1)//2", "(W+1)//2"))
    emitted = emit(graph)
    assert str(emitted.graph.outputs[0].shape) == "[N,8,H,W]"
    inner = next(node for node in emitted.graph if node.op_type == "Conv").outputs[0]
    assert [getattr(dim, "value", dim) for dim in inner.shape] == ["N", 8, None, None]


def test_what_only_dead_ops_need_is_not_taken_for_granted() -> None:
    """(H - 8) / 2 is rounded down if H is at least 8; a dead op with a window of 8 does not prove that."""
    arithmetic = NUMBERS + "e = Constant <value_int: int = -8> () " + HALF + "b = Add (h, e) d = Div (b, two) "
    pool = "p = MaxPool <kernel_shape = [8, 1]> (x) "
    use = ints("z", 0) + "u = Unsqueeze (d, z) y = Expand (one, u) " + "q = Cast <to = 1> (u) "
    constants = "one = Constant <value = float[1] {1}> () "
    for read, known in (("", False), ("r = ReduceMax <keepdims = 0> (p) out = Mul (y, r)", True)):
        signature = f"net (float[N,4,H,W] x) => (float[?] {'out' if known else 'y'})"
        graph = lifted(f"{signature} {{ {constants}{arithmetic}{pool}{use}{read} }}")
        assert (graph.value("y").shape == as_shape(("(H//2)-4",))) == known
        assert is_unknown((graph.value("y").shape or ("",))[0]) != known


def test_a_second_inference_looks_only_at_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second inference infers only the Reshape whose target has become known and its successors."""
    text = (
        "net (float[N,4,H,W] x, int64[2] t) => (float[?] y, float[?] z) { r = Reshape (x, t) y = Relu (r) z = Abs (x) }"
    )
    graph = lifted(text)
    asked: list[str] = []
    infer = onnx.shape_inference.infer_node_outputs
    ask = lambda schema, node, *rest: asked.append(node.op_type) or infer(schema, node, *rest)  # noqa: E731
    monkeypatch.setattr(onnx.shape_inference, "infer_node_outputs", ask)
    inference.infer_again(graph)
    assert asked == []
    target = graph.new_value("known", TensorType(DType.INT64, (2,)), data=ArrayData(np.array([-1, 8])))
    graph.replace_uses(graph.value("t"), target)
    inference.infer_again(graph)
    assert asked == ["Reshape", "Relu"]
    assert graph.value("y").shape == as_shape(("(H*N*W)//2", 8))


def test_sizes_of_unknown_dimensions_are_measured() -> None:
    """The extents of a pool that rounds up are measured, because onnx computes them from numbers only."""
    graph = lifted(
        "net (float[N,4,H,W] x) => (float[?] y) "
        "{ p = MaxPool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1> (x) y = Relu (p) }"
    )
    height = (graph.value("p").shape or ())[2]
    assert is_unknown(height)
    sizes = inference.evaluate_extents(graph, plausible_sizes(Dimensions.of(graph, {"H": (9, 33), "W": 8})))
    assert [sizes.at(height, point) for point in sizes.points] == [5, 9, 17]


def test_a_type_function_of_an_extension() -> None:
    @type_function("test.types::Halve")
    def halve(node: Node) -> list[TensorType]:
        dims = node.shape(0)
        return [TensorType(DType.FLOAT16, ((dims[0] // node.attributes["by"]).dim,))]

    header = '<ir_version: 8, opset_import: ["" : 18, "test.types" : 1]>'
    graph = lifted("net (float[N] x) => (y) { h = test.types.Halve <by = 2> (x) y = Relu (h) }", header)
    assert str(graph.value("y").type) == "float16[N//2]"


_LIST = re.compile(r"(?<=[(,] )\[[-\d, ]+\]|(?<=\()\[[-\d, ]+\]")  # as an operand


@dataclass(frozen=True)
class Fact:
    """A model, and the expected shape or elements of a value.

    Lists are constants, as in `Reshape (x, [2, -1])`; s, h, w, hw and two are the numbers of NUMBERS, IMAGE and HALF.
    """

    body: str
    shape: str = ""  # of the value
    elements: str = ""  # of the value
    value: str = "y"
    inputs: str = "float[N,4,H,W] x"
    header: str = HEADER

    @property
    def text(self) -> str:
        constants: list[str] = []

        def name(match: re.Match[str]) -> str:
            constants.append(f"list{len(constants)} = Constant <value_ints: ints = {match[0]}> ()")
            return f"list{len(constants) - 1}"

        is_plain = self.header == HEADER and re.search(r"\b(s|h|w|hw|two)\b", self.body)
        body = _LIST.sub(name, (NUMBERS + HALF + IMAGE if is_plain else "") + self.body)
        return f"net ({self.inputs}) => (float[?] {self.value}) {{ {' '.join(constants)} {body} }}"


FACTS = {
    "Conv": Fact(
        filter_of(8, 4, 3, 3) + "y = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, f)", "N,8,(H+1)//2,(W+1)//2"
    ),
    "Conv same": Fact(
        filter_of(8, 4, 3, 3) + 'y = Conv <strides = [2, 3], auto_pad = "SAME_UPPER"> (x, f)', "N,8,(H+1)//2,(W+2)//3"
    ),
    "Conv valid dilated": Fact(filter_of(8, 4, 2, 2) + "y = Conv <dilations = [3, 3]> (x, f)", "N,8,H-3,W-3"),
    "MaxPool": Fact("y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)", "N,4,H//2,W//2"),
    "AveragePool": Fact("y = AveragePool <kernel_shape = [3, 1], pads = [1, 0, 1, 0]> (x)", "N,4,H,W"),
    "LpPool": Fact("y = LpPool <kernel_shape = [2, 2]> (x)", "N,4,H-1,W-1"),
    "ConvTranspose": Fact(
        filter_of(4, 3, 2, 2) + "y = ConvTranspose <strides = [2, 2], output_padding = [1, 0]> (x, f)", "N,3,2*H+1,2*W"
    ),
    "DepthToSpace": Fact("y = DepthToSpace <blocksize = 2> (x)", "N,1,2*H,2*W"),
    "SpaceToDepth": Fact("y = SpaceToDepth <blocksize = 2> (x)", "N,16,H//2,W//2"),
    "Reshape rest": Fact("y = Reshape (x, [0, 4, -1])", "N,4,H*W"),
    "Reshape computed": Fact(
        "q = Div (h, two) qs = Unsqueeze (q, [0]) t = Concat <axis = 0> ([0], qs, [-1]) y = Reshape (x, t)",
        "N,H//2,(4*H*W)//(H//2)",
    ),
    "Reshape of an old opset to any shape of rank 3": Fact(
        "y = Reshape (x, t)",
        "?1,?2,?3",
        inputs="float[N,4,H,W] x, int64[3] t",
        header='<ir_version: 8, opset_import: ["" : 9]>',
    ),
    "Flatten": Fact("y = Flatten <axis = 2> (x)", "4*N,H*W"),
    "Expand": Fact(filter_of(1, 4, 1, 1) + "y = Expand (f, s)", "N,4,H,W"),
    "Tile": Fact("y = Tile (x, [1, 2, 3, 1])", "N,8,3*H,W"),
    "Pad": Fact("y = Pad (x, [0, 0, 1, 0, 0, 0, 2, 0])", "N,4,H+3,W"),
    "Pad to a multiple": Fact(
        "seven = Constant <value_int: int = 7> () a = Mod (h, seven) b = Sub (seven, a) c = Mod (b, seven) d = "
        "Unsqueeze (c, [0]) pads = Concat <axis = 0> ([0, 0, 0, 0, 0, 0], d, [0]) y = Pad (x, pads)",
        "N,4,7*((H+6)//7),W",
    ),
    "Slice": Fact(
        "x2 = Concat <axis = 3> (x, x, x) y = Slice (x2, [1, -3], [9223372036854775807, 9223372036854775807], [2, 3])",
        "N,4,H-1,3",
    ),
    "Slice steps": Fact("y = Slice (x, [1, -1], [2147483647, -9223372036854775807], [2, 3], [2, -1])", "N,4,H//2,W"),
    "Concat": Fact("y = Concat <axis = 2> (x, x)", "N,4,2*H,W"),
    "Split": Fact("y, z = Split <axis = 2, num_outputs = 2> (x)", "N,4,(H+1)//2,W"),
    "Split rest": Fact("z, y = Split <axis = 2, num_outputs = 2> (x)", "N,4,H-((H+1)//2),W"),
    "Resize": Fact("sc = Constant <value = float[4] {1, 1, 2, 0.5}> () y = Resize (x, , sc)", "N,4,2*H,W//2"),
    "Resize sizes": Fact("d = Add (hw, two) y = Resize <axes = [2, 3]> (x, , , d)", "N,4,H+2,W+2"),
    "Upsample": Fact(
        "sc = Constant <value = float[4] {1, 1, 2, 3}> () y = Upsample (x, sc)",
        "N,4,2*H,3*W",
        header='<ir_version: 4, opset_import: ["" : 9]>',
    ),
    "Range": Fact(
        "z = Constant <value_int: int = 0> () o = Constant <value_int: int = 2> () y = Range (z, h, o)", "(H+1)//2"
    ),
    "ConstantOfShape": Fact("y = ConstantOfShape (hw)", "H,W"),
    "Einsum": Fact('y = Einsum <equation = "nchw,nchv->nvwc"> (x, x)', "N,W,W,4"),
    "Shape": Fact("y = Shape <start = 1, end = -1> (x)", elements="4,H"),
    "Size": Fact("y = Size (x)", elements="4*H*N*W"),
    "Constant": Fact("y = Add (s, [3, 4, 5, 6])", elements="N+3,8,H+5,W+6"),
    "Identity": Fact("y = Identity (h)", elements="H"),
    "Cast and Floor": Fact(
        "f = Cast <to = 1> (h) t = Constant <value_float: float = 2.0> () m = Mul (f, t) fl = Floor (m) ce = "
        "Ceil (fl) ro = Round (ce) y = Cast <to = 7> (ro)",
        elements="2*H",
    ),
    "Squeeze": Fact("u = Unsqueeze (h, [0]) v = Unsqueeze (u, [0]) y = Squeeze (v)", elements="H"),
    "Reshape of a list": Fact("m = Reshape (s, [2, 2]) tr = Transpose (m) y = Reshape (tr, [-1])", elements="N,H,4,W"),
    "Gather": Fact("y = Gather (s, [3, 0])", elements="W,N"),
    "Slice of a list": Fact("y = Slice (s, [-1], [-9223372036854775807], [0], [-1])", elements="W,H,4,N"),
    "Split of a list": Fact("a, y = Split (s, [3, 1])", elements="W"),
    "Where": Fact("eq = Equal ([1, -1, 2, -1], [-1]) y = Where (eq, s, [1, -1, 2, -1])", elements="1,4,2,W"),
    "Neg": Fact("n = Neg (w) m = Add (h, h) y = Add (m, n)", elements="-W+2*H"),
    "Div": Fact("m = Mul (h, w) y = Div (m, h)", elements="W"),
    "Div of fractions": Fact("f = Cast <to = 1> (h) g = Cast <to = 1> (w) m = Mul (f, g) y = Div (m, g)", elements="H"),
    "Mod": Fact("y = Mod (h, two)", elements="-2*(H//2)+H"),
    "a broadcast of two dimensions, the larger of which is not known": Fact(
        "y = Add (x, z)", "?1,4,H,W", inputs="float[N,4,H,W] x, float[M,4,H,1] z"
    ),
    "two unknown extents, which do not follow from the number of elements": Fact(
        "t = Concat <axis = 0> ([0], a) y = Reshape (x, t)", "N,?1,?2", inputs="float[N,4,H,W] x, int64[2] a"
    ),
    "one unknown extent, which does": Fact(
        "t = Concat <axis = 0> ([0], a) y = Reshape (x, t)", "N,4*H*W", inputs="float[N,4,H,W] x, int64[1] a"
    ),
    "ReduceProd": Fact("y = ReduceProd <keepdims = 0> (hw)", elements="H*W"),
    "ConstantOfShape and Range of lists": Fact(
        "ones = ConstantOfShape <value = int64[1] {1}> ([4]) z = Constant <value_int: int = 0> () o = Constant "
        "<value_int: int = 1> () n = Constant <value_int: int = 4> () r = Range (z, n, o) a = Mul (s, ones) y = "
        "Add (a, r)",
        elements="N,5,H+2,W+3",
    ),
    "Sub": Fact("y = Sub (h, h)", elements="0"),
}

CONTRIB_HEADER = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
TOKENS = """s = Shape (x) i = Constant <value_ints = [0]> () n = Gather (s, i) j = Constant <value_ints = [1]> ()
    c = Gather (s, j) rest = Constant <value_ints = [-1]> () t = Concat <axis = 0> (n, c, rest) r = Reshape (x, t)
    a = Transpose <perm = [0, 2, 1]> (r)"""
"""`a` has the shape [N, H*W, 4]."""

QUANTIZED = """u = Constant <value = float {0.1}> () z = Constant <value = uint8 {128}> ()
    q = com.microsoft.QuantizeLinear (a, u, z)"""
VECTOR = "v = Constant <value = float[4] {0.5, 1.0, 1.5, 2.0}> ()"

LIKE_AN_INPUT = {
    "Gelu": "y = com.microsoft.Gelu (a)",
    "QuickGelu": "y = com.microsoft.QuickGelu <alpha = 1.5> (a)",
    "FastGelu": f"{VECTOR} y = com.microsoft.FastGelu (a, v)",
    "FastGelu without a bias": "y = com.microsoft.FastGelu (a)",
    "BiasGelu": f"{VECTOR} y = com.microsoft.BiasGelu (a, v)",
    "SkipLayerNormalization": f"{VECTOR} y = com.microsoft.SkipLayerNormalization (a, a, v, v)",
    "SkipLayerNormalization with its sum": f"{VECTOR} l, , , y = com.microsoft.SkipLayerNormalization (a, a, v, v)",
    "SkipSimplifiedLayerNormalization": f"{VECTOR} y, , , l = com.microsoft.SkipSimplifiedLayerNormalization (a, a, v)",
    "SimplifiedLayerNormalization": f"{VECTOR} y = SimplifiedLayerNormalization (a, v)",
    "Trilu": "y = com.microsoft.Trilu (a)",
    "QuantizeLinear": f"{QUANTIZED} y = Identity (q)",
    "DequantizeLinear": f"{QUANTIZED} y = com.microsoft.DequantizeLinear (q, u, z)",
    "QLinearAdd": f"{QUANTIZED} y = com.microsoft.QLinearAdd (q, u, z, q, u, z, u, z)",
    "QLinearMul": f"{QUANTIZED} y = com.microsoft.QLinearMul (q, u, z, q, u, z, u, z)",
    "QLinearSigmoid": f"{QUANTIZED} y = com.microsoft.QLinearSigmoid (q, u, z, u, z)",
    "QLinearLeakyRelu": f"{QUANTIZED} y = com.microsoft.QLinearLeakyRelu (q, u, z, u, z)",
    "QLinearSoftmax": f"{QUANTIZED} y = com.microsoft.QLinearSoftmax <axis = -1, opset = 13> (q, u, z, u, z)",
    "in a branch": """p = Greater (i, j) b = Squeeze (p) e = If (b) <
        then_branch = yes () => (float[N,T,4] f) { f = com.microsoft.Gelu (a) },
        else_branch = no () => (float[N,T,4] g) { g = com.microsoft.QuickGelu (a) }> y = Identity (e)""",
}
FACTS |= {name: Fact(f"{TOKENS} {body}", "N,H*W,4", header=CONTRIB_HEADER) for name, body in LIKE_AN_INPUT.items()}
FACTS |= {
    f"FusedMatMul, {attributes}": Fact(
        f"y = com.microsoft.FusedMatMul <{attributes}> ({operands})",
        shape,
        inputs="float[N,H,4] a, float[N,H,W] b, float[5,W] c, float[6,H] d",
        header=CONTRIB_HEADER,
    )
    for attributes, operands, shape in (
        ("transA = 1", "a, b", "N,4,W"),
        ("transB = 1", "b, c", "N,H,5"),
        ("transA = 1, transB = 1", "a, d", "N,4,6"),
    )
}
SIZES = ({"N": 2, "H": 9, "W": 8}, {"N": 1, "H": 16, "W": 6}, {"N": 3, "H": 7, "W": 10})


@pytest.mark.parametrize("fact", FACTS.values(), ids=FACTS)
def test_inferred_facts_hold_at_every_size(fact: Fact) -> None:
    model = parsed(fact.text, fact.header)
    graph = lift(ir.from_proto(model))
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


def constant(*numbers: int) -> Operand:
    array = np.asarray(numbers, np.int64)
    return Operand(TensorType(DType.INT64, array.shape), as_elements(array), array)


def image(*dims: int | str) -> Operand:
    return Operand(TensorType(DType.FLOAT32, dims))


def node_of(op_type: str, operands: Sequence[Operand], attributes: Mapping[str, object] | None = None) -> Node:
    return Node(op_type, "", 18, attributes or {}, operands)


@pytest.mark.parametrize(
    ("message", "function", "contradiction"),
    [
        ("index -5 is out of bounds", elements_of, node_of("Gather", [constant(1, 2), constant(-5)])),
        ("an axis to squeeze", elements_of, node_of("Squeeze", [constant(1, 2), constant(0)])),
        ("reshape array of size 3", elements_of, node_of("Reshape", [constant(1, 2, 3), constant(2, -1)])),
        ("axis 1 is out of range", elements_of, node_of("Concat", [constant(1), constant(2)], {"axis": 1})),
        ("could not be broadcast", elements_of, node_of("Add", [constant(1, 2), constant(1, 2, 3)])),
        ("index out of range", elements_of, node_of("Slice", [constant(1, 2), constant(0), constant(1), constant(1)])),
        ("of another total size", elements_of, node_of("Split", [constant(1, 2), constant(1, 2)])),
        ("a filter of another rank", shapes_of, node_of("Conv", [image("n", 3), image(8, 3, 3, 3)])),
        ("stride", shapes_of, node_of("MaxPool", [image("n", 3, "h", 9)], {"kernel_shape": (2, 2), "strides": (0, 1)})),
        (
            "shorter",
            shapes_of,
            node_of("ConvTranspose", [image("n", 3, "h", "w"), image(3, 8, 3, 3)], {"output_padding": (1,)}),
        ),
        ("axis -3 is out of bounds", shapes_of, node_of("Split", [image("n", 3)], {"axis": -3})),
        ("axis 2 is out", shapes_of, node_of("Slice", [image("n", 3), constant(0), constant(1), constant(2)])),
        ("a block without elements", shapes_of, node_of("DepthToSpace", [image("n", 3, "h", "w")], {"blocksize": 0})),
    ],
)
def test_contradictions_are_told_and_what_they_compute_is_unknown(
    message: str, function: Callable[[Node], object], contradiction: Node
) -> None:
    with pytest.raises(ValueError, match=message):
        function(contradiction)
    if function is elements_of:
        assert infer_elements(contradiction) == [None]


def test_faults_of_shape_functions_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(node: Node) -> None:
        raise IndexError(node.op_type)

    monkeypatch.setitem(elements.FUNCTIONS, "Neg", faulty)
    with pytest.raises(IndexError, match="Neg"):
        infer_elements(node_of("Neg", [constant(1)]))


@pytest.mark.parametrize("opset", [18, 24, 25])
def test_an_op_on_the_result_of_an_unknown_operator_has_an_unknown_type(opset: int) -> None:
    """onnx's function for Reshape raises an error at newer opsets; files with blocks of channels have such a Reshape."""
    text = f"""<ir_version: 10, opset_import: ["" : {opset}, "custom" : 1]> g (float[2,3] x) => (float[6] y)
    <int64[1] shape = {{-1}}> {{ a = custom.Unknown(x) b = Reshape(a, shape) y = Relu(b) }}"""
    graph = lift(onnx_io.from_message(parser.parse_model(text)))
    assert [op.op_type for op in graph.ops] == ["Unknown", "Reshape", "Relu"]
    assert graph.outputs[0].dtype is DType.FLOAT32


def lifted_body(text: str) -> Graph:
    return lift(ir.from_proto(parser.parse_model(HEADER + text)))


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
    op = bodied(lifted_body(text))
    assert plain(op.bodies["body"].inputs[2]) == inside
    assert plain(op.outputs[0]) == outside


def plain(value: object) -> str:
    """A type, with one name for all unknown dimensions."""
    shape = value.shape  # type: ignore[attr-defined]
    dims = [] if shape is None else ["?" if "?" in str(dim) else str(dim) for dim in shape]
    return f"{value.dtype}[{'?' if shape is None else ','.join(dims)}]"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "body",
    [
        """g (float[N,8] x, int64 m) => (float[M,8] y) {
        y = Loop (m, , x) <body = b (int64 i, bool c, float[N,8] s) => (bool d, float[N,8] r) {
            d = Identity(c) r = Concat <axis = 0> (s, s) }> }""",
        """g (float[2,8] x, bool c) => (float[?,?] z) <float[2,8] y> { y = If (c)
        <then_branch = t () => (r) { r = Relu(x) },
        else_branch = e () => (r) { r = Concat <axis = 0> (x, x) }> z = Identity(y) }""",
    ],
    ids=["names that a body declares are not believed", "what branches have in common, not what is declared"],
)
def test_a_dimension_that_a_body_changes_is_unknown(body: str) -> None:
    op = bodied(lifted_body(body))
    assert {plain(value) for value in (*op.outputs, *op.bodies.get("body", Graph()).inputs[2:])} == {"float32[?,8]"}


def test_outputs_of_iterations_are_put_together() -> None:
    op = bodied(
        lifted_body("""g (float[1,8] x, int64 m) => (float[?,?] y, float[?,?,?] a, float[?] n) <int64 k = {3}> {
        y, a, n = Loop (k, , x) <body = b (int64 i, bool c, s) => (bool d, r, o, q) {
            d = Identity(c) r = Relu(s) o = Transpose(s) q = ReduceSum <keepdims = 0> (s) }> }""")
    )
    assert types(op.outputs) == ["float32[1,8]", "float32[3,8,1]", "float32[3]"]


def test_the_length_of_a_sequence_that_follows_from_other_shapes() -> None:
    """The first inference finds the length of the sequence; a second one finds nothing new."""
    first = lifted_body("""g (float[2,3,8] x, float[2,8] h) => (float[?,?] y, float[?,?,?] a) {
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
        lifted_body(text)


def test_types_do_not_change_when_a_model_is_lifted_again() -> None:
    for name in control_flow_models.MODELS:
        first = lift(
            emit(lift(ir.from_proto(control_flow_models.load(name))))
        )  # results of bodies that are constants are copied
        second = lift(emit(first))
        assert to_bytes(emit(second)) == to_bytes(emit(first)), name
        for one, other in zip(first.regions(), second.regions(), strict=True):
            assert [plain(value) for value in other.values] == [plain(value) for value in one.values], name
