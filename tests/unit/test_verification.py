"""Verification: permitted differences, segments of quantised models and of models beyond the memory, 16-bit types."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import onnx_ir
import pytest
from onnx import numpy_helper
from parsed_models import parsed, text_model
from tiers import covering

import layoutopt
from layoutopt import onnx_io
from layoutopt.dialects.onnxruntime.winograd import MACHINE_RATES, MachineRates, Tiles, WinogradRewriter
from layoutopt.errors import UnverifiedError, VerificationError
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, ArrayData, DType, Value
from layoutopt.passes import default_pipeline
from layoutopt.passes.base import Pass, Pipeline
from layoutopt.report.facts import warnings_of
from layoutopt.runtime.session import Session
from layoutopt.verification import ObservedValue, Verification, gate, parts, verify_models
from layoutopt.verification.comparison import PairOfModels
from layoutopt.verification.cuts import Cuts, relative_margin
from layoutopt.verification.difference import Difference, difference
from layoutopt.verification.edits import tensors_between, upcast_to_float32
from layoutopt.verification.gate import verify_files
from layoutopt.verification.parts import PartedSession
from layoutopt.verification.perturbation import COHERENT, perturb_sums
from layoutopt.verification.runnable import Runnable
from layoutopt.verification.runs import Request
from layoutopt.verification.verdict import SPREAD_FACTOR, ULPS, Comparison

HEAD = '<ir_version: 9, opset_import: ["" : 18]> net'


def model(body: str, w: float = 1.0, shape: tuple[int, ...] = (1, 8, 4, 4), out: str = "y") -> onnx.ModelProto:
    """x -> body -> y, with the constant w: 64 numbers of which the first is scaled."""
    dims = ",".join(map(str, shape))
    weights = np.random.default_rng(7).normal(size=(8, 8, 1, 1)).astype(np.float32)
    weights[0] *= w
    return parsed(f"{HEAD} (float[{dims}] x) => (float[{dims}] {out}) {{ {body} }}", w=weights)


CONV = "y = Conv(x, w)"


def passes(want: object, got: object, spread: float = 0.0) -> bool:
    """Whether an output with a given rounding spread passes."""
    return Comparison.against_spread("y", want, difference(want, got), Difference(spread, spread)).passed


def test_one_percent_in_some_weights_fails() -> None:
    result = verify_models(model(CONV).SerializeToString(), model(CONV, w=1.01).SerializeToString())
    assert result.status == "failed"
    assert "y differs by" in result.reason
    assert result.worst is not None and 1e-3 < result.worst.error < 2e-2


def test_an_output_that_does_not_depend_on_the_input_is_told() -> None:
    constant = model("z = Sub(x, x) y = Add(z, z)")
    result = verify_models(constant.SerializeToString(), constant.SerializeToString())
    assert result.status == "passed"
    assert not result.depends_on_inputs


def test_infinities_and_nans_keep_their_places() -> None:
    nan, inf = float("nan"), float("inf")
    want = np.asarray([1.0, nan, inf, -inf], np.float32)
    assert passes(want, want.copy())
    for other in ([1.0, 2.0, inf, -inf], [nan, nan, inf, -inf], [1.0, nan, -inf, -inf], [1.0, nan, inf, 5.0]):
        assert not passes(want, np.asarray(other, np.float32), spread=1.0)
    assert passes(want, np.asarray([1.00001, nan, inf, -inf], np.float32), spread=1e-5)


@pytest.mark.parametrize("spread", [0.0, 1e-5, 1e-3])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_an_output_may_differ_by_a_multiple_of_the_spread(dtype: str, spread: float) -> None:
    """Or by some units in the last place, if rounding does not move it at all."""
    want = np.linspace(0.5, 1.0, 64).astype(dtype)
    unit = float(np.finfo(dtype).eps)
    limit = max(SPREAD_FACTOR * spread, ULPS * unit)
    for factor, passed in ((0.7, True), (1.5, False)):
        off = want.astype(np.float64)
        off[-1] += max(factor * limit, limit + 2 * unit if factor > 1 else 0)
        assert passes(want, off.astype(dtype), spread) == passed


def test_an_error_everywhere_counts_more_than_one_in_one_place() -> None:
    """An error in all elements has a lower limit, that of the root mean square, than an error in one element."""
    want = np.ones(100, np.float32)
    error = np.zeros(100, np.float32)
    error[0] = 2.5e-3
    limits = Difference(1e-3, 1e-4)
    for off, passed in ((error, True), (np.full(100, 2.5e-3, np.float32), False)):
        assert Comparison.against_spread("y", want, difference(want, want + off), limits).passed == passed


def test_integers_and_booleans_are_equal_or_not() -> None:
    for dtype in ("int64", "int32", "bool", "uint16"):
        want = np.asarray([1, 0, 1], dtype)
        assert passes(want, want.copy())
        assert not passes(want, np.asarray([1, 1, 1], dtype))
    steps = np.asarray([100, -100], np.int8)
    assert passes(steps, steps + np.int8(1))
    assert not passes(steps, steps + np.int8(5))
    words = np.asarray(["a", "b"], dtype=object)
    assert passes(words, words.copy())
    assert not passes(words, words[::-1])


def test_shapes_and_types_have_to_agree() -> None:
    want = np.ones((2, 3), np.float32)
    assert not passes(want, np.ones((3, 2), np.float32))
    assert not passes(want, np.ones((2, 3), np.float64))
    assert not passes(want, [1.0])
    assert not passes([1.0], want)
    empty = np.ones((0, 3), np.float32)
    assert passes(empty, empty)


def test_sequences_and_maps_are_judged_by_their_worst_element() -> None:
    ones = np.ones(3, np.float32)
    want = [ones, {"a": 0.5, "b": 0.25}, {"n": 3}]
    near = [ones * np.float32(1 + 1e-7), {"a": 0.5000001, "b": 0.25}, {"n": 3}]
    assert passes(want, near)
    assert not passes(want, [ones * np.float32(1.01), *near[1:]])
    assert not passes(want, [near[0], {"a": 0.6, "b": 0.25}, near[2]])
    assert not passes(want, [*near[:2], {"n": 4}])
    assert not passes(want, [near[0], {"a": 0.5, "c": 0.25}, near[2]])
    assert not passes(want, near[:2])
    assert passes([], [])


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float8e4m3fn", "float8e5m2", "int4", "uint4", "float16", "double", "int8"]
)
def test_every_element_type_goes_in_and_out(dtype: str) -> None:
    def transposed(*body: str) -> bytes:
        head = f'<ir_version: 10, opset_import: ["" : 21]> g ({dtype}[3,5] x) => ({dtype}[5,3] y)'
        return onnx.parser.parse_model(f"{head} {{ {' '.join(body)} }}").SerializeToString()

    plain = transposed("y = Transpose <perm = [1, 0]> (x)")
    assert verify_models(plain, plain).status == "passed"
    other = transposed("t = Transpose <perm = [1, 0]> (x) f = Cast <to = 1> (t) n = Neg(f) y = CastLike(n, t)")
    assert verify_models(plain, other).reason.startswith("y differs")


def test_models_with_different_inputs_are_told_apart(tmp_path: Path) -> None:
    for name in "xz":
        text = f"{HEAD} (float[2] {name}) => (float[2] y) {{ y = Relu ({name}) }}"
        onnx.save(onnx.parser.parse_model(text), tmp_path / f"{name}.onnx")
    verdict = verify_files(tmp_path / "x.onnx", tmp_path / "z.onnx")
    assert verdict.status == "failed"
    assert (
        verdict.reason
        == "the models take different inputs: only the first has x (float32), only the second z (float32)"
    )


def test_a_run_that_takes_too_long_ends() -> None:
    body = "".join(f"a{n + 1} = MatMul (a{n}, a0) " for n in range(60))
    text = f"{HEAD} (float[1500,1500] a0) => (float[1500,1500] a60) {{ {body} }}"
    session = Session(onnx.parser.parse_model(text).SerializeToString(), threads=1)
    with pytest.raises(TimeoutError, match="did not finish within 0 s of processor time"):
        session.run(None, {"a0": np.zeros((1500, 1500), np.float32)}, 0.05)


DRAWING = """<ir_version: 10, opset_import: ["" : 18]>
g (float[1,16,24,24] x) => (float[1,32,24,24] y) <float[32,16,3,3] filter>
{
    a = Transpose<perm=[0,2,3,1]>(x)
    b = Relu(a)
    c = Transpose<perm=[0,3,1,2]>(b)
    noise = RandomNormalLike(c)
    d = Add(c, noise)
    e = Conv<pads=[1,1,1,1]>(d, filter)
    y = Tanh(e)
}"""


@pytest.mark.parametrize(("target", "runtime"), [("cpu", None), ("gpu-hopper", "compiler"), ("gpu-hopper", "any")])
def test_a_model_that_draws_random_numbers_is_verified(target: str, runtime: str | None) -> None:
    result = layoutopt.optimize(text_model(DRAWING), target, runtime=runtime)
    assert result.report.changed and result.report.verification.status == "passed"
    (noise,) = [node for node in result.proto.graph.node if node.op_type == "RandomNormalLike"]
    assert "seed" not in {each.name for each in noise.attribute}, "the seed is for the comparison only"


def test_a_fault_behind_random_numbers_is_detected(tmp_path: Path) -> None:
    original, changed = tmp_path / "original.onnx", tmp_path / "changed.onnx"
    onnx.save(text_model(DRAWING), original)
    onnx.save(text_model(DRAWING), changed)
    assert verify_files(original, changed).status == "passed"
    faulty = text_model(DRAWING)
    weights = numpy_helper.to_array(faulty.graph.initializer[0]).copy()
    weights[[3, 4]] = weights[[4, 3]]
    faulty.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "filter"))
    onnx.save(faulty, changed)
    assert verify_files(original, changed).status == "failed"


FOUR = Format.canonical(4)
DEPTH, CHANNELS, SIDE, STEP = 5, 16, 24, 0.03
BETWEEN = [f"q{number}" for number in range(DEPTH + 1)]


def integer_chain(
    *,
    gain: float = 1.0,
    swapped: tuple[int, int] = (0, 0),
    drift: float = 0.0,
    touched: float = 0.0,
    scale: float = 1.0,
    end: str = "Identity",
) -> onnx_ir.Model:
    """Convolutions of integers behind a float product, with a fault in the third one.

    Two output channels are swapped, one is off by `drift` steps, one element by `touched` steps, or a weight has a factor.
    """
    generator = np.random.default_rng(0)
    shape = f"[1,{CHANNELS},{SIDE},{SIDE}]"
    tensors = {"s": np.float32(STEP), "ws": np.float32(0.004), "gain": np.float32(1.3 * gain)}
    off = np.zeros((1, CHANNELS, SIDE, SIDE), np.float32)
    off[:, 5], off[0, 1, 7, 10] = STEP * drift, STEP * touched
    tensors["off"] = off
    lines = ["m = Mul (x, gain)", "q0 = QuantizeLinear (m, s)"]
    for number in range(DEPTH):
        weight = np.clip(40 * generator.normal(size=(CHANNELS, CHANNELS, 3, 3)), -127, 127).astype(np.int8)
        if number == 2:
            order = np.arange(CHANNELS)
            order[list(swapped)] = order[list(swapped[::-1])]
            weight = weight[order]
            weight[2, 3, 1, 1] = np.round(scale * weight[2, 3, 1, 1])
        tensors[f"w{number}"] = weight
        lines += [f"d{number} = DequantizeLinear (q{number}, s)", f"v{number} = DequantizeLinear (w{number}, ws)"]
        lines += [f"p{number} = Conv <pads = [1, 1, 1, 1]> (d{number}, v{number})"]
        lines += [f"c{number} = Add (p{number}, off)" if number == 2 else f"c{number} = Identity (p{number})"]
        lines += [f"q{number + 1} = QuantizeLinear (c{number}, s)"]
    lines += [f"z = DequantizeLinear (q{DEPTH}, s)", f"y = {end} (z)"]
    text = f"{HEAD} (float{shape} x) => (float{shape} y) {{ {' '.join(lines)} }}"
    return onnx_ir.from_proto(parsed(text, **tensors))


def compared(
    rewritten: onnx_ir.Model, original: onnx_ir.Model | None = None, *, knows_fractions: bool = True
) -> Verification:
    dtypes = dict.fromkeys(BETWEEN, DType.UINT8)
    margins = dict.fromkeys(BETWEEN, relative_margin(DType.FLOAT32)) if knows_fractions else {}
    cuts = Cuts([ObservedValue(name, name, FOUR) for name in BETWEEN], dtypes, frozenset(BETWEEN), margins)
    return PairOfModels(
        runnable(original or integer_chain()), runnable(rewritten), Request(), cuts, is_optimised=False
    ).verdict()


def runnable(model: onnx_ir.Model) -> Runnable:
    return Runnable.of(onnx_io.to_bytes(model))


def wrong(verdict: Verification) -> set[str]:
    return {each.name for each in verdict.comparisons if not each.passed}


def test_roundings_differ_and_are_none_the_worse_for_it() -> None:
    other = integer_chain(gain=1 + 2e-5)
    assert not verify_models(onnx_io.to_bytes(integer_chain()), onnx_io.to_bytes(other)).is_conclusive
    assert compared(other).status == "passed"


FAULTS = [{"swapped": (0, 1)}, {"swapped": (3, 11)}, {"drift": 0.1}, {"drift": -0.5}, {"scale": 0.0}, {"scale": -1.0}]


@pytest.mark.parametrize(
    "fault", [{"gain": 1.01}, {"gain": 1.001}, {"gain": 0.999}, {"touched": 1.0}, *FAULTS], ids=str
)
def test_a_fault_is_found_in_its_segment(fault: dict[str, Any]) -> None:
    """Every other segment gets what the original computed; without fractions, one step may be a rounding."""
    verdict = compared(integer_chain(**fault))
    assert verdict.status == "failed" and wrong(verdict) == {"q0" if "gain" in fault else "q3"}
    if {*fault} & {"swapped", "touched"}:
        verdict = compared(integer_chain(**fault), knows_fractions=False)
        assert wrong(verdict) == (set() if "touched" in fault else {"q3"})


def cut(gain: float = 1.0, *, bias: float = 0.0) -> onnx_ir.Model:
    """A model that rounds float16 values down."""
    text = f"""{HEAD} (float16[1,16,24,24] x) => (int32[1,16,24,24] y) {{
        c = Conv <pads = [1, 1, 1, 1]> (x, w)
        m = Mul (c, gain)
        b = Add (m, bias)
        y = Cast <to = 6> (b)
    }}"""
    weight = 0.5 * np.random.default_rng(0).normal(size=(16, 16, 3, 3))
    tensors = {"w": weight.astype(np.float16), "gain": np.float16(gain), "bias": np.float16(bias)}
    return onnx_ir.from_proto(parsed(text, **tensors))


def cut_apart(rewritten: onnx_ir.Model) -> Verification:
    cuts = Cuts([], {}, frozenset("y"), {"y": relative_margin(DType.FLOAT16)})
    return PairOfModels(runnable(cut()), runnable(rewritten), Request(), cuts, is_optimised=False).verdict()


def test_a_fraction_that_is_cut_off_may_fall_on_the_other_side() -> None:
    """Of an output; e2e/test_decisions.py rounds values inside."""
    other = cut(1 + 2**-10)
    assert not verify_models(onnx_io.to_bytes(cut()), onnx_io.to_bytes(other)).is_conclusive
    assert cut_apart(other).status == "passed"


@pytest.mark.parametrize("change", [{"gain": 1.05}, {"bias": 1.0}, {"bias": -0.5}], ids=str)
def test_no_more_than_that(change: dict[str, float]) -> None:
    assert "y" in wrong(cut_apart(cut(**change)))


def test_segments_do_not_clear_a_model_that_cannot_be_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "compare_as_a_whole", lambda *_, **__: Verification("failed", "it cannot be run"))
    with pytest.raises(VerificationError, match="it cannot be run"):
        layoutopt.optimize(cut(), "ascend-910b")


SIZE, PRODUCTS = 64, 6


def half_chain(dtype: str = "float16", *, order: int = 0, wrong: float = 1.0, cancels: bool = True) -> bytes:
    """Products that are summed in two halves, in either order, and differences of large numbers that leave errors.

    The differences, which `cancels` adds, are rounded by ops Cast, which onnxruntime leaves where they are. `wrong` is a factor
    of one weight in the third product.
    """
    generator = np.random.default_rng(3)
    element = {"float16": onnx.TensorProto.FLOAT16, "bfloat16": onnx.TensorProto.BFLOAT16}[dtype]
    kind = onnx.helper.tensor_dtype_to_np_dtype(element)
    tensors = {"big": np.asarray(100.0, np.float32), "halves": np.asarray([SIZE // 2, SIZE // 2], np.int64)}
    lines, value = [], "x"
    for number in range(PRODUCTS):
        weight = generator.normal(size=(SIZE, SIZE)) / np.sqrt(SIZE)
        if number == 2:
            weight[1, 2] *= wrong
        halves = np.split(weight, 2)
        tensors |= {f"w{number}_{half}": halves[half] for half in (0, 1)}
        lines.append(f"a{number}_0, a{number}_1 = Split <axis = 1> ({value}, halves)")
        lines += [f"p{number}_{half} = MatMul (a{number}_{half}, w{number}_{half})" for half in (0, 1)]
        if cancels:  # a + (b + 100) - 100 loses what (a + 100) + b loses elsewhere
            lines += [f"f{number}_{half} = Cast <to = 1> (p{number}_{half})" for half in (0, 1)]
            lines += [f"s{number} = Add (f{number}_{order}, big)", f"r{number} = Cast <to = {element}> (s{number})"]
            lines += [f"q{number} = Cast <to = 1> (r{number})", f"t{number} = Add (q{number}, f{number}_{1 - order})"]
            lines += [f"u{number} = Sub (t{number}, big)", f"v{number} = Cast <to = {element}> (u{number})"]
        else:
            lines.append(f"v{number} = Add (p{number}_{order}, p{number}_{1 - order})")
        value = f"v{number}"
    lines.append(f"y = Identity ({value})")
    given = {name: array.astype(kind) if array.dtype == np.float64 else array for name, array in tensors.items()}
    model = parsed(f"{HEAD} ({dtype}[8,{SIZE}] x) => ({dtype}[8,{SIZE}] y) {{ {' '.join(lines)} }}", **given)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def judged(rewritten: bytes, original: bytes | None = None) -> Verification:
    return verify_models(original or half_chain(), rewritten)


def test_sums_in_another_order_differ_by_what_rounding_does_to_the_original() -> None:
    verdict = judged(half_chain(order=1))
    assert verdict.status == "passed", verdict.reason
    assert verdict.worst is not None and verdict.worst.error > 1e-3


@pytest.mark.parametrize("factor", [0.0, -1.0, 2.0])
def test_what_errors_hide_is_found(factor: float) -> None:
    assert judged(half_chain(order=1, wrong=factor)).status == "failed"


def test_a_rewritten_model_may_not_be_much_coarser_than_the_original() -> None:
    verdict = judged(half_chain(), half_chain(cancels=False))
    assert verdict.status == "failed"


def test_wide_numbers_have_the_values_of_the_narrow_ones() -> None:
    """float16 with onnxruntime's casts around float32 kernels, and float32 throughout: the same up to rounding."""
    narrow, wide = half_chain(cancels=False), upcast_to_float32(half_chain(cancels=False))
    assert wide is not None
    feed = {"x": np.random.default_rng(0).normal(size=(8, SIZE)).astype(np.float16)}
    one, other = (Session(model).run(None, feed)[0] for model in (narrow, wide))
    assert one.dtype == np.float16 and other.dtype == np.float32
    assert np.abs(one - other).max() < 5e-3 * np.abs(other).max()


