"""Sizes and values of test inputs: given or following from the graph, and given arrays."""

import json

import numpy as np
import onnx
import pytest
from onnx import parser
from parsed_models import parsed

import layoutopt
from layoutopt import inference, onnx_io
from layoutopt.cli import main
from layoutopt.errors import DimensionError, InputError
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes, Symbol, default_size, symbols
from layoutopt.ir.types import DType, TensorType, Value
from layoutopt.runtime.session import Session
from layoutopt.sample_inputs import (
    RangeKind,
    SampleInputs,
    prepare_inputs,
    sample_inputs_for,
    sizes_to_compare,
    symbols_of,
    value_ranges,
)
from layoutopt.sample_inputs.dimensions import Dimensions, plausible_sizes
from layoutopt.verification import verify_models
from layoutopt.verification.runs import Request, run_original

HEADS, WIDTH, VOCABULARY, POSITIONS = 4, 64, 50, 96

DECODER = """<ir_version: 8, opset_import: ["" : 17]>
decoder (int64[s0,s10] tokens, int64[s0,s77] mask, float[s0,4,s53,16] past_key, float[s0,4,s53,16] past_value)
=> (float[?,?,?] logits, float[?,?,?,?] key, float[?,?,?,?] value)
<int64 one = {1}, int64[1] first = {0}, int64[2] inner = {1, 2}, int64[1] row = {2}, int64[1] column = {3}, float shown = {1},
 float hidden = {-10000}, int64[2] wide = {4, 16}, int64[1] width = {64}, int64[2] flat = {-1, 64}>
{
    batch = Shape <start = 0, end = 1> (tokens) new = Shape <start = 1, end = 2> (tokens)
    past = Shape <start = 2, end = 3> (past_key) total = Add (past, new)
    begin = Squeeze (past) end = Squeeze (total) places = Range (begin, end, one)
    words = Gather (vocabulary, tokens) at = Gather (positions, places) x = Add (words, at)
    heads = Concat <axis = 0> (batch, new, wide) joined = Concat <axis = 0> (batch, new, width)
    rows = Reshape (x, flat) q1 = Gemm (rows, wq, bias) k1 = Gemm (rows, wk, bias) v1 = Gemm (rows, wv, bias)
    q2 = Reshape (q1, heads) k2 = Reshape (k1, heads) v2 = Reshape (v1, heads)
    q = Transpose <perm = [0, 2, 1, 3]> (q2) k3 = Transpose <perm = [0, 2, 1, 3]> (k2) v3 = Transpose <perm = [0, 2, 1, 3]> (v2)
    key = Concat <axis = 2> (past_key, k3) value = Concat <axis = 2> (past_value, v3)
    turned = Transpose <perm = [0, 1, 3, 2]> (key) scores = MatMul (q, turned)
    lower = Slice (causal, past, total, row) allowed = Slice (lower, first, total, column)
    seen = Where (allowed, scores, hidden) m4 = Unsqueeze (mask, inner) m = Cast <to = 1> (m4) off = Sub (shown, m)
    far = Mul (off, hidden) masked = Add (seen, far) weights = Softmax <axis = -1> (masked)
    mixed = MatMul (weights, value) back = Transpose <perm = [0, 2, 1, 3]> (mixed) merged = Reshape (back, joined)
    y = Add (x, merged) logits = MatMul (y, head)
}"""


def decoder() -> onnx.ModelProto:
    """A layer of GPT-2: Gemms, caches, a causal mask from a constant, position embeddings, an attention mask.

    The dimensions are called s0 (batch), s10 (new tokens), s53 (past) and s77 (past and new together).
    """
    weights = dict.fromkeys(("wq", "wk", "wv"), (WIDTH, WIDTH)) | {"bias": (WIDTH,), "head": (WIDTH, VOCABULARY)}
    causal = np.tril(np.ones((1, 1, POSITIONS, POSITIONS), bool))
    return parsed(DECODER, **weights, vocabulary=(VOCABULARY, WIDTH), positions=(POSITIONS, WIDTH), causal=causal)


