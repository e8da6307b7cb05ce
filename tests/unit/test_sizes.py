"""Sizes of symbolic dimensions: given and inferred sizes, prices over them, and the sizes of verification."""

from collections.abc import Sequence
from dataclasses import dataclass

import onnx
import onnx.parser

from layoutopt.cost import priced_with
from layoutopt.formats import Format
from layoutopt.ir.sizes import Sizes, Symbol, default_size, symbols
from layoutopt.ir.types import DType, Op, Signature, Storage, TensorType, Value
from layoutopt.ops import OperandFormats, estimated_volume
from layoutopt.sample_inputs import sizes_to_compare
from layoutopt.verification import verify_models

NCHW, NHWC = Storage(Format.parse("NCHW")), Storage(Format.parse("NHWC"))


def image(*shape: int | str) -> Value:
    return Value("x", TensorType(DType.FLOAT32, shape))


def test_default_sizes_follow_from_names_and_positions() -> None:
    for name in ("batch", "batch_size", "N", "bs", "decoder_batch"):
        assert default_size(name, 1, 4, True) == 1
    for name in ("height", "W", "image_width"):
        assert default_size(name, 0, 2, True) == 224
    for name in ("sequence", "seq_len", "past_sequence_length", "num_tokens"):
        assert default_size(name, 0, 2, False) == 128
    assert [default_size(f"s{axis}", axis, 4, True) for axis in range(4)] == [1, 224, 224, 224]
    assert [default_size("k", axis, 2, False) for axis in range(2)] == [1, 128]
    assert default_size("batch_of_names[1]", 1, 2, True) == 128


def test_dimensions_without_a_name_are_called_by_their_place() -> None:
    value = image("'a b'", 3, "?x[2]", "W")
    assert symbols([value, value]) == [Symbol("a b", "'a b'", 1), Symbol("x[2]", "?x[2]", 224), Symbol("W", "W", 224)]
    sizes = Sizes.of([value], {"a b": 2, "x[2]": (16, 64)})
    assert sizes.ranges == {"a b": (2, 2), "x[2]": (16, 64), "W": (224, 224)}
    assert sizes.assumed == ("W",)
    assert [point["?x[2]"] for point in sizes.points] == [16, 32, 64]
    assert [point["'a b'"] for point in sizes.points] == [2, 2, 2]


@dataclass(frozen=True)
class Counting:
    """Costs one second per element of the first operand of an op or a conversion."""

    name: str = "counting"
    dialect: str = "functions"

    def preferred_formats(self, op: Op) -> Sequence[OperandFormats]:
        return []

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        assert op.inputs[0] is not None and op.inputs[0].static_shape is not None
        return float(estimated_volume(op.inputs[0].static_shape))

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        assert value.static_shape is not None
        same = src.format.key(value.static_shape) == dst.format.key(value.static_shape)
        return 0.0 if same else float(estimated_volume(value.static_shape))


def test_a_price_is_the_mean_over_the_sizes() -> None:
    x, y = image("N", 8, "H", "H"), image("N", 8, "H", "H")
    sized = priced_with(Counting(), sizes=Sizes.of([x], {"N": (1, 9), "H": 2}))
    op = Op("Relu", (x,), (y,))
    assert sized.kernel_seconds(op, Signature((NCHW,), (NCHW,))) == 32 * (1 + 3 + 9) / 3
    assert sized.conversion_seconds(x, NCHW, NHWC) == 32 * (1 + 3 + 9) / 3
    assert sized.conversion_seconds(x, NCHW, NCHW) == 0
    x.type = TensorType(DType.FLOAT32, (1, 8, 2, 2))
    y.type = x.type
    assert sized.kernel_seconds(op, Signature((NCHW,), (NCHW,))) == 32


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


def model(body: str, inputs: str = "float[N,4] x") -> bytes:
    text = f'<ir_version: 8, opset_import: ["" : 18]> net ({inputs}) => (float[?,?] y) {{ {body} }}'
    return onnx.parser.parse_model(text).SerializeToString()


BAKED = "t = Constant <value_ints: ints = [1, 4]> () y = Reshape (x, t)"


def test_a_model_that_is_right_at_one_size_only_is_found_out() -> None:
    original, baked = model("y = Identity (x)"), model(BAKED)
    assert verify_models(original, original).status == "passed"
    verdict = verify_models(original, baked)
    assert verdict.status == "failed"
    assert "the rewritten model cannot at N = 3" in verdict.reason
    doubled = model(
        "o = Constant <value = float[1,1] {1}> () s = ReduceMax <keepdims = 1> (x) d = Shape (x) y = Identity (x)"
    )
    assert verify_models(original, doubled).status == "passed"


def test_sizes_that_the_original_cannot_run_are_passed_over() -> None:
    even = "t = Constant <value_ints: ints = [-1, 8]> () y = Reshape (x, t)"
    verdict = verify_models(model(even), model(even))
    assert verdict.status == "passed"
    assert [dict(sizes) for sizes in verdict.sizes] == [{"N": 2}, {"N": 4}]
    assert [dict(sizes) for sizes in verify_models(model(even), model(even), dims={"N": (4, 6)}).sizes] == [
        {"N": 4},
        {"N": 6},
    ]
    never = "t = Constant <value_ints: ints = [1, 1001]> () y = Reshape (x, t)"
    verdict = verify_models(model(never), model(never))
    assert verdict.status == "not verified"
    assert "the original cannot be run at N = 1" in verdict.reason