def test_a_type_that_no_kernel_takes_is_compared_as_wide_numbers() -> None:
    plain = half_chain("bfloat16", cancels=False)
    with pytest.raises(Exception, match="NOT_IMPLEMENTED"):
        Session(plain)
    verdict = judged(half_chain("bfloat16", cancels=False, order=1), plain)
    assert verdict.status == "passed"
    assert verdict.reason.startswith(
        "with float32 instead of 16-bit types; with 16-bit types the original cannot be run: "
    )
    assert judged(half_chain("bfloat16", cancels=False, wrong=-9.0), plain).status == "not verified"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_everything_that_says_a_type_is_widened(dtype: str) -> None:
    number = {"float16": 10, "bfloat16": 16}[dtype]
    text = f"""<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
    g ({dtype}[4] x, bool b) => ({dtype}[4] y, {dtype}[4] z)
    <{dtype}[4] h = {{1, 2, 3, 4}}, {dtype}[4] s, int64[2] l = {{4, 4}}> {{
        s = own.Scaled (x)
        y = If (b) <then_branch = t () => ({dtype}[4] u) {{ u = Add (s, h) }},
                    else_branch = e () => ({dtype}[4] v) {{ n = Cast <to = 1> (x) v = Cast <to = {number}> (n) }}>
        q = ConstantOfShape (l)
        {"r = EyeLike <dtype = 10> (q)" if dtype == "float16" else ""}
        z = Add (x, x)
    }}
    <domain: "own", opset_import: ["" : 21]> Scaled (a) => (c) {{
        f = Constant <value_float = 3.0> ()
        k = Cast <to = {number}> (f)
        c = Mul (a, k)
    }}"""
    wide = upcast_to_float32(onnx.parser.parse_model(text).SerializeToString())
    assert wide is not None
    session = Session(wide)
    assert [each.type for each in session.get_inputs()] == [f"tensor({dtype})", "tensor(bool)"]
    assert {each.type for each in session.get_outputs()} == {"tensor(float)"}