def audio() -> onnx.ModelProto:
    """A stack of convolutions over samples, as speech models begin: one step is 320 samples, the first window 400."""
    steps = ((10, 5), (8, 4), (4, 2), (4, 2), (4, 2), (2, 2))
    body = " ".join(
        f"c{place} = Conv <strides = [{stride}]> (r{place}, w{place}) r{place + 1} = Relu (c{place})"
        for place, (_, stride) in enumerate(steps)
    )
    weights = {f"w{place}": (8, 8 if place else 1, kernel) for place, (kernel, _) in enumerate(steps)}
    nodes = f"r0 = Unsqueeze (samples, axis) {body} y = Transpose <perm = [0, 2, 1]> (r{len(steps)})"
    head = '<ir_version: 8, opset_import: ["" : 17]> net (float[?,s3] samples) => (float[?,?,?] y)'
    return parsed(f"{head} <int64[1] axis = {{1}}> {{ {nodes} }}", **weights)


def written(inputs: str, body: str, outputs: str = "float[?,?] y") -> onnx.ModelProto:
    """A model in onnx's text form."""
    head = '<ir_version: 8, opset_import: ["" : 18]>'
    return parser.parse_model(f"{head} net ({inputs}) => ({outputs}) {{ {body} }}")


def prepare(model: onnx.ModelProto, **options) -> tuple[SampleInputs, Sizes]:
    """The generator of test inputs of a model, and the inferred sizes; `options` are those of `prepare_inputs`."""
    content = model.SerializeToString()
    return prepare_inputs(content, inference.lift(onnx_io.from_message(onnx_io.parse_message(content))), **options)


def test_default_sizes_follow_from_names_and_positions() -> None:
    for name in ("batch", "batch_size", "N", "bs", "decoder_batch"):
        assert default_size(name, 1, 4, True) == 1
    for name in ("height", "W", "image_width"):
        assert default_size(name, 0, 2, True) == 224
    for name in ("sequence", "seq_len", "past_sequence_length", "num_tokens"):
        assert default_size(name, 0, 2, False) == 128
    assert [default_size(f"s{axis}", axis, 4, True) for axis in range(4)] == [1, 224, 224, 224]
    assert [default_size("k", axis, 2, False) for axis in range(2)] == [1, 128]
    assert default_size("batch_of_names[1]", 1, 2, True) == default_size("k", 0, 1, False) == 128


def test_dimensions_without_a_name_are_called_by_their_place() -> None:
    value = Value("x", TensorType(DType.FLOAT32, ("'a b'", 3, "?x[2]", "W")))
    assert symbols([value, value]) == [Symbol("a b", "'a b'", 1), Symbol("x[2]", "?x[2]", 224), Symbol("W", "W", 224)]
    graph = Graph()
    graph.inputs = [graph.add_value(value)]
    sizes = plausible_sizes(Dimensions.of(graph, {"a b": 2, "x[2]": (16, 64)}))
    assert sizes.ranges == {"a b": (2, 2), "x[2]": (16, 64), "W": (224, 224)}
    assert sizes.assumed == ("W",)
    assert [point["?x[2]"] for point in sizes.points] == [16, 32, 64]
    assert [point["'a b'"] for point in sizes.points] == [2, 2, 2]


def test_trials_are_of_sizes_that_are_planned_for_and_of_others() -> None:
    asked = [Symbol("batch", "batch", 1), Symbol("H", "H", 224), Symbol("W", "W", 224)]
    fixed = sizes_to_compare(asked, {})
    assert fixed[0] == {"batch": 1, "H": 224, "W": 224}
    assert fixed[1]["H"] % 2 and fixed[1]["W"] % 2 and fixed[1]["H"] != fixed[1]["W"] and fixed[1]["batch"] > 1
    assert any(not sizes["H"] % 32 and not sizes["W"] % 32 and sizes["H"] != 224 for sizes in fixed[1:])
    assert fixed[-1] == {"batch": 2, "H": 2, "W": 2}
    ranged = sizes_to_compare(asked, {"batch": (1, 16), "H": (64, 512), "W": (64, 512)})
    assert ranged[0] == {"batch": 1, "H": 64, "W": 64}
    assert ranged[2] == {"batch": 16, "H": 512, "W": 512}
    assert all(64 <= sizes["H"] <= 512 and 1 <= sizes["batch"] <= 16 for sizes in ranged)
    assert ranged[1]["H"] % 2
    assert sizes_to_compare([], {}) == [{}]


def reshaped(body: str) -> bytes:
    return written("float[N,4] x", body).SerializeToString()


BAKED = "t = Constant <value_ints: ints = [1, 4]> () y = Reshape (x, t)"


