"""What onnxruntime is asked for: constant parts of a graph, and whether the model, the memory or layoutopt is at fault."""

import errno
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import parser

import layoutopt
from layoutopt import onnx_io
from layoutopt.driver import job
from layoutopt.errors import ModelError
from layoutopt.inference import lift
from layoutopt.ir.graph import Graph
from layoutopt.passes.base import Pass, Pipeline
from layoutopt.runtime.errors import RUNTIME_ERRORS, is_about_the_model
from layoutopt.runtime.evaluate import evaluate, is_foldable
from layoutopt.runtime.kernel_queries import blocked_channels

BODY = """g (float[2,3] x, bool c) => (float[2,3] y) <float[3] w = {1, 2, 3}, string[2] t = {"a", "b"}> {
    k = Constant <value = float[1] {4}> ()
    a = Mul(w, k)
    bf = Cast <to = 16> (a)
    i4 = Cast <to = 22> (a)
    f8 = Cast <to = 17> (a)
    first, rest = Split <num_outputs = 2> (i8)
    i8 = Cast <to = 3> (a)
    strings = Identity(t)
    random = RandomNormal <shape = [2]> ()
    many = SequenceConstruct(a, a)
    cond = If (c) <
        then_branch = p () => (float[3] u) { u = Relu(w) },
        else_branch = q () => (float[3] v) { v = Abs(w) }>
    own = custom.Own(w)
    dependent = Shape(x)
    y = Add(x, a)
}"""


@pytest.fixture(scope="module")
def graph() -> Graph:
    text = '<ir_version: 10, opset_import: ["" : 21, "custom" : 1]>\n' + BODY
    return lift(ir.from_proto(parser.parse_model(text)))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("w", np.array([1, 2, 3], np.float32)),
        ("k", np.array([4], np.float32)),
        ("a", np.array([4, 8, 12], np.float32)),
        ("bf", np.array([4, 8, 12], ml_dtypes.bfloat16)),
        ("f8", np.array([4, 8, 12], ml_dtypes.float8_e4m3fn)),
        ("first", np.array([4, 8], np.int8)),
        ("rest", np.array([12], np.int8)),
        ("strings", np.array(["a", "b"], object)),
    ],
)
def test_values(graph: Graph, name: str, expected: np.ndarray) -> None:
    (found,) = evaluate(graph, [graph.value(name)])
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("name", ["random", "many", "cond", "own", "dependent", "y", "x"])
def test_what_is_not_constant(graph: Graph, name: str) -> None:
    with pytest.raises(ModelError, match="constants alone"):
        evaluate(graph, [graph.value(name)])


def test_what_can_be_folded(graph: Graph) -> None:
    folded = {op.outputs[0].name for op in graph.ops if op.outputs[0] is not None and is_foldable(op)}
    assert folded == {"a", "bf", "i4", "f8", "i8", "first", "strings", "dependent", "y"}


