"""Inputs that run: sizes of symbolic dimensions and values of inputs that follow from the graph, and arrays that are given."""

import json

import numpy as np
import onnx
import pytest
from onnx import helper
from sized_models import HEADS, POSITIONS, VOCABULARY, audio, decoder, written

import layoutopt
from layoutopt import inference, onnx_io
from layoutopt.cli import main
from layoutopt.errors import DimensionError, InputError
from layoutopt.ir.sizes import Sizes
from layoutopt.runtime.session import Session
from layoutopt.sample_inputs import (
    RangeKind,
    SampleInputs,
    Style,
    prepare_inputs,
    sample_inputs_for,
    symbols_of,
    value_ranges,
)
from layoutopt.verification import verify_models
from layoutopt.verification.original_runs import Budget, run_original


def prepare(model: onnx.ModelProto, **options) -> tuple[SampleInputs, Sizes]:
    content = model.SerializeToString()
    return prepare_inputs(content, inference.lift(onnx_io.from_message(onnx_io.parse_message(content))), **options)


def runs_at_once(model: onnx.ModelProto, inputs: SampleInputs, sizes: Sizes) -> None:
    """Whether the model runs at the inferred sizes and at every guard, on the first drawn values."""
    session = Session(model.SerializeToString(), optimises=False)
    assert inputs.dimensions is not None
    for point in (*sizes.points, *sizes.guards):
        session.run(None, inputs.feed(session, inputs.dimensions.named(point)))


# --- sizes -------------------------------------------------------------------------------------------------------------


def test_a_decoder_has_a_cache_and_a_mask_over_old_and_new_tokens() -> None:
    inputs, sizes = prepare(decoder(), may_run=False)
    size = {name: low for name, (low, _) in sizes.ranges.items()}
    assert size["s77"] == size["s53"] + size["s10"] <= POSITIONS
    assert size["s0"] == 1 and size["s10"] > 8 and size["s53"] > 8
    assert "cache" in sizes.reasons["s53"] and "tokens" in sizes.reasons["s10"]
    assert sizes.reasons["s77"].endswith("ties it to s10 and s53")
    runs_at_once(decoder(), inputs, sizes)
    for guard in sizes.guards:
        assert guard["s77"] == guard["s53"] + guard["s10"]
    assert any(guard["s10"] == 1 for guard in sizes.guards)


def test_sizes_that_are_given_leave_the_relations_to_the_others() -> None:
    for dims, rest in (({"s77": 20, "s10": 1}, {"s53": 19}), ({"s53": 7, "s10": 3}, {"s77": 10})):
        _, sizes = prepare(decoder(), dims=dims)
        assert {name: sizes.ranges[name][0] for name in rest} == rest
        assert set(sizes.assumed) == {"s0", *rest}
    _, sizes = prepare(decoder(), dims={"s10": (1, 40), "s53": 8})
    assert sizes.ranges["s77"] == (9, 48)
    assert [point["s77"] for point in sizes.points] == [9, 14, 48]


def test_verification_keeps_the_relations_and_tries_an_empty_cache() -> None:
    content = decoder(1).SerializeToString()
    verdict = verify_models(content, content)
    sizes = [dict(each) for each in verdict.sizes]
    assert verdict.status == "passed" and verdict.depends_on_inputs and len(sizes) == 3
    assert all(each["s77"] == each["s53"] + each["s10"] for each in sizes)
    assert [each["s53"] for each in sizes].count(0) == 1
    assert len({each["s10"] for each in sizes}) > 1


def test_audio_is_as_long_as_its_windows_say() -> None:
    inputs, sizes = prepare(audio(), may_run=False)
    assert sizes.ranges == {"samples[0]": (1, 1), "s3": (16000, 16000)}
    assert "the model divides it by 320" in sizes.reasons["s3"]
    runs_at_once(audio(), inputs, sizes)
    _, short = prepare(audio(), dims={"samples[0]": 2})
    assert short.ranges["s3"] == (16000, 16000) and short.assumed == ("s3",)


