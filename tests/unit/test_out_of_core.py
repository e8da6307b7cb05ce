"""Models whose weights do not fit into memory are compared segment by segment, with the weights of one in memory."""

import numpy as np
import onnx
import onnx.parser
import onnx_ir
import pytest
from onnx import numpy_helper

import layoutopt
from layoutopt.errors import UnverifiedError, VerificationError
from layoutopt.ir.types import ArrayData
from layoutopt.passes import default_pipeline
from layoutopt.passes.base import Pass, Pipeline
from layoutopt.runtime.session import Session
from layoutopt.verification import parts
from layoutopt.verification.parts import PartedSession, without_weights

BLOCKS, CHANNELS = 5, 16
FILTER = CHANNELS * CHANNELS * 9 * 4  # bytes
MEMORY = 3 * FILTER * parts.MEMORY_PER_PART // 2


def model() -> onnx.ModelProto:
    """Residual blocks in channels-last order, a gate that every block reads, a mask from integers, and a body."""
    shape = f"[1,8,8,{CHANNELS}]"
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 18]> g (float{shape} x, int64[1] length) => (float{shape} y, float[1,1] z) {{}}'
    )
    random = np.random.default_rng(0)
    weights = {"positions": np.arange(CHANNELS), "axes": np.array([1, 2])}
    lines = ["mask = Less (positions, length)", "gate = Sigmoid (x)", "a0 = Transpose <perm = [0,3,1,2]> (x)"]
    for block in range(BLOCKS):
        weights[f"w{block}"] = (random.standard_normal((CHANNELS, CHANNELS, 3, 3)) / 12).astype(np.float32)
        weights[f"b{block}"] = random.standard_normal(CHANNELS).astype(np.float32)
        lines += [f"c{block} = Conv <pads = [1,1,1,1]> (a{block}, w{block}, b{block})"]
        lines += [f"r{block} = Relu (c{block})", f"a{block + 1} = Add (r{block}, a{block})"]
    weights |= {"inner": random.standard_normal((1, CHANNELS, 1, 1)).astype(np.float32), "zero": np.float32(0)}
    lines += [f"last = Identity (a{BLOCKS})", "numbers = Cast <to = 6> (mask)"]
    lines += ["most = ReduceMax <keepdims = 0> (numbers)", "yes = Cast <to = 9> (most)"]
    image = f"float[1,{CHANNELS},8,8]"
    branches = f"then_branch = t () => ({image} i) {{ i = Mul (last, inner) }}"
    branches += f", else_branch = e () => ({image} j) {{ j = Neg (last) }}"
    lines += [f"chosen = If <{branches}> (yes)", "n = Transpose <perm = [0,2,3,1]> (chosen)"]
    lines += ["kept = Where (mask, n, zero)", "y = Mul (kept, gate)"]
    lines += ["s = ReduceMean <keepdims = 0> (kept, axes)", "p = Softmax <axis = 1> (s)", "z = ReduceSum (p, one)"]
    weights["one"] = np.array([1])
    proto.graph.node.extend(onnx.parser.parse_node(line) for line in lines)
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items())
    onnx.checker.check_model(proto, full_check=True)
    return proto


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "available_bytes", lambda: MEMORY)


def optimised(**options: object) -> layoutopt.Result:
    return layoutopt.optimize(model(), "ascend-910b", measure=False, calibrate=False, **options)


@pytest.mark.usefixtures("little_memory")
def test_a_rewritten_model_passes() -> None:
    report = optimised().report
    assert report.changed and report.verification.status == "passed"
    assert report.verification.reason == f"segment by segment, one of {BLOCKS} in memory at a time"
    assert report.verification.outputs_depend_on_inputs


class Damage(Pass):
    """Scales some weights of the last block by 1.01."""

    name = "damage"

    def run(self, graph, context) -> None:
        value = graph.find(f"w{BLOCKS - 1}")
        if value is None:  # a body
            return
        array = value.data.numpy().copy()
        array[3, 5] *= 1.01
        value.data = ArrayData(array)


@pytest.mark.usefixtures("little_memory")
def test_a_fault_in_one_weight_is_found() -> None:
    damaged = Pipeline((Damage(), *default_pipeline("inference").passes))
    with pytest.raises(VerificationError, match="segment by segment c4 differs"):
        optimised(pipeline=damaged)


@pytest.mark.usefixtures("little_memory")
def test_a_model_that_stays_unchanged_runs_in_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    first, loaded = optimised(verify=False).proto, []
    monkeypatch.setattr(parts, "Session", lambda source, **options: loaded.append(source) or Session(source, **options))
    report = layoutopt.optimize(first, "ascend-910b", measure=False, calibrate=False).report
    assert not report.changed and report.verification.status == "passed"
    assert len(loaded) > 1 and all(len(each) < BLOCKS * FILTER for each in loaded)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError("std::bad_alloc"), "there is too little memory for the segment of"),
        (RuntimeError("no kernel"), "the segment of .* cannot be run by itself: no kernel"),
    ],
    ids=["memory", "kernel"],
)
def test_a_segment_that_does_not_run_is_no_crash(
    error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: bytes, **options: object) -> None:
        raise error

    monkeypatch.setattr(parts, "Session", fail)
    with pytest.raises(UnverifiedError, match=reason):
        optimised()


@pytest.mark.parametrize("limit", [1, FILTER, 3 * FILTER, 100 * FILTER])
def test_parts_compute_what_the_model_computes(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "available_bytes", lambda: limit * parts.MEMORY_PER_PART)
    session, whole = PartedSession(*without_weights(onnx_ir.from_proto(model()))), Session(model().SerializeToString())
    known = {"x", "length"}
    for each in session.parts:
        assert known.issuperset(each.inputs)
        known.update(each.outputs)
        assert each.nbytes <= max(limit, FILTER) + FILTER // 2
    feeds = [{"x": np.full((1, 8, 8, CHANNELS), 0.3, np.float32), "length": np.array([n])} for n in (3, 9)]
    for one, other in zip(whole.run_all(None, feeds), session.run_all(None, feeds), strict=True):
        for expected, actual in zip(one, other, strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
