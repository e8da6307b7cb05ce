"""Fusion patterns: every form that exporters write is fused and equivalent, and similar ops stay unchanged."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx.reference import ReferenceEvaluator
from parsed_models import parsed, text_model
from tiers import covering

import layoutopt
from layoutopt import inference, onnx_io
from layoutopt.cost.size_growth import Growth
from layoutopt.cost_models.registry import host_target, load_target
from layoutopt.dialects import DIALECTS
from layoutopt.dialects.group_norms import find_site
from layoutopt.ir.graph import Graph
from layoutopt.passes import FoldConstants, FoldScores, FusePatterns, Reformulate, RemoveDead, RemoveIdentities
from layoutopt.passes.base import Mode, Pass, PassContext, Pipeline
from layoutopt.verification import verify_models

NATIVE = DIALECTS["onnxruntime"]


def model(body: str, signature: str, constants: Mapping[str, object], opset: int = 18) -> onnx.ModelProto:
    """A model of some lines, with constants that they name."""
    proto = parsed(f'<ir_version: 8, opset_import: ["" : {opset}]> g {signature} {{ {body} }}', **constants)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def activation(body: str, *, opset: int = 18, **constants: object) -> onnx.ModelProto:
    """A model from x to y, (2, 3, 8) each."""
    numbers = {"one": 1.0, "two": 2.0, "three": 3.0, "half": 0.5, "root": 1.4142135, "cubic": 0.044715}
    numbers |= {"slope": 0.7978846, "inverse": 0.70710677, **constants}
    return model(body, "(float[2,3,8] x) => (float[2,3,8] y)", numbers, opset)


def fused(proto: onnx.ModelProto) -> Graph:
    """The graph after the pass, for the dialect that has all kernels; its outputs are compared."""
    graph = inference.lift(onnx_ir.serde.deserialize_model(proto))
    context = PassContext(
        None,  # type: ignore[arg-type]
        kernels=NATIVE.kernels,
    )
    Pipeline((RemoveIdentities(), FoldConstants(), FusePatterns(), RemoveDead())).run(graph, context)
    emitted = onnx_io.to_bytes(onnx_io.emit(graph))
    verdict = verify_models(proto.SerializeToString(), emitted)
    assert verdict.status == "passed", verdict.reason
    return graph


def kinds(graph: Graph) -> Sequence[str]:
    return [op.op_type if op.domain == "com.microsoft" else op.kind for op in graph.ops]


GELUS = {
    "torch, onnxscript": "a = Div(x, root) b = Erf(a) c = Add(b, one) d = Mul(half, c) y = Mul(x, d)",
    "transformers": "h = Mul(x, half) a = Div(x, root) b = Erf(a) c = Add(b, one) y = Mul(h, c)",
    "halved by division": "a = Div(x, root) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Div(d, two)",
    "halved first": "a = Mul(x, inverse) b = Erf(a) c = Mul(b, half) d = Add(c, half) y = Mul(x, d)",
    "constants with axes": "a = Div(x, roots) b = Erf(a) c = Add(b, ones) d = Mul(half, c) y = Mul(x, d)",
}


@pytest.mark.parametrize("opset", [9, 13, 18])
@pytest.mark.parametrize("body", GELUS.values(), ids=GELUS)
def test_gelu(body: str, opset: int) -> None:
    more = {"roots": np.full((1, 1, 1), 1.4142135, np.float32), "ones": np.ones(1, np.float32)}
    assert kinds(fused(activation(body, opset=opset, **more))) == ["Gelu"]


FAST_GELUS = {
    "power": "p = Pow(x, three) a = Mul(p, cubic) b = Add(x, a) c = Mul(b, slope) t = Tanh(c) d = Add(t, one) "
    "e = Mul(x, half) y = Mul(e, d)",
    "products": "p = Mul(x, x) q = Mul(p, x) a = Mul(cubic, q) b = Add(a, x) c = Mul(slope, b) t = Tanh(c) d = Add(one, t) "
    "e = Mul(x, d) y = Mul(half, e)",
    "factored": "p = Mul(x, x) a = Mul(p, cubic) b = Add(a, one) c = Mul(x, slope) m = Mul(c, b) t = Tanh(m) d = Add(t, one) "
    "e = Mul(d, half) y = Mul(x, e)",
}


@pytest.mark.parametrize("body", FAST_GELUS.values(), ids=FAST_GELUS)
def test_fast_gelu(body: str) -> None:
    assert kinds(fused(activation(body))) == ["FastGelu"]


@pytest.mark.parametrize(
    ("body", "alpha"),
    [
        ("s = Sigmoid(x) y = Mul(x, s)", 1.0),
        ("a = Mul(x, slopes) s = Sigmoid(a) y = Mul(x, s)", 1.702),
        ("a = Div(x, two) s = Sigmoid(a) y = Mul(x, s)", 0.5),
    ],
)
def test_quick_gelu(body: str, alpha: float) -> None:
    (op,) = fused(activation(body, slopes=1.702)).ops
    assert op.op_type == "QuickGelu"
    assert op.attributes["alpha"] == pytest.approx(alpha)


NEAR_MISSES = {
    "the root of 2 to four places": "a = Div(x, rough) b = Erf(a) c = Add(b, one) d = Mul(half, c) y = Mul(x, d)",
    "two in the place of one": "a = Div(x, root) b = Erf(a) c = Add(b, two) d = Mul(half, c) y = Mul(x, d)",
    "divided by x": "a = Div(x, root) b = Erf(a) c = Add(b, one) d = Mul(half, c) y = Div(d, x)",
    "two tensors": "z = Neg(x) a = Div(z, root) b = Erf(a) c = Add(b, one) d = Mul(half, c) y = Mul(x, d)",
    "one number per column": "a = Div(x, roots) b = Erf(a) c = Add(b, one) d = Mul(half, c) y = Mul(x, d)",
    "squared": "s = Sigmoid(x) y = Mul(s, s)",
    "read twice": "s = Sigmoid(x) t = Mul(x, s) y = Add(t, s)",
    "the fourth power": "p = Pow(x, four) a = Mul(p, cubic) b = Add(x, a) c = Mul(b, slope) t = Tanh(c) d = Add(t, one) "
    "e = Mul(x, half) y = Mul(e, d)",
    "an axis more": "a = Div(x, roots4) b = Erf(a) c = Add(b, one) d = Mul(half, c) e = Mul(x, d) f = Squeeze(e, first) "
    "y = Relu(f)",
}


@pytest.mark.parametrize("body", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_near_misses(body: str) -> None:
    roots = np.linspace(1.4, 1.5, 8, dtype=np.float32)
    roots4, first = np.full((1, 1, 1, 1), 1.4142135, np.float32), np.zeros(1, np.int64)
    proto = activation(body, rough=1.4142, roots=roots, four=4.0, roots4=roots4, first=first)
    assert len(fused(proto).ops) == len(proto.graph.node)


B, S, L, H, D = 2, 5, 7, 3, 32
ROWS = "Transpose <perm = [0, 2, 1, 3]>"
Q = f"q4 = Reshape(q, sq) qh = {ROWS} (q4)"
K = "k4 = Reshape(k, sk) kh = Transpose <perm = [0, 2, 3, 1]> (k4)"
K_OF_TORCH = (
    f"k4 = Reshape(k, sk) k1 = {ROWS} (k4) k2 = Reshape(k1, flat) k3 = Transpose <perm = [0, 2, 1]> (k2) "
    "kh = Reshape(k3, apart)"
)
V = f"v4 = Reshape(v, sk) vh = {ROWS} (v4)"
SCALED = "s = MatMul(qh, kh) s1 = Mul(s, scale)"
WEIGHTED = "p = Softmax <axis = -1> ({}) o = MatMul(p, vh)"
WITHOUT_NAN = "p = Softmax <axis = -1> ({}) n = IsNaN(p) w = Where(n, zero, p) o = MatMul(w, vh)"
JOINED = f"o4 = {ROWS} (o) y = Reshape(o4, so)"
HEADS_APART = f"{Q} {K} {V}"


def attention(body: str, **constants: object) -> onnx.ModelProto:
    """A model from q, k, v to y; a text that does not compute y computes o, of heads that are put together."""
    width = H * D
    shapes = {"sq": (B, S, H, D), "sk": (B, L, H, D), "so": (B, S, width), "flat": (B * H, L, D), "apart": (B, H, D, L)}
    numbers = {name: np.asarray(shape, np.int64) for name, shape in shapes.items()}
    numbers |= {"scale": 0.25, "zero": 0.0, "one": 1.0, **constants}
    signature = (
        f"(float[{B},{S},{width}] q, float[{B},{L},{width}] k, float[{B},{L},{width}] v) => (float[{B},{S},{width}] y)"
    )
    return model(body if " y = " in body else f"{body} {JOINED}", signature, numbers)


def lower_half() -> np.ndarray:
    """A mask that keeps something in every row."""
    return np.where(np.tri(S, L), 0.0, -np.inf).astype(np.float32).reshape(1, 1, S, L)


SUM = f"{HEADS_APART} s = MatMul(qh, kh)"
SCORES = f"{HEADS_APART} {SCALED}"
FOUND = {
    "scaled scores": f"{SCORES} {WEIGHTED.format('s1')}",
    "scaled operands": f"{Q} {K_OF_TORCH} {V} a = Mul(qh, scale) b = Mul(kh, scale) s = MatMul(a, b) {WEIGHTED.format('s')}",
    "scaled before the heads": f"z = Mul(q, scale) {SUM.replace('(q,', '(z,')} {WEIGHTED.format('s')}",
    "without NaN": f"{SCORES} {WITHOUT_NAN.format('s1')}",
    "mask": f"{SCORES} m = Add(s1, mask) {WEIGHTED.format('m')}",
    "mask per head": f"{SCORES} m = Add(s1, each_head) {WEIGHTED.format('m')}",
    "mask per batch": f"{SCORES} m = Add(s1, batches) {WEIGHTED.format('m')}",
    "casts that do nothing": f"{SCORES} p = Softmax <axis = -1> (s1) c = Cast <to = 1> (p) o = MatMul(c, vh)",
}
MASKS = {
    "mask": lower_half(),
    "each_head": np.linspace(-1, 1, H * S * L, dtype=np.float32).reshape(1, H, S, L),
    "batches": np.linspace(-1, 1, B * S * L, dtype=np.float32).reshape(B, 1, S, L),
}


@pytest.mark.parametrize("body", FOUND.values(), ids=FOUND)
def test_attention(body: str) -> None:
    graph = fused(attention(body, **MASKS))
    assert kinds(graph)[-1] == "MultiHeadAttention"
    assert set(kinds(graph)) <= {"Mul", "MultiHeadAttention"}


LEFT = {
    "a row of minus infinity, without NaN": f"{SCORES} m = Add(s1, mask) {WITHOUT_NAN.format('m')}",
    "scaled behind the mask": f"{SUM} m = Add(s, mask) s1 = Mul(m, scale) {WEIGHTED.format('s1')}",
    "two masks": f"{SCORES} m = Add(s1, mask) m1 = Add(m, mask) {WEIGHTED.format('m1')}",
    "a scale per head": f"{SUM} s1 = Mul(s, scales) {WEIGHTED.format('s1')}",
    "heads not put together": f"{SCORES} {WEIGHTED.format('s1')} y = Reshape(o, so)",
    "no number is one": f"{SCORES} {WITHOUT_NAN.replace('zero', 'one').format('s1')}",
}


@pytest.mark.parametrize("body", LEFT.values(), ids=LEFT)
def test_attention_that_is_left(body: str) -> None:
    mask = lower_half()
    mask[..., 0, :] = -np.inf
    proto = attention(body, mask=mask, scales=np.linspace(0.1, 0.3, H, dtype=np.float32).reshape(H, 1, 1))
    assert "MultiHeadAttention" not in kinds(fused(proto))


CONSTANTS = {
    "two": np.float32(2),
    "one": np.float32(1),
    "three": np.float32(3),
    "tiny": np.float32(1e-6),
    "weight": np.linspace(0.5, 1.5, 64, dtype=np.float32),
    "short": np.ones(1, np.float32),
    "last": np.array([-1]),
    "middle": np.array([1]),
    "matrix": np.linspace(-0.1, 0.1, 64 * 64, dtype=np.float32).reshape(64, 64),
    "axis": np.array([2]),
    "repeated": np.array([1, 1, 4, 1, 1]),
    "scale": np.float32(0.125),
}


def optimized(signature: str, body: str, target: str = "cpu") -> list[str]:
    """Op types of the rewritten model, which is verified."""
    result = layoutopt.optimize(model(body, signature, CONSTANTS), target)
    assert result.report.verification.status == "passed"
    return [node.op_type for node in result.proto.graph.node]


SQUARE = "s = Pow (x, two) m = ReduceMean <keepdims = 1> (s, last) e = Add (m, tiny) r = Sqrt (e)"
NORMS = {
    "dynamo": f"{SQUARE} i = Reciprocal (r) n = Mul (x, i) w = Mul (weight, n)",
    "TorchScript": f"{SQUARE} i = Div (one, r) n = Mul (x, i) w = Mul (n, weight)",
    "TorchScript with a Cast": f"{SQUARE} i = Div (one, r) n = Mul (x, i) c = Cast <to = 1> (n) w = Mul (weight, c)",
    "quotient": "s = Mul (x, x) m = ReduceMean <keepdims = 1> (s, last) e = Add (tiny, m) r = Sqrt (e) n = Div (x, r) "
    "w = Mul (n, weight)",
}
OTHERS = {
    "the mean of cubes": NORMS["dynamo"].replace("two", "three"),
    "another axis": NORMS["dynamo"].replace("last", "middle"),
    "a root that is read twice": NORMS["dynamo"].replace("w = Mul (weight, n)", "v = Mul (weight, n) w = Add (v, r)"),
    "one scale": NORMS["dynamo"].replace("weight", "short"),
}
BATCHED_ROWS = "(float[N,S,64] x) => (float[N,S,64] y)"


@pytest.mark.parametrize("body", NORMS.values(), ids=NORMS)
def test_rms_normalisation_is_one_op_and_its_scale_stays(body: str) -> None:
    ops = optimized(BATCHED_ROWS, f"{body} y = MatMul (w, matrix)")
    assert ops.count("SimplifiedLayerNormalization") == 1 and "Sqrt" not in ops and "Mul" not in ops


@pytest.mark.parametrize("body", OTHERS.values(), ids=OTHERS)
def test_other_normalisations_stay(body: str) -> None:
    ops = optimized(BATCHED_ROWS, f"{body} y = Relu (w)")
    assert "SimplifiedLayerNormalization" not in ops


REPEATED = "u = Unsqueeze (k, axis) r = Expand (u, repeated) h = Reshape (r, heads)"
HEADS = (
    "batch = Shape <start = 0, end = 1> (k) rest = Constant <value_ints = [8, 40, 64]> () "
    "heads = Concat <axis = 0> (batch, rest)"
)
FLAT = (
    "flat = Constant <value_ints = [-1, 40, 64]> () split = Constant <value_ints = [-1, 8, 64, 40]> () "
    "f = Reshape (h, flat) g = Transpose <perm = [0, 2, 1]> (f) t = Reshape (g, split)"
)
PRODUCTS = {
    "keys": f"{REPEATED} t = Transpose <perm = [0, 1, 3, 2]> (h) y = MatMul (q, t)",
    "scaled keys": f"{REPEATED} t = Transpose <perm = [0, 1, 3, 2]> (h) c = Mul (t, scale) y = MatMul (q, c)",
    "keys of torch": f"{REPEATED} {FLAT} y = MatMul (q, t)",
    "values": f"{REPEATED} p = MatMul (q, q2) y = MatMul (p, h)",
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("target", ["cpu", "gpu-hopper"])
def test_keys_of_grouped_queries_are_not_repeated(name: str, target: str) -> None:
    inputs = "float[N,8,5,64] q, float[N,2,40,64] k" + (", float[N,8,64,40] q2" if name == "values" else "")
    columns = 64 if name == "values" else 40
    ops = optimized(f"({inputs}) => (float[N,8,5,{columns}] y)", f"{HEADS} {PRODUCTS[name]}", target)
    assert "Expand" not in ops


def test_repeated_keys_that_are_read_twice_stay() -> None:
    heads = "heads = Constant <value_ints = [1, 8, 40, 64]> ()"
    body = f"{heads} {REPEATED} y = MatMul (q, h) z = Relu (h)"
    ops = optimized("(float[1,8,5,40] q, float[1,2,40,64] k) => (float[1,8,5,64] y, float[1,8,40,64] z)", body)
    assert "Expand" in ops


# --- group normalisation as exporters write it -----------------------------------------------------------

BLOCK = {"cpu-avx2": 8, "cpu-avx512": 16}.get(host_target(), 16)
BLOCKED = pytest.mark.skipif(
    host_target() not in ("cpu-avx2", "cpu-avx512"), reason="the blocks of this processor are not known"
)


def network(
    channels: int,
    groups: int,
    image: tuple[int | str, ...] = (6, 5),
    batch: int | str = 1,
    affine: bool = True,
    mean: float = 0.0,
    epsilon: float = 0.0001,
) -> onnx.ModelProto:
    """Two convolutions, and between them a group normalisation and SiLU."""
    extents, unknown, ones = ",".join(map(str, image)), ",?" * len(image), ",1" * len(image)
    scaled = "m = Mul(r, s) h = Add(m, b)" if affine else "h = Identity(r)"
    filters, affines = f"float[{channels},{channels}{ones}]", f"float[{channels}{ones}]"
    return text_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[{batch},{channels},{extents}] x) => (float[?,?{unknown}] y) <'
        f"int64[3] grouped = {{0, {groups}, -1}}, float[{groups}] one = {{{','.join(['1.0'] * groups)}}},"
        f" float[{groups}] zero = {{{','.join(['0.0'] * groups)}}}, float mean = {{{mean}}},"
        f" {filters} w, {filters} v{f', {affines} s, {affines} b' if affine else ''}> {{"
        f"i = Conv(x, w) c = Add(i, mean) q = Reshape(c, grouped)"
        f" n = InstanceNormalization <epsilon = {epsilon:f}> (q, one, zero)"
        f" back = Shape(c) r = Reshape(n, back) {scaled} z = Sigmoid(h) a = Mul(h, z) y = Conv(a, v)}}"
    )


def blocked(model: onnx.ModelProto) -> Counter[str]:
    """The ops of the optimised and verified model, whose normalisation reads and writes blocks."""
    rank = len(model.graph.input[0].type.tensor_type.shape.dim)
    format = f"NC{'DHW'[5 - rank :]}{BLOCK}c" if rank > 3 else f"NCW{BLOCK}c"
    result = layoutopt.optimize(model, host_target(), dialect="onnxruntime", pins={"c": format, "h": format})
    assert result.report.verification.status == "passed"
    return Counter(node.op_type for node in result.proto.graph.node)


@BLOCKED
@pytest.mark.parametrize(
    ("sizes", "affine", "batch"),
    covering([(64, 1), (64, 4), (64, 8), (64, 64), (96, 16), (48, 1), (32, 8)], [True, False], [1, 2, "N"]),
)
def test_it_stays_blocked(sizes: tuple[int, int], affine: bool, batch: int | str) -> None:
    channels, groups = sizes
    found = blocked(network(channels, groups, batch=batch, affine=affine))
    plain = channels // groups % BLOCK != 0
    assert found["ReorderOutput"] == 1 + plain
    assert found["Transpose"] == found["Mul"] == found["Add"] == 0


@BLOCKED
@pytest.mark.parametrize(
    ("sample", "groups"), covering([((1, 1), 0), ((24, 33), 0), (("H", "W"), 0), ((40,), 0), ((6, 5), 100)], [4, 8])
)
def test_every_image_is_normalised(sample: tuple[tuple[int | str, ...], float], groups: int) -> None:
    """A mean of 100 does not reduce accuracy; a one-pass variance would be the difference of two numbers near 10000."""
    image, mean = sample
    blocked(network(64, groups, image, mean=mean))


def test_it_keeps_channels_last() -> None:
    result = layoutopt.optimize(network(64, 8), "gpu-ampere", runtime="compiler", pins={"c": "NHWC", "h": "NHWC"})
    assert result.report.after.casts <= 2
    calls = [node for node in result.proto.graph.node if node.op_type == "GroupNormalization_NHWC"]
    assert [{each.name for each in call.attribute} >= {"num_groups", "epsilon"} for call in calls] == [True]


EQUATIONS = [
    *("bhij,bjhd->bihd", "nchw,oc->nohw", "ij,jk->ik", "ij,kj", "abc,cde->abde", "abcd,cd->ab", "i,i->", "bi,bi->b"),
    *("bnc,bmc", "abc,abd->cd", "xyz,zyw->wx", "abc,b->ac", "a,abc->bc", " b i d , b j d -> b i j ", "bac,cbd->dab"),
]


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsums_are_products(equation: str) -> None:
    left, right = equation.replace(" ", "").partition("->")[0].split(",")
    shapes = [",".join(str(ord(letter) % 4 + 2) for letter in each) for each in (left, right)]
    rank = np.einsum(equation, np.ones((2,) * len(left)), np.ones((2,) * len(right))).ndim
    output = ",".join("?" * rank)
    proto = text_model(
        f'<ir_version: 9, opset_import: ["" : 18]> g (float[{shapes[0]}] a, float[{shapes[1]}] b) => '
        f'(float[{output}] y) {{ y = Einsum <equation = "{equation}"> (a, b) }}'
    )
    ops = reformulated(proto)
    assert "MatMul" in ops and "Einsum" not in ops


def reformulated(
    proto: onnx.ModelProto,
    step: Pass = Reformulate(),  # noqa: B008
    mode: Mode = "inference",
) -> Sequence[str]:
    """The ops after the pass, for the dialect that has all kernels; the outputs are compared."""
    graph = inference.lift(onnx_ir.serde.deserialize_model(proto))
    context = PassContext(None, mode, kernels=NATIVE.kernels)  # type: ignore[arg-type]
    Pipeline((step, RemoveDead())).run(graph, context)
    assert verify_models(proto.SerializeToString(), onnx_io.to_bytes(onnx_io.emit(graph))).status == "passed"
    return kinds(graph)


MOVES = [
    "p{n}, q{n} = Split <axis = {axis}> ({x}, cut) {y} = Concat <axis = {axis}> (q{n}, p{n})",
    "e{n} = Slice ({x}, zero, end, axis{axis}, two) o{n} = Slice ({x}, one, end, axis{axis}, two) "
    "{y} = Concat <axis = {axis}> (e{n}, o{n})",
    "{y} = Slice ({x}, last, first, axis{axis}, back)",
    "{y} = Gather <axis = {axis}> ({x}, some)",
    "g{n} = Reshape ({x}, parts) t{n} = Transpose <perm = [0, 1, 3, 2, 4, 5]> (g{n}) {y} = Reshape (t{n}, whole)",
]


@pytest.mark.parametrize("seed", range(16))
def test_regions_of_moves_are_gathers_of_rows(seed: int) -> None:
    random, lines = np.random.default_rng(seed), []
    for n, move in enumerate([*random.choice(MOVES, 4), MOVES[0], MOVES[seed % 2]]):
        lines.append(move.format(n=n, x=f"v{n}", y=f"v{n + 1}", axis=n - 3 if n > 3 else random.integers(1, 3)))
    one = {"zero": 0, "one": 1, "two": 2, "last": -1, "first": -9, "back": -1, "end": 1 << 62, "axis1": 1, "axis2": 2}
    lists = {"cut": [1, 3], "some": [3, -3, 0, 2], "parts": [1, 2, 2, 2, 2, 16], "whole": [1, 4, 4, 16]}
    body, signature = " ".join([*lines, "y = Relu (v6)"]), "(float[1,4,4,16] v0) => (float[1,4,4,16] y)"
    ops = reformulated(model(body, signature, {**lists, **{name: [each] for name, each in one.items()}}))
    assert {*ops} == {"Reshape", "Gather", "Relu"} and len(ops) < 6


def test_short_rows_and_whole_channels_stay() -> None:
    """Channels that come first are moved by no Gather: the planner may block them."""
    for shape, axis in ((4, 4, 8), 1), ((64, 4, 16), 1), ((2, 4, 4), 3):
        body = f"p, q = Split <axis = {axis}> (x) r = Concat <axis = {axis}> (q, p) y = Relu (r)"
        extents = ",".join(map(str, shape))
        assert "Gather" not in reformulated(model(body, f"(float[1,{extents}] x) => (float[1,{extents}] y)", {}, 13))


UNFOLD = "(float[1,32,4,6] x) => (float[4,6,32] y)"
PATCHES = (
    "a = Reshape (x, halves) b = Transpose <perm = [0, 2, 1, 3]> (a) c = Reshape (b, parts) "
    "d = Transpose <perm = [0, 3, 2, 1]> (c) e = Reshape (d, rows) y = Relu (e)"
)
FOLD = "(float[4,6,32] x) => (float[1,32,4,6] y)"
IMAGE = (
    "d = Reshape (x, patches) c = Transpose <perm = [0, 3, 2, 1]> (d) b = Reshape (c, thirds) "
    "a = Transpose <perm = [0, 2, 1, 3]> (b) e = Reshape (a, image) y = Relu (e)"
)
SPLIT = (
    "a = Reshape (x, pixels) b = Transpose <perm = [0, 2, 1]> (a) c = Reshape (b, heads) "
    "d = Transpose <perm = [0, 2, 1, 3]> (c) y = Relu (d)"
)


@pytest.mark.parametrize(
    ("body", "signature", "gathers"),
    [(PATCHES, UNFOLD, 1), (IMAGE, FOLD, 1), (SPLIT, "(float[1,32,4,6] x) => (float[1,2,24,16] y)", 0)],
)
def test_patches_of_images_are_gathers_of_channels(body: str, signature: str, gathers: int) -> None:
    """The heads of an attention stay: the planner may remove their Transposes."""
    shapes = {"halves": [64, 2, 3, 2], "parts": [1, 32, 6, 4], "rows": [4, 6, 32], "patches": [1, 4, 6, 32]}
    others = {"thirds": [64, 3, 2, 2], "image": [1, 32, 4, 6], "pixels": [1, 32, 24], "heads": [1, 24, 2, 16]}
    counts = Counter(reformulated(model(body, signature, {**shapes, **others})))
    assert (counts["Gather"], counts["Transpose"]) == (gathers, 2 - gathers)


COSINES = """
d = Div (q, n) m = MatMul (d, k) c = Mul (m, s) a = Add (b, c) w = Reshape (a, five) e = Add (w, mask) f = Add (e, mask)
g = Reshape (f, four) y = Softmax (g)
"""


@pytest.mark.parametrize("factor", [3.0, -1e6])
def test_scores_of_cosines(factor: float) -> None:
    """One constant is added; a factor is folded into the norms unless it is extreme."""
    signature = "(float[4,3,5,8] q, float[4,3,5,1] n, float[4,3,8,6] k) => (float[4,3,5,6] y)"
    constants = {"s": np.full((3, 1, 1), factor, np.float32), "b": (1, 3, 5, 6), "mask": (2, 1, 5, 6)}
    proto = model(COSINES, signature, {**constants, "five": [2, 2, 3, 5, 6], "four": [4, 3, 5, 6]})
    counts = Counter(reformulated(proto, FoldScores()))
    assert (counts["Add"], counts["Mul"]) == (1, factor < 0)


@pytest.mark.parametrize(
    ("rows", "mode", "joined"), [(4, "inference", True), (0, "inference", False), (4, "training", False)]
)
def test_constant_addends(rows: int, mode: Mode, joined: bool) -> None:
    """Two are one; a sum of two constants, which folding left, one without elements, and parameters in training stay."""
    body = "a = Add (x, c) e = Add (a, d) y = Add (e, c)  s = Add (c, d) t = Add (d, s) z = Mul (x, t)"
    signature = f"(float[{rows},6] x) => (float[{rows},6] y, float[{rows},6] z)"
    counts = Counter(reformulated(model(body, signature, {"c": (1, 6), "d": (6,)}), FoldScores(), mode))
    assert counts["Add"] == (3 if joined else 5)


@pytest.mark.parametrize(("max_growth", "gathers"), [(inf, 1), (1.0, 0)])
def test_rows_are_gathered_within_the_growth_of_the_file(max_growth: float, gathers: int) -> None:
    body = (
        "p, q = Split <axis = 1> (x) r = Concat <axis = 1> (q, p) t = Transpose <perm = [0, 2, 1, 3]> (r) y = Relu (t)"
    )
    proto = model(body, "(float[1,512,512,16] x) => (float[1,512,512,16] y)", {}, 13)
    graph = inference.lift(onnx_ir.serde.deserialize_model(proto))
    Pipeline((Reformulate(), RemoveDead())).run(
        graph, PassContext(load_target("cpu-avx2"), growth=Growth(max_growth, 0))
    )
    assert kinds(graph).count("Gather") == gathers


RESPONSE = "c = Mul (x, n) a = Mul (c, s) b = Add (a, t) y = Add (b, x)"
GATES = "(float[4,8,8,16] x, float[{},1,1,16] n, float[{},1,1,16] s, float[16] t) => (float[4,8,8,16] y)"
PRODUCT = 'y = Einsum <equation = "xabi,xci->xabc"> (x, w)'
SHUFFLE = "a = Transpose <perm = [0, 1, 4, 2, 5, 3]> (x) y = Relu (a)"


@pytest.mark.parametrize(
    ("signature", "body", "changes"),
    [
        ("(float[1,90,100] x) => (float[1,1,100] y)", "y = ReduceL2 <axes = [1]> (x)", True),
        ("(float[9000] x) => (float[1] y)", "y = ReduceL2 <axes = [0]> (x)", False),
        ("(float x) => (float y)", "y = ReduceL2 (x)", False),
        ("(float[4,9000] x) => (float[1,1] y)", "y = ReduceL2 (x)", False),
        ("(float[2,6,3,3] x) => (float[2,6,3,3] y)", "y = LRN <size = 3> (x)", True),
        ("(float[2,6,3,3] x) => (float[2,6,3,3] y)", "y = LRN <size = 3, beta = 0.5> (x)", False),
        ("(float[2,C,3,3] x) => (float[2,C,3,3] y)", "y = LRN <size = 3> (x)", False),
        (GATES.format(4, 1), RESPONSE, True),
        (GATES.format(1, 4), RESPONSE, False),
        ("(float[2,3,0,4] x, float[2,5,4] w) => (float[?,?,?,?] y)", PRODUCT, False),
        ("(float[2,3,2,2,3,5] x) => (float[?,?,?,?,?,?] y)", SHUFFLE, True),
        ("(float[0,3,2,2,3,5] x) => (float[?,?,?,?,?,?] y)", SHUFFLE, False),
    ],
)
def test_ops_that_others_compute_faster(signature: str, body: str, changes: bool) -> None:
    proto = text_model(f'<ir_version: 9, opset_import: ["" : 13]> g {signature} {{ {body} }}')
    assert (reformulated(proto) != [node.op_type for node in proto.graph.node]) == changes


@pytest.mark.parametrize("size", range(1, 6))
def test_windows_of_an_lrn_are_those_of_the_standard(size: int) -> None:
    """onnxruntime has windows of odd sizes only. onnx's evaluator computes as many channels as the batch has images."""
    body = f"g (float[4,4,2,2] x) => (float[4,4,2,2] y) {{ y = LRN <size = {size}, alpha = 3.0> (x) }}"
    proto = text_model(f'<ir_version: 9, opset_import: ["" : 13]> {body}')
    graph = inference.lift(onnx_ir.serde.deserialize_model(proto))
    context = PassContext(None, kernels=NATIVE.kernels)  # type: ignore[arg-type]
    Pipeline((Reformulate(), RemoveDead())).run(graph, context)
    assert "Conv" in kinds(graph)
    feed = {"x": np.random.default_rng(size).normal(size=(4, 4, 2, 2)).astype(np.float32)}
    models = (proto, onnx.load_from_string(onnx_io.to_bytes(onnx_io.emit(graph))))
    expected, found = (ReferenceEvaluator(each).run(None, feed)[0] for each in models)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(("dtype", "channels", "bias"), [("float16", 4, 1.0), ("float", 512, 1.0), ("float", 4, 0.0)])
