"""Symbolic inference on whole graphs: facts that do not hold are not inferred, and nothing is inferred twice."""

import re

import numpy as np
import onnx
import onnx.parser
import onnx_ir
import pytest
from symbolic_models import HALF, HEADER, NUMBERS, filter_of, ints, lifted

from layoutopt import inference, onnx_io
from layoutopt.extend import Node, type_function
from layoutopt.formats import as_shape, is_unknown
from layoutopt.inference import op_inference
from layoutopt.ir.sizes import Sizes
from layoutopt.ir.types import ArrayData, DType, TensorType


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


def test_a_type_function_of_an_extension() -> None:
    @type_function("test.types::Halve")
    def halve(node: Node) -> list[TensorType]:
        dims = node.shape(0)
        assert dims is not None and dims[0] is not None
        return [TensorType(DType.FLOAT16, ((dims[0] // node.attributes["by"]).dim,))]

    header = '<ir_version: 8, opset_import: ["" : 18, "test.types" : 1]>'
    _, graph = lifted("net (float[N] x) => (y) { h = test.types.Halve <by = 2> (x) y = Relu (h) }", header)
    assert str(graph.value("y").type) == "float16[N//2]"
