"""How dialects write ops: functions and their calls, and what the dialect `standard` writes."""

import numpy as np
import onnx
import pytest
from parsed_models import parsed

import layoutopt
from layoutopt.dialects import DIALECTS
from layoutopt.formats import Format, pack
from layoutopt.ir.graph import Graph, insert_cast
from layoutopt.ir.types import ArrayData, DType, Op, Padding, Signature, Storage, TensorType
from layoutopt.onnx_io import check, emit, to_bytes
from layoutopt.runtime.session import Session
from layoutopt.testing.rules import lower


def ran(graph: Graph, dialect: str, x: np.ndarray) -> np.ndarray:
    """The output of a planned graph, as the dialect writes it."""
    lowered = emit(lower(graph, dialect))
    check(lowered)
    (got,) = Session(to_bytes(lowered)).run(None, {"x": x})
    return np.asarray(got)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_cast_to_the_same_format_sets_the_padding_to_zero(dialect: str) -> None:
    format = Format.parse("NCHW8c")
    stored, finite = Storage(format), Storage(format, Padding.FINITE)
    graph = Graph("sigmoid", {"": 17})
    type = TensorType(DType.FLOAT32, (1, 5, 2, 2))
    x, y = graph.new_value("x", type, storage=stored), graph.new_value("y", type, storage=finite)
    op = graph.add_op(Op("Sigmoid", (x,), (y,), version=17))
    op.signature = Signature((stored,), (finite,))
    graph.inputs, graph.outputs, graph.stage = [x], [insert_cast(graph, y, stored)], "cast"
    got = ran(graph, dialect, pack(np.zeros((1, 5, 2, 2), np.float32), format))
    assert np.array_equal(got, pack(np.full((1, 5, 2, 2), 0.5, np.float32), format))


@pytest.mark.parametrize("opset", [19, 21])
@pytest.mark.parametrize("dtype", [DType.FLOAT8E4M3FN, DType.FLOAT8E5M2, DType.FLOAT8E4M3FNUZ, DType.FLOAT8E5M2FNUZ])
def test_moving_float8_leaves_every_number_as_it_is(dtype: DType, opset: int) -> None:
    shape, format = (43, 6), Format.parse("MN4n")
    graph = Graph("moved", {"": opset})
    graph.inputs = [graph.new_value("x", TensorType(dtype, shape))]
    blocked = insert_cast(graph, graph.inputs[0], Storage(format))
    graph.outputs = [insert_cast(graph, blocked, Storage(Format.canonical(2)))]
    graph.stage = "cast"
    x = np.resize(np.arange(256, dtype=np.uint8), shape).view(dtype.numpy)
    got = ran(graph, "ops", x)
    assert np.array_equal(got.astype(np.float32), x.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_padding_of_some_axes_is_one_of_all_axes(dialect: str) -> None:
    """A Pad of some axes is written as a Pad of all axes; onnxruntime 1.31 moves the former wrongly across Transposes."""
    shape, padded = (2, 4, 3, 5), (2, 4, 4, 5)
    graph = Graph("padded", {"": 18})
    x = graph.new_value("x", TensorType(DType.FLOAT32, shape), storage=Storage(Format.parse("NHWC")))
    graph.inputs = [x]
    read = insert_cast(graph, x, Storage(Format.canonical(4)))
    pads, axes = (
        graph.new_value(name, TensorType(DType.INT64, (2 // size,)), data=ArrayData(np.asarray(numbers, np.int64)))
        for name, size, numbers in (("pads", 1, [0, 1]), ("axes", 2, [2]))
    )
    y = graph.new_value("y", TensorType(DType.FLOAT32, padded), storage=Storage(Format.canonical(4)))
    graph.add_op(Op("Pad", (read, pads, None, axes), (y,), version=18))
    graph.outputs, graph.stage = [insert_cast(graph, y, x.storage)], "cast"
    image = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    got = ran(graph, dialect, pack(image, Format.parse("NHWC")))
    assert np.array_equal(got, pack(np.pad(image, ((0, 0), (0, 0), (0, 1), (0, 0))), Format.parse("NHWC")))


GATHERS = 8


def model_of(text: str, **constants: np.ndarray) -> onnx.ModelProto:
    return parsed(f'<ir_version: 9, opset_import: ["" : 18]>\n{text}', **constants)


@pytest.mark.parametrize("axis", [0, 2])
def test_a_transpose_stays_in_front_of_gathers_of_rows(axis: int) -> None:
    """Rows are adjacent behind it; without it, every Gather reads single elements."""
    steps = "\n".join(f"g{step} = Gather <axis = {axis}> (t, i{step})" for step in range(GATHERS))
    names = ", ".join(f"g{step}" for step in range(GATHERS))
    perm = [2, 0, 1] if axis == 0 else [1, 2, 0]
    text = f"g (float[3,512,40] x) => (y) {{ t = Transpose <perm = {perm}> (x)\n{steps}\ny = Concat <axis = 0> ({names}) }}"
    indices = {f"i{step}": np.array(step * 5 % 3) for step in range(GATHERS)}
    result = layoutopt.optimize(model_of(text, **indices), "gpu-hopper", runtime="any")
    # Gathers of columns of t are Gathers of rows of x.
    kinds = [node.op_type for node in result.proto.graph.node]
    assert kinds.count("Transpose") == (1 if axis == 0 else 0)