def test_a_model_that_is_right_at_one_size_only_is_found_out() -> None:
    original, baked = reshaped("y = Identity (x)"), reshaped(BAKED)
    assert verify_models(original, original).status == "passed"
    verdict = verify_models(original, baked)
    assert verdict.status == "failed"
    assert "the rewritten model cannot at N = 3" in verdict.reason
    assert verify_models(original, reshaped("n = Neg (x) y = Neg (n)")).status == "passed"


def test_sizes_that_the_original_cannot_run_are_passed_over() -> None:
    even = "t = Constant <value_ints: ints = [-1, 8]> () y = Reshape (x, t)"
    verdict = verify_models(reshaped(even), reshaped(even))
    assert verdict.status == "passed"
    assert len(verdict.sizes) > 1 and not any(size % 2 for sizes in verdict.sizes for _, size in sizes)
    assert [dict(sizes) for sizes in verify_models(reshaped(even), reshaped(even), dims={"N": (4, 6)}).sizes] == [
        {"N": 4},
        {"N": 6},
    ]
    never = "t = Constant <value_ints: ints = [1, 1001]> () y = Reshape (x, t)"
    verdict = verify_models(reshaped(never), reshaped(never))
    assert verdict.status == "not verified"
    assert "the original cannot be run at N = 1" in verdict.reason


def check_runs(model: onnx.ModelProto, inputs: SampleInputs, sizes: Sizes) -> None:
    """Run the model at the inferred sizes and at every guard point, on the first drawn values."""
    session = Session(model.SerializeToString(), is_optimised=False)
    for point in (*sizes.points, *sizes.guards):
        session.run(None, inputs.feed(session, inputs.dimensions.named(point)))


def test_a_decoder_has_a_cache_and_a_mask_over_old_and_new_tokens() -> None:
    inputs, sizes = prepare(decoder())
    size = {name: low for name, (low, _) in sizes.ranges.items()}
    assert size["s77"] == size["s53"] + size["s10"] <= POSITIONS
    assert size["s0"] == 1 and size["s10"] > 8 and size["s53"] > 8
    assert "cache" in sizes.reasons["s53"] and sizes.reasons["s77"].endswith("ties it to s10 and s53")
    check_runs(decoder(), inputs, sizes)
    assert sizes.guards and all(guard["s77"] == guard["s53"] + guard["s10"] for guard in sizes.guards)


def test_inferred_sizes_satisfy_the_relations_to_given_sizes() -> None:
    for dims, rest in (({"s77": 20, "s10": 1}, {"s53": 19}), ({"s53": 7, "s10": 3}, {"s77": 10})):
        _, sizes = prepare(decoder(), dims=dims)
        assert {name: sizes.ranges[name][0] for name in rest} == rest
        assert set(sizes.assumed) == {"s0", *rest}
    _, sizes = prepare(decoder(), dims={"s10": (1, 40), "s53": 8})
    assert sizes.ranges["s77"] == (9, 48)
    assert [point["s77"] for point in sizes.points] == [9, 14, 48]


def test_verification_keeps_the_relations_and_tries_an_empty_cache() -> None:
    content = decoder().SerializeToString()
    verdict = verify_models(content, content)
    sizes = [dict(each) for each in verdict.sizes]
    assert verdict.status == "passed" and verdict.depends_on_inputs and len(sizes) == 3
    assert all(each["s77"] == each["s53"] + each["s10"] for each in sizes)
    assert [each["s53"] for each in sizes].count(0) == 1
    assert len({each["s10"] for each in sizes}) > 1


def test_the_length_of_audio_follows_from_its_windows() -> None:
    inputs, sizes = prepare(audio())
    assert sizes.ranges == {"samples[0]": (1, 1), "s3": (16000, 16000)}
    assert "128 does not run" in sizes.reasons["s3"]
    check_runs(audio(), inputs, sizes)
    _, short = prepare(audio(), dims={"samples[0]": 2})
    assert short.ranges["s3"] == (16000, 16000) and short.assumed == ("s3",)


