"""Chains of element-wise ops on 8-bit integers as tables."""

from typing import Any

import numpy as np
import onnx
import pytest
from integer_models import HEADER, kinds, rewritten, run
from onnx import numpy_helper

from layoutopt.dialects.onnxruntime.integer.costs import kernel_costs
from layoutopt.dialects.onnxruntime.integer.tabulate import ELEMENTWISE, Tabulate
from layoutopt.ir.types import Array

GELU = """
    a = DequantizeLinear (q, xs, xz)
    b = Div (a, root)
    c = Erf (b)
    e = QuantizeLinear (c, es, ez)
    f = com.microsoft.QLinearAdd (e, es, ez, one, es, ez, fs, fz)
    g = com.microsoft.QLinearMul (q, xs, xz, f, fs, fz, gs, xz)
    p = com.microsoft.QLinearMul (g, gs, xz, one, es, ez, ps, xz)
"""
SILU = """
    a = com.microsoft.QLinearSigmoid (q, xs, xz, es, ez)
    p = com.microsoft.QLinearMul (q, xs, xz, a, es, ez, ps, xz)
"""


def model_of(ops: str, dtype: str = "uint8", outputs: str = "", shape: str = "2,32,32,16") -> onnx.ModelProto:
    """A model of ops from q to p, with scalars of several shapes."""
    zero = 0 if dtype == "int8" else 128
    model = onnx.parser.parse_model(
        f"{HEADER}agraph ({dtype}[{shape}] q, {dtype}[{shape}] r) => ({dtype}[{shape}] p{outputs}) {{ {ops} }}"
    )
    numbers = {"xs": 0.031, "root": 1.4142135, "es": 2 / 255, "fs": 2 / 255, "gs": 0.041, "ps": 0.021}
    constants: dict[str, Array] = {name: np.array(number, np.float32) for name, number in numbers.items()}
    constants |= {name: np.array(zero + shift, dtype) for name, shift in (("xz", -9), ("ez", 0), ("fz", -128))}
    constants |= {"one": np.full((1, 1, 1), zero + 127, dtype), "row": np.arange(16).astype(dtype)}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return model


def check(model: onnx.ModelProto, result: bytes) -> None:
    """The two models return the same integers for every integer."""
    (given, *_) = model.graph.input
    dtype = onnx.helper.tensor_dtype_to_np_dtype(given.type.tensor_type.elem_type)
    shape = [dim.dim_value for dim in given.type.tensor_type.shape.dim]
    feed: dict[str, Any] = {name: np.arange(np.prod(shape)).astype(dtype).reshape(shape) for name in ("q", "r")}
    for optimised in (False, True):
        expected = run(model.SerializeToString(), feed, is_optimised=optimised)
        for one, other in zip(expected, run(result, feed, is_optimised=optimised), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_a_chain_is_one_look_up(dtype: str) -> None:
    model = model_of(GELU, dtype)
    graph, result = rewritten(model, Tabulate())
    assert kinds(graph) == ["Reshape", "Cast", "GatherElements", "Reshape"]
    check(model, result)


def test_a_value_that_something_else_reads_stays() -> None:
    """If another op reads `e`, or `f` is an output, that value is looked up, and the ops behind it stay."""
    model = model_of(
        GELU + "s = com.microsoft.QLinearAdd (e, es, ez, r, xs, xz, ps, xz)", outputs=", uint8[2,32,32,16] s"
    )
    graph, result = rewritten(model, Tabulate())
    assert kinds(graph).count("GatherElements") == 1
    assert "Erf" not in kinds(graph)
    check(model, result)
    model = model_of(GELU, outputs=", uint8[2,32,32,16] f")
    graph, result = rewritten(model, Tabulate())
    assert kinds(graph).count("GatherElements") == 1
    check(model, result)


@pytest.mark.parametrize(
    ("ops", "shape"),
    [
        (SILU, "2,32,32,16"),
        (GELU, "N,32,32,16"),
        (GELU.replace("(g, gs, xz, one", "(g, gs, xz, row").replace("Erf", "Neg"), "2,32,32,16"),
        (GELU.replace("(q, xs, xz, f", "(r, xs, xz, f").replace("Erf", "Neg"), "2,32,32,16"),
    ],
    ids=["cheap", "symbolic", "per channel", "two tensors"],
)
def test_ops_that_stay(ops: str, shape: str) -> None:
    graph, _ = rewritten(model_of(ops, shape=shape), Tabulate())
    assert "GatherElements" not in kinds(graph)


def test_the_costs_have_every_op_of_a_chain() -> None:
    needed = {kind.split("::")[-1] for kind in ELEMENTWISE} | {"Reshape", "Cast", "GatherElements"}
    assert needed <= kernel_costs().keys()
