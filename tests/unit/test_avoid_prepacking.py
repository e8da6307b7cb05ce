"""Constants of products that sessions do not prepack: which ones, and that runs give the same."""

from collections.abc import Mapping

import numpy as np
import onnx
import onnx.parser
import onnx_ir
import pytest

import layoutopt
from layoutopt import inference, onnx_io
from layoutopt.cost_models import load_target
from layoutopt.dialects.onnxruntime.plain_passes import AvoidPrepacking
from layoutopt.dialects.onnxruntime.tables import run_ratio
from layoutopt.errors import ArgumentError
from layoutopt.ir.graph import Graph
from layoutopt.passes.base import Mode, PassContext, Sessions
from layoutopt.verification import verify_models


def model(text: str, constants: Mapping[str, tuple[int, ...]], opset: int = 18) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {text}')
    random = np.random.default_rng(0)
    for name, shape in constants.items():
        array = random.normal(size=shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return proto


def after(proto: onnx.ModelProto, sessions: Sessions = "fast", mode: Mode = "inference") -> Graph:
    """The graph after the pass, which computes the same."""
    graph = inference.lift(onnx_ir.serde.deserialize_model(proto))
    AvoidPrepacking().run(graph, PassContext(load_target("cpu-avx2"), mode, sessions=sessions))
    verdict = verify_models(proto.SerializeToString(), onnx_io.to_bytes(onnx_io.emit(graph)))
    assert verdict.status == "passed"
    return graph


def ranks(graph: Graph) -> dict[str, int | None]:
    return {value.name: value.rank for each in graph.regions() for value in each.values if value.data is not None}


PRODUCT = "(float[{rows},{inner}] x) => (float[{rows},{outer}] y) {{ y = MatMul (x, w) }}"


@pytest.mark.parametrize(
    ("rows", "inner", "outer", "rank"),
    [
        ("1,1", 512, 512, 3),
        ("1,1", 2048, 2048, 2),
        ("1,197", 512, 512, 2),
        ("batch,1", 512, 512, 2),  # the batch may be larger
        ("1", 512, 512, 3),
        ("1", 256, 512, 2),  # two more nodes take longer than what is gained
    ],
)
def test_balanced_sessions_lose_nothing_in_runs(rows: str, inner: int, outer: int, rank: int) -> None:
    proto = model(PRODUCT.format(rows=rows, inner=inner, outer=outer), {"w": (inner, outer)})
    assert ranks(after(proto, "balanced"))["w"] == rank
    if rank == 3:
        assert run_ratio(1, inner, outer) <= 1


@pytest.mark.parametrize("opset", [11, 18])
@pytest.mark.parametrize("bias", ["", ", b", ", row", ", column"])
@pytest.mark.parametrize("transposed", [0, 1])
def test_a_gemm_becomes_a_product_and_a_sum(transposed: int, bias: str, opset: int) -> None:
    shape = (260, 256) if transposed else (256, 260)
    proto = model(
        f"(float[2,256] x) => (float[2,260] y) {{ y = Gemm <transB = {transposed}> (x, w{bias}) }}",
        {"w": shape, "b": (260,), "row": (1, 260), "column": (2, 1)},
        opset,
    )
    graph = after(proto)
    assert [op.kind for op in graph.ops] == ["MatMul", "Squeeze", *(["Add"] if bias else [])]
    assert ranks(graph)["w"] == 3


@pytest.mark.parametrize(
    "body",
    [
        "y = Gemm <alpha = 2.0> (x, w)",
        "t = Transpose <perm = [1, 0]> (x) y = Gemm <transA = 1> (t, w)",
        "y = Gemm (x, w, w)",  # the bias as well
        "a = MatMul (x, w) y = Add (a, w)",
        "a = MatMul (x, w) y = Gemm <transB = 1> (a, w)",
        "y = MatMul (w, w)",
        "a = Identity (w) b = MatMul (x, a) y = MatMul (b, a) z = Neg (w)",
    ],
)
def test_other_readers_keep_the_constant(body: str) -> None:
    proto = model(f"(float[256,256] x) => (float[256,256] y) {{ {body} }}", {"w": (256, 256)})
    assert ranks(after(proto))["w"] == 2


def test_constants_that_products_share_stay_shared() -> None:
    text = """(float[1,3,256] x, float[2,256] z) => (float[1,3,256] y, float[2,256] u)
    { a = MatMul (x, w) y = MatMul (a, same) u = MatMul (z, w) }"""
    proto = model(text, {"w": (256, 256)})
    same = onnx.TensorProto.FromString(proto.graph.initializer[0].SerializeToString())
    same.name = "same"
    proto.graph.initializer.append(same)
    graph = after(proto)
    assert ranks(graph)["w"] == ranks(graph)["same"] == 3
    assert len({value.data for value in graph.values if value.name in ("w", "same")}) == 1


CHAIN = """(float[batch,5,256] x) => (float[batch,5,256] y) {
    a = MatMul (x, w) b = Add (a, bias) c = Relu (b) d = MatMul (c, v) y = Add (d, bias)
}"""


@pytest.mark.parametrize("sessions", ["slow", 1, None])
def test_other_sessions_are_refused(sessions: object) -> None:
    proto = model(CHAIN, {"w": (256, 256), "v": (256, 256), "bias": (256,)})
    with pytest.raises(ArgumentError, match="should be 'balanced' or 'fast'"):
        layoutopt.optimize(proto, "cpu-avx2", sessions=sessions)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="the dialect has no fast sessions"):
        layoutopt.optimize(proto, "gpu-hopper", sessions="fast")
