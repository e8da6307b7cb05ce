"""Sizes of symbolic dimensions that follow from the graph, and sizes that do not fit into memory."""

import numpy as np
import onnx
import pytest
from sized_models import POSITIONS, audio, decoder, prepare, written

from layoutopt.ir.sizes import Sizes
from layoutopt.runtime.session import Session
from layoutopt.sample_inputs import SampleInputs, sample_inputs_for, symbols_of
from layoutopt.verification import verify_models
from layoutopt.verification.runs import Request, run_original


def check_runs(model: onnx.ModelProto, inputs: SampleInputs, sizes: Sizes) -> None:
    """Run the model at the inferred sizes and at every guard point, on the first drawn values."""
    session = Session(model.SerializeToString(), is_optimised=False)
    assert inputs.dimensions is not None
    for point in (*sizes.points, *sizes.guards):
        session.run(None, inputs.feed(session, inputs.dimensions.named(point)))


def test_a_decoder_has_a_cache_and_a_mask_over_old_and_new_tokens() -> None:
    inputs, sizes = prepare(decoder(), may_run=False)
    size = {name: low for name, (low, _) in sizes.ranges.items()}
    assert size["s77"] == size["s53"] + size["s10"] <= POSITIONS
    assert size["s0"] == 1 and size["s10"] > 8 and size["s53"] > 8
    assert "cache" in sizes.reasons["s53"] and "tokens" in sizes.reasons["s10"]
    assert sizes.reasons["s77"].endswith("ties it to s10 and s53")
    check_runs(decoder(), inputs, sizes)
    for guard in sizes.guards:
        assert guard["s77"] == guard["s53"] + guard["s10"]
    assert any(guard["s10"] == 1 for guard in sizes.guards)


def test_inferred_sizes_satisfy_the_relations_to_given_sizes() -> None:
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


def test_the_length_of_audio_follows_from_its_windows() -> None:
    inputs, sizes = prepare(audio(), may_run=False)
    assert sizes.ranges == {"samples[0]": (1, 1), "s3": (16000, 16000)}
    assert "the model divides it by 320" in sizes.reasons["s3"]
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
    "a product of flattened axes": (
        "float[a,2,c,c] x, float[5,288] w",
        "t = Flatten (x) u = Transpose <perm = [1, 0]> (w) y = MatMul (t, u)",
        {"c": 12},
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
    inputs, sizes = prepare(model, may_run=False)
    assert {each: sizes.ranges[each][0] for each in expected_sizes} == expected_sizes
    check_runs(model, inputs, sizes)
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