def test_what_the_runtime_can_is_computed_beside_what_it_cannot() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g () => (bfloat16[1] y, float[1] z) <bfloat16[1] w = {1}, float[1] v = {2}>"""
    other = lift(ir.from_proto(parser.parse_model(text + " { y = Add(w, w) z = Mul(v, v) }")))
    missing, found = evaluate(other, other.outputs)
    assert missing is None
    assert found is not None and found.tolist() == [4]


Fail = next(each for each in RUNTIME_ERRORS if each.__name__ == "Fail")

VALID = "y = Relu (x)"
INVALID = "s = Constant <value_ints = [2, 5, 3, 3]> () w = ConstantOfShape (s) y = Conv (x, w)"  # of 8 channels
UNREGISTERED = "y = custom.Foo (x)"
BEHIND_INDICES = "k = Constant <value_ints = [100]> () i = Cast <to = 7> (x) g = Gather (k, i) y = Cast <to = 1> (g)"


def model(body: str) -> onnx.ModelProto:
    header = '<ir_version: 8, opset_import: ["" : 17, "custom" : 1]>'
    proto = onnx.parser.parse_model(f"{header} net (float[1,8,4,4] x) => (float[?] y) {{ {body} }}")
    proto.graph.output[0].type.CopyFrom(onnx.helper.make_tensor_type_proto(1, [None] * 4))
    return proto


class Stumble(Pass):
    """A pass with a bug."""

    name = "stumble"

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def run(self, graph: Any, context: Any) -> None:
        raise self.error


def stumble(body: str, error: BaseException) -> None:
    layoutopt.optimize(model(body), "gpu-hopper", pipeline=Pipeline((Stumble(error),)))


MEMORY = [
    MemoryError(),
    np._core._exceptions._ArrayMemoryError((1 << 40,), np.dtype(np.float32)),  # type: ignore[attr-defined]
    Fail("[ONNXRuntimeError] : 1 : FAIL : bfc_arena.cc:360 Failed to allocate memory for requested buffer of size 8"),
    RuntimeError("std::bad_alloc"),
]


@pytest.mark.parametrize("body", [VALID, INVALID])
@pytest.mark.parametrize("error", MEMORY, ids=lambda error: type(error).__name__)
def test_out_of_memory_is_out_of_memory(body: str, error: Exception) -> None:
    with pytest.raises(MemoryError):
        stumble(body, error)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        *((body, OSError(code, "cannot")) for body in (VALID, INVALID) for code in (errno.ENOMEM, errno.EIO)),
        *((body, ZeroDivisionError("division by zero")) for body in (VALID, UNREGISTERED, BEHIND_INDICES)),
    ],
)
def test_the_system_and_a_bug_are_not_the_model(body: str, error: Exception) -> None:
    with pytest.raises(MemoryError if getattr(error, "errno", None) == errno.ENOMEM else type(error)):
        stumble(body, error)


def test_an_invalid_model_is_blamed() -> None:
    with pytest.raises(layoutopt.ModelError, match=r"cannot be run: .* Conv node") as caught:
        stumble(INVALID, ZeroDivisionError("division by zero"))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(layoutopt.UnverifiedError, match="DepthToSpace"):
        layoutopt.optimize(model("y = DepthToSpace <blocksize = 5> (x)"), "gpu-hopper")


def test_errors_of_ours_are_never_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(layoutopt.TargetError):
        stumble(INVALID, layoutopt.TargetError("no"))
    monkeypatch.setattr(job, "checked_pins", lambda pins: {}["missing"])
    with pytest.raises(KeyError):
        layoutopt.optimize(model(INVALID))


@pytest.mark.parametrize(
    "text",
    [
        "Fatal error: custom:Foo(-1) is not a registered function/op",
        "NOT_IMPLEMENTED : Could not find an implementation for Conv(11) node",
        "indices element out of data bounds, idx=7 must be within the inclusive range [-2,1]",
        "Unable to allocate 7.45 GiB for an array",
    ],
)
def test_refusals_that_are_not_about_the_model(text: str) -> None:
    assert not is_about_the_model(text)


@pytest.mark.parametrize("name", ["runtime.evaluate", "inference.lift", "runtime.kernel_queries", "runtime.baking"])
def test_no_session_hides_a_bug_or_too_little_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = import_module(f"layoutopt.{name}")
    body = "c = Constant <value_floats = [1.0, 2.0]> () d = Add (c, c) e = custom.Foo (x) y = Mul (e, d)"
    for error in (MemoryError(), AttributeError("a bug")):

        def broken(*args: object, raised: Exception = error, **options: object) -> None:
            raise raised

        if name == "inference.lift":
            monkeypatch.setattr(module, "Session", broken)
        else:
            monkeypatch.setattr(onnxruntime, "InferenceSession", broken)
        blocked_channels.cache_clear()
        with pytest.raises(type(error)):
            if name == "runtime.kernel_queries":
                blocked_channels()
            elif name == "runtime.baking":
                module.bake(onnx_io.from_message(model(VALID)), packs=False)
            else:
                layoutopt.optimize(model(body), "gpu-hopper", verify=False)
        monkeypatch.undo()
    blocked_channels.cache_clear()
