"""Values of test inputs: random values that the graph allows, and given arrays."""

import json

import numpy as np
import onnx
import pytest
from sized_models import HEADS, VOCABULARY, decoder, prepare, written

import layoutopt
from layoutopt import inference, onnx_io
from layoutopt.cli import main
from layoutopt.errors import DimensionError, InputError
from layoutopt.runtime.session import Session
from layoutopt.sample_inputs import RangeKind, SampleInputs, value_ranges
from layoutopt.verification import verify_models

# --- random values ------------------------------------------------------------------------------------------------------------

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
    "bytes scaled to 1": (
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
    "a speed factor": (
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
def test_random_values_are_within_the_range_that_the_graph_allows(name: str) -> None:
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


def test_tokens_are_in_the_vocabulary_and_the_first_mask_is_full() -> None:
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
def test_a_mask_keeps_the_first_position_for_both_polarities(body: str, kept: bool) -> None:
    model = written("float[2,3] w, bool[2,3] x", f"m = Constant <value = float {{-1e9}}> () {body}")
    inputs, _ = prepare(model)
    session = Session(model.SerializeToString())
    assert (inputs.draw(session, 0, is_first=True)["x"] == kept).all()
    assert (inputs.draw(session, 1)["x"][:, 0] == kept).all()


# --- given arrays ------------------------------------------------------------------------------------------------------

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
