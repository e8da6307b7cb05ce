"""Products of float16 behind a Transpose that moves the batch do not crash onnxruntime at its default level."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from layoutopt.formats import Format, pack
from layoutopt.ir.graph import Graph, insert_cast
from layoutopt.ir.types import ArrayData, DType, Op, Signature, Slot, Storage, TensorType
from layoutopt.onnx_io import check, emit, to_bytes
from layoutopt.ops import canonical_signature, rule_of
from layoutopt.testing.rules import lower

SHAPE, WEIGHT = (2, 3, 4), (4, 5)
RUN = """
import sys, numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
numpy.save(sys.argv[3], session.run(None, {"x": numpy.load(sys.argv[2])})[0])
"""


def product(format: Format, opset: int, dtype: DType = DType.FLOAT16, *, cast: bool) -> Graph:
    """A product with a matrix that reads x in its format, or behind a CastData."""
    graph = Graph("product", {"": opset})
    x = graph.new_value("x", TensorType(dtype, SHAPE), storage=Storage(format))
    weight = graph.new_value("w", TensorType(dtype, WEIGHT), data=ArrayData(numbers(WEIGHT, dtype)))
    y = graph.new_value("y", TensorType(dtype, (*SHAPE[:-1], WEIGHT[-1])))
    weight.storage, y.storage = Storage(Format.canonical(2)), Storage(Format.canonical(3))
    graph.inputs = [x]
    read = insert_cast(graph, x, y.storage) if cast else x
    op = graph.add_op(Op("MatMul", (read, weight), (y,), version=opset))
    rule = rule_of(op)
    assert rule is not None
    known = {Slot("in", 0): format, Slot("in", 1): weight.storage.format, Slot("out", 0): y.storage.format}
    op.signature = canonical_signature(op)
    if not cast:
        signature = rule.signature(op, known)
        assert isinstance(signature, Signature)
        op.signature = signature
    graph.outputs, graph.stage = [y], "cast"
    return graph


def numbers(shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    return (np.arange(np.prod(shape)).reshape(shape) / 32).astype(dtype.numpy)


@pytest.mark.parametrize("cast", [False, True], ids=["read as stored", "behind a conversion"])
@pytest.mark.parametrize("opset", [9, 17])
@pytest.mark.parametrize("dialect", ["ops", "functions", "ascend"])
def test_onnxruntime_survives_it(dialect: str, opset: int, cast: bool, tmp_path: Path) -> None:
    format = Format.parse("CNW")
    lowered = emit(lower(product(format, opset, cast=cast), dialect))
    check(lowered)
    files = [tmp_path / name for name in ("m.onnx", "x.npy", "y.npy")]
    files[0].write_bytes(to_bytes(lowered))
    x = numbers(SHAPE, DType.FLOAT16)
    np.save(files[1], pack(x, format))
    subprocess.run([sys.executable, "-c", RUN, *files], check=True)  # a process of its own, which it would end
    want = x.astype(np.float64) @ numbers(WEIGHT, DType.FLOAT16)
    np.testing.assert_allclose(np.load(files[2]), want, rtol=2e-3)


def test_other_element_types_are_left_alone() -> None:
    graph = product(Format.parse("CNW"), 17, DType.FLOAT32, cast=True)
    model = onnx.load_from_string(to_bytes(emit(lower(graph, "ops"))))
    assert [node.op_type for node in model.graph.node] == ["Transpose", "MatMul"]