REQUIRED_SIZES = {
    "the inner extent of a product": (
        "float[a,b] x",
        "w = Constant <value = float[6,2] {1,2,3,4,5,6,7,8,9,10,11,12}> () y = MatMul (x, w)",
        {"b": 6},
    ),
    "the channels of a convolution": (
        "float[a,b,c,d] x, float[4,3,3,3] w",
        "t = Conv (x, w) y = Flatten (t)",
        {"b": 3},
    ),
    "concatenated operands": (
        "float[a,b] x, float[c,d] z",
        "t = Concat <axis = 1> (x, z) y = Relu (t)",
        {"a": 1, "c": 1},
    ),
    "halved images that are enlarged again": (
        "float[1,1,h,w] x",
        """p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
        q = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (p)
        s = Constant <value = float[4] {1.0, 1.0, 4.0, 4.0}> () e = Constant <value = float[0] {}> ()
        u = Resize <mode = "nearest"> (q, e, s) t = Add (u, x) y = Flatten (t)""",
        {},
    ),
}

MASKS = {
    "by coordinates, as torch.onnx.export with dynamo": """
        c = Max (b, k) e = Shape (c)
        b2 = Expand (b, e) b3 = Unsqueeze (b2, last) k2 = Expand (k, e) k3 = Unsqueeze (k2, last)
        at = Concat <axis = -1> (b3, k3) read = GatherND (mask, at)""",
    "flattened, as torch.onnx.export with TorchScript": """
        flat = Flatten <axis = 2> (mask) row = Mul (b, length) at = Add (k, row)
        found = Gather <axis = 0> (flat, at) read = Squeeze (found, last)""",
}


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_that_is_read_by_indices_is_as_long_as_the_cache(name: str) -> None:
    body = f"""
        i0 = Constant <value_int = 0> () i1 = Constant <value_int = 1> () last = Constant <value_ints = [-1]> ()
        whole = Concat <axis = 1> (past, new) y = Relu (whole)
        size = Shape <start = 0, end = 1> (past) batch = Squeeze (size) n = Range (i0, batch, i1) b = Unsqueeze (n, last)
        long = Shape <start = 1, end = 2> (whole) cache = Squeeze (long) k = Range (i0, cache, i1)
        length = Shape <start = 1, end = 2> (mask) {MASKS[name]}"""
    model = written("float[N,P,4] past, float[N,S,4] new, int64[N,T] mask", body, "float[?,?,?] y, int64[?,?] read")
    inputs, sizes = prepare(model, may_run=False)
    assert sizes.ranges["T"][0] == sizes.ranges["P"][0] + sizes.ranges["S"][0]
    check_runs(model, inputs, sizes)
    _, given = prepare(model, dims={"P": (1, 40), "S": 1})
    assert [point["T"] for point in given.points] == [2, 7, 41]


@pytest.mark.parametrize("name", REQUIRED_SIZES)
def test_required_sizes_are_inferred_without_a_trial_run(name: str) -> None:
    declared, body, expected_sizes = REQUIRED_SIZES[name]
    model = written(declared, body)
    _, sizes = prepare(model, may_run=False)
    assert {each: sizes.ranges[each][0] for each in expected_sizes} == expected_sizes
    check_runs(model, *prepare(model))
    verdict = verify_models(model.SerializeToString(), model.SerializeToString())
    assert verdict.status == "passed" and len(verdict.sizes) >= 1


def test_the_reason_names_a_model_that_runs_at_no_size() -> None:
    never = written(
        "float[a] x", "k = Constant <value_ints = [1]> () s = Shape (x) d = Add (s, k) y = Reshape (x, d)", "float[?] y"
    )
    _, sizes = prepare(never)
    assert "no sizes were found at which onnxruntime runs the model" in sizes.reasons["a"]


@pytest.mark.parametrize("name", ["?", "?1", "unk__7", "a b", "a'b", "x[1]", "H*W", ""])
def test_files_and_graphs_have_the_same_names_for_dimensions(name: str) -> None:
    model = written("float[N,M] x, float[4,3] w", "y = MatMul (x, w)")
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = name
    if not name:
        model.graph.input[0].type.tensor_type.shape.dim[1].Clear()
    _, sizes = prepare(model)
    assert list(sizes.ranges) == [symbol.name for symbol in symbols_of(Session(model.SerializeToString()))]
    assert [low for low, _ in sizes.ranges.values()] == [1, 4]
    verdict = verify_models(model.SerializeToString(), model.SerializeToString())
    assert verdict.status == "passed" and len(verdict.sizes) == 3


