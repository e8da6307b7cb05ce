"""Shape functions on operands that contradict each other: the results are unknown; other exceptions are not hidden."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest

from layoutopt import inference, onnx_io
from layoutopt.inference.op_inference import infer_elements
from layoutopt.ir.types import DType, TensorType
from layoutopt.ops.shape_functions import ContradictionError, Node, Operand, as_elements, elements_of, shapes_of
from layoutopt.ops.shape_functions import elements as element_functions


def constant(*numbers: int) -> Operand:
    array = np.asarray(numbers, np.int64)
    return Operand(TensorType(DType.INT64, array.shape), as_elements(array), array)


def image(*dims: int | str) -> Operand:
    return Operand(TensorType(DType.FLOAT32, dims))


def node(op_type: str, operands: Sequence[Operand], attributes: Mapping[str, object] | None = None) -> Node:
    return Node(op_type, "", 18, attributes or {}, operands)


@pytest.mark.parametrize(
    "contradiction",
    [
        node("Gather", [constant(1, 2), constant(-5)]),
        node("Squeeze", [constant(1, 2), constant(0)]),
        node("Reshape", [constant(1, 2, 3), constant(2, -1)]),
        node("Concat", [constant(1), constant(2)], {"axis": 1}),
        node("Add", [constant(1, 2), constant(1, 2, 3)]),
        node("Slice", [constant(1, 2), constant(0), constant(1), constant(1)]),
        node("Split", [constant(1, 2), constant(1, 2)]),
    ],
    ids=lambda each: each.op_type,
)
def test_elements(contradiction: Node) -> None:
    with pytest.raises(ContradictionError):
        elements_of(contradiction)
    assert infer_elements(contradiction) == [None]


@pytest.mark.parametrize(
    "contradiction",
    [
        node("Conv", [image("n", 3), image(8, 3, 3, 3)]),
        node("MaxPool", [image("n", 3, "h", "w")], {"kernel_shape": (2, 2), "strides": (0, 1)}),
        node("ConvTranspose", [image("n", 3, "h", "w"), image(3, 8, 3, 3)], {"output_padding": (1,)}),
        node("Compress", [image("n", 3)], {"axis": 2}),
        node("Split", [image("n", 3)], {"axis": -3}),
        node("Slice", [image("n", 3), constant(0), constant(1), constant(2)]),
        node("DepthToSpace", [image("n", 3, "h", "w")], {"blocksize": 0}),
    ],
    ids=lambda each: each.op_type,
)
def test_shapes(contradiction: Node) -> None:
    with pytest.raises(ContradictionError):
        shapes_of(contradiction)


def test_faults_of_shape_functions_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(node: Node) -> None:
        raise IndexError(node.op_type)

    monkeypatch.setitem(element_functions.FUNCTIONS, "Neg", faulty)
    with pytest.raises(IndexError, match="Neg"):
        infer_elements(node("Neg", [constant(1)]))


@pytest.mark.parametrize("opset", [18, 24, 25])
def test_an_op_on_the_result_of_an_unknown_operator_has_an_unknown_type(opset: int) -> None:
    """onnx's function for Reshape raises an error at newer opsets; files with blocks of channels have such a Reshape."""
    text = f"""<ir_version: 10, opset_import: ["" : {opset}, "custom" : 1]> g (float[2,3] x) => (float[6] y)
    <int64[1] shape = {{-1}}> {{ a = custom.Unknown(x) b = Reshape(a, shape) y = Relu(b) }}"""
    graph = inference.lift(onnx_io.from_message(onnx.parser.parse_model(text)))
    assert [op.op_type for op in graph.ops] == ["Unknown", "Reshape", "Relu"]
    assert graph.outputs[0].dtype is DType.FLOAT32