BLOCKS = 5
FILTER = CHANNELS * CHANNELS * 9 * 4  # bytes
MEMORY = 3 * FILTER * parts.MEMORY_PER_PART // 2


def large_model() -> onnx.ModelProto:
    """Residual blocks in channels-last order, a gate that every block reads, a mask from integers, and a body."""
    shape = f"[1,8,8,{CHANNELS}]"
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
    signature = f"(float{shape} x, int64[1] length) => (float{shape} y, float[1,1] z)"
    proto = parsed(f"{HEAD} {signature} {{ {' '.join(lines)} }}", **weights)
    onnx.checker.check_model(proto, full_check=True)
    return proto


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "available_bytes", lambda: MEMORY)


def optimised(**options: object) -> layoutopt.Result:
    return layoutopt.optimize(large_model(), "ascend-910b", measure=False, calibrate=False, **options)


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
    session, whole = PartedSession(large_model(), None), Session(large_model().SerializeToString())
    known = {"x", "length"}
    for each in session.parts:
        assert known.issuperset(each.inputs)
        known.update(each.outputs)
        assert each.nbytes <= max(limit, FILTER) + FILTER // 2
    feeds = [{"x": np.full((1, 8, 8, CHANNELS), 0.3, np.float32), "length": np.array([n])} for n in (3, 9)]
    for one, other in zip(whole.run_all(None, feeds), session.run_all(None, feeds), strict=True):
        for expected, actual in zip(one, other, strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


UNIT = 2.0**-24
FILTERS, EXTENT = 32, 16
BODIES = {
    "alone": "y = Conv <pads = [1, 1, 1, 1]> (x, w)",
    "saturated": "c = Conv <pads = [1, 1, 1, 1]> (x, w) s = Clip (c, low, high) y = Conv (s, v)",
    "split": "c = Conv <pads = [1, 1, 1, 1]> (x, w) a, b = Split <axis = 1, num_outputs = 2> (c) p = Mul (a, b) y = Relu (p)",
}


def network(body: str, filters: Array) -> onnx.ModelProto:
    """x -> body -> y, with the constants w (3x3), v (1x1), low and high."""
    shape = f"float[1,{FILTERS},{EXTENT},{EXTENT}]"
    tensors = {"w": filters, "v": filters[:, :, :1, :1], "low": np.float32(0), "high": np.float32(0.1)}
    made = parsed(f"{HEAD} ({shape} x) => ({shape} y) {{ {body} }}", **tensors)
    made.graph.output[0].type.tensor_type.ClearField("shape")
    return made


def filters_of(kind: str) -> Array:
    """Filters of random, of equal, or of cancelling elements."""
    shape = (FILTERS, FILTERS, 3, 3)
    if kind == "equal":
        return np.full(shape, 0.021, np.float32)
    random = (np.random.default_rng(0).normal(size=shape) / 17).astype(np.float32)
    if kind == "cancelling":
        random[:, 1::2] = -random[:, ::2]
    return random


@pytest.fixture
def prefers_winograd(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = MachineRates(flops=1e6)
    for block in (8, 16):
        monkeypatch.setitem(MACHINE_RATES, block, rates)


@pytest.mark.usefixtures("prefers_winograd")
@pytest.mark.parametrize(("body", "kind"), covering(BODIES, ["random", "equal", "cancelling"]))
def test_winograd_is_accepted_and_one_weight_by_one_percent_is_not(kind: str, body: str, tmp_path: Path) -> None:
    model = network(BODIES[body], filters_of(kind))
    x = np.full((1, FILTERS, EXTENT, EXTENT), 0.3, np.float32)
    inputs = {"x": x if kind != "random" else np.random.default_rng(1).normal(size=x.shape).astype(np.float32)}
    result = layoutopt.optimize(model, "cpu", measure=False, calibrate=False, inputs=inputs, max_growth=100)
    assert any("/winograd/" in name for node in result.proto.graph.node for name in node.output)
    assert result.report.verification.status == "passed"
    wrong = filters_of(kind)
    wrong[3, 5, 1, 1] *= 1.01
    given, other = tmp_path / "a.onnx", tmp_path / "b.onnx"
    onnx.save(network(BODIES[body], wrong), given)
    result.save(other)
    assert verify_files(given, other).status == "failed"


@pytest.mark.parametrize("kind", ["random", "equal", "cancelling"])
@pytest.mark.parametrize("seed", [7, COHERENT])
def test_sums_move_by_the_permitted_error(kind: str, seed: int) -> None:
    model = network(BODIES["alone"], filters_of(kind))
    x = np.full((1, FILTERS, EXTENT, EXTENT), 0.3, np.float32)
    plain, magnitudes = (
        output_of(network(BODIES["alone"], each), x) for each in (filters_of(kind), np.abs(filters_of(kind)))
    )
    moved = output_of(perturb_sums(model, seed, {"y": 3.0}), x) - plain
    own = 17 / 3 * np.abs(plain)
    bound = UNIT * (5 * own if seed == COHERENT else 3**0.5 * 0.5 * (3 * magnitudes + own))
    assert np.all(np.abs(moved) <= bound * 1.01 + 2 * UNIT * np.abs(plain))
    assert np.abs(moved).max() >= 0.9 * bound.max()


def output_of(model: onnx.ModelProto, x: Array) -> Array:
    (y,) = Session(model.SerializeToString(), is_optimised=False).run(None, {"x": x})
    return np.asarray(y)


TWO = "c = Conv <pads = [1, 1, 1, 1]> (x, w) r = Relu (c) y = Conv <pads = [1, 1, 1, 1]> (r, w)"


@pytest.mark.usefixtures("prefers_winograd")
@pytest.mark.parametrize("faulty", ["one transform", "all transforms", "weight"])
def test_only_an_inexact_rewrite_that_differs_is_left_out(faulty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong Winograd transform is left out where it differs, with one line; a wrong weight remains without it: refused."""
    if faulty == "one transform":
        filters = WinogradRewriter._transformed_filter

        def filter(self: WinogradRewriter, component: tuple[int, int]) -> Value:
            return filters(self, (0, 0) if self._op.y.tensor == "r" else component)

        monkeypatch.setattr(WinogradRewriter, "_transformed_filter", filter)
    elif faulty == "all transforms":
        taps = Tiles.input_taps
        monkeypatch.setattr(Tiles, "input_taps", lambda *a: (2 * taps(*a)[0], *taps(*a)[1:]))
    else:
        emit = onnx_io.emit

        def emitted(graph: Graph) -> onnx_ir.Model:
            model = emit(graph)
            for value in model.graph.initializers.values():
                if value.const_value is not None and value.const_value.dtype == onnx_ir.DataType.FLOAT:
                    value.const_value = onnx_ir.tensor(value.const_value.numpy() * np.float32(1.01), name=value.name)
            return model

        monkeypatch.setattr(onnx_io, "emit", emitted)
    model = network(TWO, filters_of("random"))
    options = {"measure": False, "calibrate": False, "max_growth": 100}
    if faulty == "weight":
        with pytest.raises(VerificationError, match="not equivalent"):
            layoutopt.optimize(model, "cpu", **options)
        return
    result = layoutopt.optimize(model, "cpu", **options)
    assert result.report.verification.status == "passed"
    names = [name for node in result.proto.graph.node for name in node.output if "/winograd/" in name]
    tiled = {name.partition("__")[0] for name in names}
    assert tiled == ({"y"} if faulty == "one transform" else set())
    (warning,) = warnings_of(result.report)
    where = "at r, because" if faulty == "one transform" else "at r, y, because"
    assert f"winograd left out {where} with it the rewritten model is not equivalent" in warning


def test_tensors_behind_a_cut_do_not_end_at_absent_outputs() -> None:
    body = "b = Relu (x) c,,s = LayerNormalization (b, w) d = Relu (c) z,,t = LayerNormalization (d, w) y = Add (z, t)"
    model = parsed(f'<ir_version: 8, opset_import: ["" : 17]> g (float[2,4] x) => (y) {{ {body} }}', w=(4,))
    assert tensors_between(model, ["y"], ["x"]) == set("bcsdzty")
    assert tensors_between(model, ["y"], ["c"]) == set("dzty")