FORCED = {
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
    "windows of 7 x 7": (
        "float[1,c,d,8] x",
        "s = Constant <value_ints = [-1, 49, 8]> () t = Reshape (x, s) y = Flatten (t)",
        {},
    ),
    "a product of all that is left": (
        "float[a,2,c,c] x, float[5,288] w",
        "t = Flatten (x) u = Transpose <perm = [1, 0]> (w) y = MatMul (t, u)",
        {"c": 12},
    ),
    "a number of elements": ("float[a,4] x", "s = Constant <value_ints = [1, 1000]> () y = Reshape (x, s)", {"a": 250}),
    "operands side by side": (
        "float[a,b] x, float[c,d] z",
        "t = Concat <axis = 1> (x, z) y = Relu (t)",
        {"a": 1, "c": 1},
    ),
    "halves that meet again": (
        "float[1,1,h,w] x",
        """p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
        q = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (p)
        s = Constant <value = float[4] {1.0, 1.0, 4.0, 4.0}> () e = Constant <value = float[0] {}> ()
        u = Resize <mode = "nearest"> (q, e, s) t = Add (u, x) y = Flatten (t)""",
        {},
    ),
}


@pytest.mark.parametrize("name", FORCED)
def test_what_an_op_requires_is_met_without_a_try(name: str) -> None:
    declared, body, expected_sizes = FORCED[name]
    model = written(declared, body)
    inputs, sizes = prepare(model, may_run=False)
    assert {each: sizes.ranges[each][0] for each in expected_sizes} == expected_sizes
    runs_at_once(model, inputs, sizes)
    verdict = verify_models(model.SerializeToString(), model.SerializeToString())
    assert verdict.status == "passed" and len(verdict.sizes) >= 1


def test_images_may_have_their_channels_last() -> None:
    model = written(
        "float[s0,s1,s2,3] x, float[4,3,3,3] w", "t = Transpose <perm = [0,3,1,2]> (x) u = Conv (t, w) y = Flatten (u)"
    )
    _, sizes = prepare(model, may_run=False)
    assert {name: low for name, (low, _) in sizes.ranges.items()} == {"s0": 1, "s1": 224, "s2": 224}


def test_a_guess_that_the_runtime_refuses_is_replaced() -> None:
    """Only a run shows that the Reshape, whose target is computed, requires exactly 16 elements."""
    body = """k = Constant <value = float[1] {16.0}> () z = Sub (x, x) r = ReduceMax <keepdims = 0> (z)
    t = Add (r, k) n = Cast <to = 7> (t) y = Reshape (x, n)"""
    model = written("float[a,c] x", body, "float[?] y")
    tried, sizes = prepare(model)
    untried, _ = prepare(model, may_run=False)
    size = {name: low for name, (low, _) in sizes.ranges.items()}
    assert size["a"] * size["c"] == 16
    assert tried.planned == size and untried.planned != size
    assert "does not run" in sizes.reasons["c"]


def test_a_model_that_runs_at_no_size_says_so() -> None:
    never = written(
        "float[a] x", "k = Constant <value_ints = [1]> () s = Shape (x) d = Add (s, k) y = Reshape (x, d)", "float[?] y"
    )
    _, sizes = prepare(never)
    assert "no sizes were found at which onnxruntime runs the model" in sizes.reasons["a"]


def test_guesses_are_bounded_by_the_work_that_they_make() -> None:
    model = written("float[a,b,8] x", "t = Transpose <perm = [0,2,1]> (x) u = MatMul (x, t) y = Flatten (u)")
    inputs, _ = prepare(model)
    assert inputs.dimensions is not None
    point = inputs.dimensions.solved({"a": 1, "b": 1 << 16})
    assert point["b"] ** 2 <= 1 << 27


