"""Explanations of plans: the two sides of a conversion, prices of alternatives, remedies and changes to the model."""

import onnx
import pytest
from text_models import text_model

from layoutopt import Explanation, explain
from layoutopt.errors import ArgumentError

TARGET = "ascend-310"


HEADER = '<ir_version: 10, opset_import: ["" : 18, "other" : 1]>'
DECLARED = f"""{HEADER} net (float[1,16,28,28] x) => (float[1,16,28,28] y) <float[16,16,3,3] v, float[16,16,3,3] w> {{
    [first] a = Conv <pads = [1, 1, 1, 1]> (x, v)
    [strange] b = other.Strange (a)
    [second] y = Conv <pads = [1, 1, 1, 1]> (b, w)
}}"""


def declared() -> onnx.ModelProto:
    """Two convolutions, and between them an op of a declared shape that runs in canonical formats only."""
    found = text_model(DECLARED)
    found.graph.value_info.append(onnx.helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, [1, 16, 28, 28]))
    return found


def explained(given: onnx.ModelProto, item: str | None = None, **options: object) -> Explanation:
    return explain(given, item, TARGET, **options)  # type: ignore[arg-type]


def test_a_conversion_names_the_two_sides_that_disagree() -> None:
    found = explained(declared())
    by_tensor = {each.tensor: each for each in found.conversions}
    assert [each.seconds for each in found.conversions] == sorted(
        (each.seconds for each in found.conversions), reverse=True
    )
    first = by_tensor["x"]
    assert (first.kind, first.producer.kind, first.producer.name, first.src) == ("cast", "graph input", "x", "NCHW")
    assert [(each.kind, each.name, each.format) for each in first.consumers] == [("Conv", "first", "NCHW16c")]
    last = by_tensor["y"]
    assert (last.producer.name, last.producer.format, last.consumers[0].kind) == ("second", "NCHW16c", "graph output")
    assert by_tensor["a"].consumers[0].candidates == ("NCHW",)
    assert found.plan is not None
    assert sum(each.percent for each in found.conversions) < 100


def test_an_op_without_a_rule_is_a_remedy_and_a_change_with_a_bound() -> None:
    found = explained(declared())
    conversions = {each.tensor: each for each in found.conversions}
    remedy = next(each for each in conversions["a"].remedies if "strange" in each.what)
    assert remedy.kind == "rule" and remedy.reason == "there is no layout rule for its op type"
    change = next(each for each in found.changes if each.kind == "rule")
    assert change.method == "bound" and "strange" in change.what
    assert remedy.saved_seconds is not None
    assert change.saved_seconds >= remedy.saved_seconds > 0
    # Without the op, the plan is at least as slow as the bound allows.
    other = explained(text_model(DECLARED.replace("other.Strange", "Identity"))).plan
    assert found.plan is not None and other is not None
    assert found.plan.seconds_after - change.saved_seconds >= other.seconds_after * (1 - 1e-6)


def test_an_input_is_priced_in_the_formats_of_its_readers() -> None:
    item = explained(declared(), "x").item
    assert item is not None
    extras = {each.format: each.extra_seconds for each in item.choices}
    assert extras["NCHW"] == 0.0
    assert extras["NCHW16c"] is not None and extras["NCHW16c"] < 0
    fixed = explained(declared(), "b").item
    assert fixed is not None and not fixed.choices
    assert fixed.note == "other::Strange strange produces one format only: there is no layout rule for its op type"
    weight = explained(declared(), "w").item
    assert weight is not None and weight.note.startswith("a constant")


def test_a_node_that_is_folded_has_no_choices() -> None:
    folded = f"""{HEADER} net (float[1,16,8,8] x) => (float[1,16,8,8] y) <float[16,16,1,1] v> {{
        [scale] s = Add (v, v)
        y = Conv (x, s)
    }}"""
    with pytest.raises(ArgumentError, match="scale: folded or fused into another op before planning"):
        explained(text_model(folded), "scale")


def test_a_mask_is_removed_by_channels_that_fill_the_blocks() -> None:
    masked = f"""{HEADER} net (float[1,16,56,56] x) => (float[1,16,56,56] y) <float[12,16,3,3] v, float[16,12,3,3] w> {{
        [in] a = Conv <pads = [1, 1, 1, 1]> (x, v)
        b = Log (a)
        [out] y = Conv <pads = [1, 1, 1, 1]> (b, w)
    }}"""
    found = explained(text_model(masked))
    mask = next(each for each in found.conversions if each.tensor == "b")
    assert (mask.src, mask.dst) == ("NCHW16c(any padding)", "NCHW16c(finite padding)")
    (remedy,) = (each for each in mask.remedies if each.kind == "channels")
    assert remedy.what == "16 in place of 12 channels in axis 1 of b"


def test_conversions_in_bodies_and_symbolic_sizes() -> None:
    looped = text_model(
        f"""{HEADER} net (float[1,16,H,12] x, int64 m) => (float[1,16,H,12] y) <bool t = {{1}}, float[16,16,3,3] v> {{
            [loop] y = Loop (m, t, x) <body = again (int64 i, bool c, float[1,16,H,12] s) => (bool d, float[1,16,H,12] r) {{
                d = Identity (c)
                [inner] r = Conv <pads = [1, 1, 1, 1]> (s, v)
            }}>
        }}"""
    )
    found = explained(looped, dims={"H": 6})
    assert [(each.name, each.low, each.high) for each in found.dims] == [("H", 6, 6)]
    first = next(each for each in found.conversions if each.tensor == "x")
    assert first.consumers[0].kind == "boundary of Loop"
    assert first.nbytes == 2 * 16 * 6 * 12 * 4  # read and written once
    item = explained(looped, "inner", dims={"H": 6}).item
    assert item is not None and item.body == "loop/body" and len(item.choices) > 1
    loop = explained(looped, "loop", dims={"H": 6}).item
    assert loop is not None and loop.note.startswith("the formats of its operands are chosen one by one")