def test_sizes_that_need_too_much_memory_are_skipped_if_the_model_runs_at_others() -> None:
    model = written("float[N] x", "y = Relu (x)", "float[N] y").SerializeToString()
    session, samples = Session(model), sample_inputs_for(model, {"N": (2, 9)})
    run = session.run

    def run_small(names: object, feed: dict[str, np.ndarray], *_: object) -> object:
        if feed["x"].size > most:
            raise MemoryError("9 elements")
        return run(None, feed)

    session.run = run_small  # type: ignore[method-assign, assignment]
    most = 8
    runs, failures = run_original(session, Request(inputs=samples))
    assert {each.sizes["N"] for each in runs} == {2, 5}
    assert failures == [" at N = 9: 9 elements"]
    most = 1
    with pytest.raises(MemoryError):
        run_original(session, Request(inputs=samples))


VALUES = {
    "indices": ("float[5,4] w, int64[3] x", "y = Gather (w, x)", (RangeKind.INDEX, 0, 4)),
    "classes": (
        "int64[3] x",
        "d = Constant <value_ints = [257]> () v = Constant <value_floats = [0.0, 1.0]> () y = OneHot (x, d, v)",
        (RangeKind.INDEX, 0, 256),
    ),
    "classes that are compared with": (
        "int64[3,1] x",
        """a = Constant <value = int64 {0}> () b = Constant <value = int64 {5}> () s = Constant <value = int64 {1}> ()
        c = Constant <value = int64[1,5] {0, 1, 2, 3, 4}> () e = Equal (x, c) y = Cast <to = 1> (e)""",
        (RangeKind.INDEX, 0, 4),
    ),
    "a sample rate": (
        "float[2,3] w, int64 x",
        """c = Constant <value = int64 {16000}> () e = Equal (x, c)
        y = If (e) <then_branch = a () => (float[2,3] p) { p = Relu (w) },
        else_branch = b () => (float[2,3] q) { q = Neg (w) }>""",
        (RangeKind.CHOICE, 16000, 16000),
    ),
    "a mask": (
        "float[2,3] w, int64[2,3] x",
        """o = Constant <value = float {1.0}> () m = Constant <value = float {-10000.0}> ()
        f = Cast <to = 1> (x) n = Sub (o, f) p = Mul (n, m) l = Add (w, p) y = Softmax (l)""",
        (RangeKind.MASK, 0, 1),
    ),
    "lengths": (
        "float[2,6] w, int64[2] x",
        """a = Constant <value = int64 {0}> () b = Constant <value = int64 {6}> () s = Constant <value = int64 {1}> ()
        r = Range (a, b, s) k = Constant <value_ints = [1]> () u = Unsqueeze (x, k) m = Less (r, u)
        z = Constant <value = float {0.0}> () y = Where (m, w, z)""",
        (RangeKind.LENGTH, 1, 6),
    ),
    "a size": ("int64[2] x", "y = ConstantOfShape (x)", (RangeKind.SIZE, 1, 4)),
    "a logarithm": ("float[2,3] x", "y = Log (x)", (RangeKind.POSITIVE, 0.1, 10)),
}


@pytest.mark.parametrize("name", VALUES)
def test_random_values_are_within_the_range_that_the_graph_allows(name: str) -> None:
    declared, body, (kind, low, high) = VALUES[name]
    model = written(declared, body)
    content = model.SerializeToString()
    graph = inference.lift(onnx_io.from_message(onnx_io.parse_message(content)))
    assert value_ranges(graph)["x"].kind is kind
    inputs, session = SampleInputs.of(graph), Session(content)
    for seed in range(20):
        feed = inputs.draw(session, seed)
        assert low <= feed["x"].min() and feed["x"].max() <= high
        (result,) = session.run(None, feed)
        assert np.isfinite(result).all()
    assert verify_models(content, content).status == "passed"


def test_tokens_are_in_the_vocabulary_and_masks_have_both_values() -> None:
    inputs, _ = prepare(decoder())
    session = Session(decoder().SerializeToString())
    feed = inputs.draw(session, 0, {"s10": 9, "s77": 12})
    assert feed["tokens"].max() < VOCABULARY and len(set(feed["tokens"].flat)) > 4
    assert set(feed["mask"].flat) == {0, 1} and feed["past_key"].shape[1] == HEADS


def test_every_row_of_a_mask_has_masked_and_other_positions() -> None:
    model = written("float[2,3] w, bool[2,3] x", "m = Constant <value = float {-1e9}> () y = Where (x, w, m)")
    inputs, _ = prepare(model)
    for seed in range(4):
        mask = inputs.draw(Session(model.SerializeToString()), seed)["x"]
        assert mask.any(axis=1).all() and not mask.all(axis=1).any()