def test_a_report_says_from_what_a_size_was_inferred() -> None:
    report = layoutopt.optimize(audio(), "gpu-hopper", verify=False).report
    found = {each.name: each for each in report.dims}
    assert found["s3"].assumed and found["s3"].low == 16000 and "320" in found["s3"].reason
    notes = {note.where: note.reason for note in report.notes if note.source == "sizes"}
    assert notes["s3"].startswith("planned for 16000, inferred from: ") and "--dim" in notes["s3"]


# --- values ------------------------------------------------------------------------------------------------------------

VALUES = {
    "indices": ("float[5,4] w, int64[3] x", "y = Gather (w, x)", (RangeKind.INDEX, 0, 4)),
    "indices that are cast and shifted": (
        "float[5,4] w, float[3,1] x",
        """o = Constant <value = float {1.0}> () t = Sub (x, o) i = Cast <to = 7> (t) j = Flatten (i)
        g = Gather (w, j) y = Flatten (g)""",
        (RangeKind.INDEX, 1, 5),
    ),
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
    "bytes as fractions": (
        "float[2,3] x",
        "s = Constant <value = float {255.0}> () y = Div (x, s)",
        (RangeKind.BYTE, 0, 255),
    ),
    "bytes": ("float[2,3] x", "t = Cast <to = 2> (x) y = Cast <to = 1> (t)", (RangeKind.BYTE, 0, 255)),
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
    "a speed": (
        "float[2,3] w, float[1] x",
        "t = Mul (w, x) u = Ceil (t) y = Relu (u)",
        (RangeKind.FACTOR, 0.8, 1.2),
    ),
    "a logarithm": ("float[2,3] x", "y = Log (x)", (RangeKind.POSITIVE, 0.1, 10)),
    "an angle": ("float[2,3] x", "y = Acos (x)", (RangeKind.UNIT, -1, 1)),
    "indices of a body": (
        "float[5,4] w, int64[3,4] x, bool c",
        """y = If (c) <then_branch = a () => (float[3,4] p) { p = GatherElements (w, x) },
        else_branch = b () => (float[3,4] q) { q = GatherElements (w, x) }>""",
        (RangeKind.INDEX, 0, 4),
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_are_those_that_the_graph_allows(name: str) -> None:
    declared, body, (kind, low, high) = VALUES[name]
    model = written(declared, body)
    content = model.SerializeToString()
    graph = inference.lift(onnx_io.from_message(onnx_io.parse_message(content)))
    assert value_ranges(graph)["x"].kind is kind
    inputs, session = SampleInputs.of(graph), Session(content)
    for seed in range(20):
        feed = inputs.draw(session, seed, is_first=seed == 0)
        assert low <= feed["x"].min() and feed["x"].max() <= high
        (result,) = session.run(None, feed)
        assert np.isfinite(result).all()
    assert verify_models(content, content).status == "passed"


def test_tokens_are_of_the_vocabulary_and_masks_full_at_first() -> None:
    inputs, _ = prepare(decoder())
    session = Session(decoder().SerializeToString())
    first, second = (inputs.draw(session, seed, {"s10": 9, "s77": 12}, is_first=not seed) for seed in range(2))
    assert first["input_ids"].max() < VOCABULARY and len(set(first["input_ids"].flat)) > 4
    assert first["attention_mask"].all() and not second["attention_mask"].all()
    assert second["attention_mask"][:, 0].all() and first["past.0.key"].shape[1] == HEADS


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("y = Where (x, w, m)", True),
        ("y = Where (x, m, w)", False),
        ("n = Not (x) y = Where (n, w, m)", False),
        ("n = Not (x) y = Where (n, m, w)", True),
        ("f = Cast <to = 1> (x) p = Mul (f, m) y = Add (w, p)", False),
    ],
)
def test_a_mask_leaves_something_whichever_way_it_is_meant(body: str, kept: bool) -> None:
    model = written("float[2,3] w, bool[2,3] x", f"m = Constant <value = float {{-1e9}}> () {body}")
    inputs, _ = prepare(model)
    session = Session(model.SerializeToString())
    assert (inputs.draw(session, 0, is_first=True)["x"] == kept).all()
    assert (inputs.draw(session, 1)["x"][:, 0] == kept).all()