def test_an_lrn_of_another_type_of_many_channels_or_without_a_bias_stays(
    dtype: str, channels: int, bias: float
) -> None:
    """onnxruntime has no kernels for float16; of many channels it is as fast; 0 / 0 depends on rounding."""
    signature = f"({dtype}[1,{channels},2,2] x) => ({dtype}[1,{channels},2,2] y)"
    body = f"g {signature} {{ y = LRN <size = 3, bias = {bias}> (x) }}"
    graph = inference.lift(
        onnx_ir.serde.deserialize_model(text_model(f'<ir_version: 9, opset_import: ["" : 13]> {body}'))
    )
    context = PassContext(None, kernels=NATIVE.kernels)  # type: ignore[arg-type]
    Pipeline((Reformulate(),)).run(graph, context)
    assert kinds(graph) == ["LRN"]


def test_a_request_for_growth_counts_every_constant_once() -> None:
    body = "g (float[1,300,2,2] x) => (float[1,300,2,2] y) { y = LRN <size = 3> (x) }"
    graph = inference.lift(
        onnx_ir.serde.deserialize_model(text_model(f'<ir_version: 9, opset_import: ["" : 13]> {body}'))
    )
    context = PassContext(load_target("cpu-avx2"), kernels=NATIVE.kernels)
    Pipeline((Reformulate(),)).run(graph, context)
    assert [each.nbytes for each in context.growth.requests] == [4 * 300 * 300 + 4 * 300]


@pytest.mark.parametrize(("groups", "epsilon", "is_site"), [(4, 1e-5, True), (16, 1e-5, False), (4, 0.0, False)])
def test_means_per_channel_need_whole_channels_and_an_epsilon(groups: int, epsilon: float, is_site: bool) -> None:
    graph = inference.lift(onnx_ir.serde.deserialize_model(network(8, groups, epsilon=epsilon)))
    assert any(find_site(graph, op) is not None for op in graph.ops) == is_site
