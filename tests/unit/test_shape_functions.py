"""Shape functions: the shapes and elements that they infer are right at every size."""

import re
from dataclasses import dataclass

import pytest
from symbolic_models import HALF, HEADER, IMAGE, NUMBERS, filter_of, ints, lifted, wrong_facts

from layoutopt.ops.shape_functions import elements, shapes


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
    "Reshape of an old opset to any shape of rank 3": Fact(
        "y = Reshape (x, t)",
        "y",
        "?1,?2,?3",
        inputs="float[N,4,H,W] x, int64[3] t",
        header='<ir_version: 8, opset_import: ["" : 9]>',
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