def test_a_sampling_grid_of_a_size_that_is_an_input() -> None:
    """Verification passes although random sizes of 0 and 1 fail, because the sizes must agree with the other input."""
    node = helper.make_node("AffineGrid", ["theta", "size"], ["y"])
    declared = [
        helper.make_tensor_value_info("theta", onnx.TensorProto.FLOAT, [2, 2, 3]),
        helper.make_tensor_value_info("size", onnx.TensorProto.INT64, [4]),
    ]
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None] * 4)
    graph = helper.make_graph([node], "grid", declared, [result])
    model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 20)])
    assert verify_models(model.SerializeToString(), model.SerializeToString()).status == "passed"


def test_plain_values_are_tried_where_random_ones_fail() -> None:
    """Ones are tried if random repeats of 0 and 1 fail, as for a Tile whose result has a fixed shape; no graph is needed."""
    model = written("float[2,3] w, int64[8] x", "t = Tile (w, x) y = Relu (t)", "float[2,3] y")
    graphless = SampleInputs()
    once = written("float[2,3] w, int64[2] x", "t = Tile (w, x) y = Add (t, w)", "float[2,3] y")
    assert run_original(Session(once.SerializeToString()), graphless, 7, Budget())[0]
    assert run_original(Session(model.SerializeToString()), graphless, 0, Budget()) == (
        [],
        run_original_refusals(model),
    )
    assert next(iter(Style)) is Style.RANDOM


def run_original_refusals(model: onnx.ModelProto) -> list[str]:
    return run_original(Session(model.SerializeToString()), SampleInputs(), 0, Budget())[1]


# --- given arrays ------------------------------------------------------------------------------------------------------

SHORT = written("float[N,3] x, float[3] z", "y = Add (x, z)", "float[N,3] y")
FAR = written(
    "float[N,3] x, float[3] z",
    "s = Add (x, z) k = Constant <value = float {100.0}> () y = Min (s, k)",
    "float[N,3] y",
)
"""The same unless a sum is above 100."""


def test_given_inputs_are_what_models_are_compared_on() -> None:
    a, b = SHORT.SerializeToString(), FAR.SerializeToString()
    small, large = ({"x": np.full((5, 3), size, np.float32)} for size in (1, 1000))
    assert verify_models(a, b).status == "passed"
    passed = verify_models(a, b, inputs=small)
    assert passed.status == "passed" and [dict(each) for each in passed.sizes] == [{"N": 5}]
    assert verify_models(a, b, inputs=large).status == "failed"
    assert verify_models(a, b, inputs=[small, large]).status == "failed"
    assert verify_models(a, b, inputs=[small, {"x": np.ones((2, 3), np.float32)}]).status == "passed"


def test_given_inputs_are_perturbed_a_little() -> None:
    inputs, _ = prepare(SHORT, given={"x": np.full((2, 3), 5, np.float32), "z": np.zeros(3, np.float32)})
    session = Session(SHORT.SerializeToString())
    (trial,) = inputs.sets(session, 0)
    first, second = list(trial.feeds)
    assert (first["x"] == 5).all() and not (second["x"] == 5).any()
    assert np.abs(second["x"] - 5).max() <= 0.05 and (second["z"] == 0).all()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"q": np.ones(3, np.float32)}, "q: no such input; there are x, z"),
        ({"z": np.ones(3)}, "z: the values are float64; the input is float32"),
        ({"z": np.ones(4, np.float32)}, "z: the values are 4; the input is 3"),
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