SHORT = written("float[N,3] x, float[3] z", "y = Add (x, z)", "float[N,3] y")
CLIPPED = written(
    "float[N,3] x, float[3] z", "s = Add (x, z) k = Constant <value = float {100.0}> () y = Min (s, k)", "float[N,3] y"
)
"""The same model, except for sums above 100."""


def test_models_are_compared_on_given_inputs() -> None:
    a, b = SHORT.SerializeToString(), CLIPPED.SerializeToString()
    small, large = ({"x": np.full((5, 3), size, np.float32)} for size in (1, 1000))
    assert verify_models(a, b).status == "passed"
    passed = verify_models(a, b, inputs=small)
    assert passed.status == "passed" and [dict(each) for each in passed.sizes] == [{"N": 5}]
    assert verify_models(a, b, inputs=large).status == "failed"
    assert verify_models(a, b, inputs=[small, large]).status == "failed"
    assert verify_models(a, b, inputs=[small, {"x": np.ones((2, 3), np.float32)}]).status == "passed"


def test_given_inputs_are_perturbed_in_the_second_set() -> None:
    inputs, _ = prepare(SHORT, given={"x": np.full((2, 3), 5, np.float32), "z": np.zeros(3, np.float32)})
    session = Session(SHORT.SerializeToString())
    (sample,) = inputs.sets(session, 0)
    first, second = list(sample.feeds)
    assert (first["x"] == 5).all() and not (second["x"] == 5).any()
    assert np.abs(second["x"] - 5).max() <= 0.05 and (second["z"] == 0).all()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"q": np.ones(3, np.float32)}, "q: no such input; there are x, z"),
        ({"z": np.ones(3)}, "z: the values are float64; the input is float32"),
        ({"x": np.array(["a"])}, "x: the values are string; the input is float32"),
        ({"z": np.ones(4, np.float32)}, "z: the values are 4; the input is 3"),
        ({"z": np.array(1, np.float32)}, "z: the values are a scalar; the input is 3"),
        ({"x": np.ones((2, 2), np.float32)}, "x: the values are 2x2; the input is 2x3"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(given: dict[str, np.ndarray], expected: str) -> None:
    for call in (
        lambda: verify_models(SHORT.SerializeToString(), SHORT.SerializeToString(), inputs=given),
        lambda: layoutopt.optimize(SHORT, "gpu-hopper", inputs=given),
    ):
        with pytest.raises(InputError) as caught:
            call()
        assert str(caught.value) == expected and caught.value.exit_code == 2


def test_given_inputs_determine_sizes() -> None:
    sets = [{"x": np.ones((rows, 3), np.float32)} for rows in (4, 7)]
    report = layoutopt.optimize(SHORT, "gpu-hopper", inputs=sets).report
    assert [(each.name, each.low, each.high, each.assumed) for each in report.dims] == [("N", 4, 7, False)]
    with pytest.raises(InputError, match="N is 4 in the values"):
        layoutopt.optimize(SHORT, "gpu-hopper", inputs=sets, dims={"N": (5, 9)})
    with pytest.raises(DimensionError):
        layoutopt.optimize(SHORT, "gpu-hopper", inputs=sets, dims={"M": 1})


def test_every_command_reads_files_of_inputs(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(SHORT, "a.onnx")
    onnx.save(CLIPPED, "b.onnx")
    np.savez("small.npz", x=np.ones((5, 3), np.float32))
    np.savez("large.npz", x=np.full((2, 3), 1000, np.float32))
    assert main(["verify", "a.onnx", "b.onnx", "--inputs", "small.npz", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sizes"] == [{"N": 5}]
    assert main(["verify", "a.onnx", "b.onnx", "--inputs", "small.npz", "--inputs", "large.npz"]) == 7
    assert main(["optimize", "a.onnx", "-o", "out.onnx", "-t", "gpu-hopper", "--inputs", "small.npz", "-q"]) == 0
    capsys.readouterr()
    for arguments in (["optimize", "a.onnx", "--dry-run"], ["verify", "a.onnx", "b.onnx"], ["bench", "a.onnx"]):
        assert main([*arguments, "--inputs", "none.npz"]) == 2
        output = capsys.readouterr()
        assert output.out == "" and "none.npz: no such file" in output.err and output.err.count("\n") == 1