def test_given_inputs_give_sizes() -> None:
    sets = [{"x": np.ones((rows, 3), np.float32)} for rows in (4, 7)]
    report = layoutopt.optimize(SHORT, "gpu-hopper", inputs=sets).report
    assert [(each.name, each.low, each.high, each.assumed) for each in report.dims] == [("N", 4, 7, False)]
    with pytest.raises(InputError, match="N is 4 in the values"):
        layoutopt.optimize(SHORT, "gpu-hopper", inputs=sets, dims={"N": (5, 9)})
    with pytest.raises(DimensionError):
        layoutopt.optimize(SHORT, "gpu-hopper", inputs=sets, dims={"M": 1})


def test_files_of_inputs_go_to_every_command(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(SHORT, "a.onnx")
    onnx.save(FAR, "b.onnx")
    np.savez("small.npz", x=np.ones((5, 3), np.float32))
    np.savez("large.npz", x=np.full((2, 3), 1000, np.float32))
    np.savez("other.npz", q=np.ones(3, np.float32))
    np.save("one.npy", np.ones(3))
    assert main(["verify", "a.onnx", "b.onnx", "--inputs", "small.npz", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sizes"] == [{"N": 5}]
    assert main(["verify", "a.onnx", "b.onnx", "--inputs", "small.npz", "--inputs", "large.npz"]) == 7
    assert main(["optimize", "a.onnx", "-o", "out.onnx", "-t", "gpu-hopper", "--inputs", "small.npz", "-q"]) == 0
    capsys.readouterr()
    for arguments in (["optimize", "a.onnx", "--dry-run"], ["verify", "a.onnx", "b.onnx"], ["bench", "a.onnx"]):
        for file, expected in (
            ("other.npz", "q: no such input"),
            ("none.npz", "none.npz: no such file"),
            ("one.npy", "one.npy: a single array"),
            ("a.onnx", "a.onnx: not a file of numpy arrays"),
        ):
            assert main([*arguments, "--inputs", file]) == 2
            output = capsys.readouterr()
            assert output.out == "" and expected in output.err and output.err.count("\n") == 1


@pytest.mark.parametrize("name", ["?", "?1", "unk__7", "a b", "a'b", "x[1]", "H*W", ""])
def test_files_and_graphs_have_the_same_names_for_dimensions(name: str) -> None:
    """Dimensions have equal names in the graph and in a session, whatever names the exporter wrote."""
    model = written("float[N,M] x, float[4,3] w", "y = MatMul (x, w)")
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = name
    if not name:
        model.graph.input[0].type.tensor_type.shape.dim[1].Clear()
    _, sizes = prepare(model)
    assert list(sizes.ranges) == [symbol.name for symbol in symbols_of(Session(model.SerializeToString()))]
    assert [low for low, _ in sizes.ranges.values()] == [1, 4]
    verdict = verify_models(model.SerializeToString(), model.SerializeToString())
    assert verdict.status == "passed" and len(verdict.sizes) == 3


def test_an_operator_of_another_domain_with_a_known_name_says_nothing() -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 17, "custom" : 1]> g (float[N,3] x) => (float[N,3] y) {{ y = {op} (x) }}'
    )
    for op in ("custom.Conv", "custom.MatMul", "custom.Reshape", "custom.Expand"):
        graph = inference.lift(onnx_io.from_message(onnx.parser.parse_model(text.format(op=op))))
        assert SampleInputs.of(graph).planned.keys() == {"N"}


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
    runs, refusals = run_original(session, samples, 0, Budget())
    assert {each.sizes["N"] for each in runs} == {2, 5}
    assert refusals == [" at N = 9: 9 elements"]
    most = 1
    with pytest.raises(MemoryError):
        run_original(session, samples, 0, Budget())


def test_an_input_that_is_too_large_for_any_memory_cannot_be_run() -> None:
    model = written(f"float[{1 << 40},2] x", "y = Relu (x)", "float[M,2] y").SerializeToString()
    verdict = verify_models(model, model)
    assert verdict.status == "not verified"
    assert "elements are too many for any memory" in verdict.reason
