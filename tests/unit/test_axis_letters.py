"""Letters of axes: roles spread from the ops that define them, and formats are printed and pinned with them."""

import json

import onnx
import pytest
import zoo
from parsed_models import text_model
from tiers import quick_first

import layoutopt
from layoutopt import inference, onnx_io
from layoutopt.cli.model_comparison import recorded_pins
from layoutopt.formats import Format
from layoutopt.inference.axis_letters import infer_axis_letters
from layoutopt.ir.graph import Graph

CHANNELS_LAST = """
<ir_version: 8, opset_import: ["" : 17]>
keras (float[2,16,16,8] image) => (float[2,16,16,16] y)
<float[16,8,3,3] w, float[1,1,1,16] shift>
{
   first = Transpose <perm = [0, 3, 1, 2]> (image)
   conv = Conv <pads = [1, 1, 1, 1]> (first, w)
   last = Transpose <perm = [0, 2, 3, 1]> (conv)
   sum = Add (last, shift)
   y = Relu (sum)
}"""


LOOP = """
<ir_version: 8, opset_import: ["" : 17]>
steps (float[2,16,16,8] image, bool go) => (float[2,16,16,8] y)
<float[8,8,1,1] w, int64 count = {3}>
{
   y = Loop (count, go, image)
   <body = step (int64 index, bool before, float[2,16,16,8] state) => (bool after, float[2,16,16,8] next)
      {
         after = Identity (before)
         x = Transpose <perm = [0, 3, 1, 2]> (state)
         z = Conv (x, w)
         next = Transpose <perm = [0, 2, 3, 1]> (z)
      }>
}"""


def letters_of(model: onnx.ModelProto) -> tuple[Graph, dict[str, str]]:
    """The lifted graph, and the letters of its values by name, in bodies too."""
    graph = inference.lift(onnx_io.from_message(model))
    infer_axis_letters(graph)
    return graph, {value.name: value.axis_letters or "" for each in graph.regions() for value in each.values}


def test_a_channels_last_model_has_channels_last_letters_outside_of_its_transposes() -> None:
    _, letters = letters_of(text_model(CHANNELS_LAST))
    assert {name: letters[name] for name in ("image", "last", "sum", "y", "shift")} == dict.fromkeys(
        ("image", "last", "sum", "y", "shift"), "NHWC"
    )
    assert letters["first"] == letters["conv"] == "NCHW"


def test_a_tensor_of_more_axes_than_letters_has_none() -> None:
    wide = CHANNELS_LAST.replace("float[1,1,1,16]", f"float[{'1,' * 17}16]").replace("float[2,16,16,16] y", "float y")
    _, letters = letters_of(text_model(wide))
    assert letters["sum"] == "" and letters["last"] == "NHWC"


def test_letters_spread_through_the_boundary_of_a_loop() -> None:
    _, letters = letters_of(text_model(LOOP))
    assert letters["image"] == letters["y"] == letters["state"] == letters["next"] == "NHWC"
    assert letters["x"] == letters["z"] == "NCHW"


@pytest.mark.parametrize("name", quick_first(("mobilenetv2", "segformer_b0", "whisper_enc"), zoo.NAMES))
def test_letters_are_distinct_and_as_many_as_axes(name: str) -> None:
    graph, _ = letters_of(zoo.load(name))
    named = [value for each in graph.regions() for value in each.values if value.axis_letters]
    assert named
    for value in named:
        assert len(set(value.axis_letters)) == len(value.axis_letters) == value.rank
        assert Format.parse(
            value.format_text(Format.canonical(len(value.axis_letters))), value.axis_letters
        ).is_canonical


@pytest.mark.parametrize(
    ("pin", "order"),
    [
        ("NHWC", (0, 1, 2, 3)),
        ("NCHW", (0, 3, 1, 2)),
        ("NCHW8c", (0, 3, 1, 2)),
        ("NC1HWC0", (0, 3, 1, 2)),  # blocks of the element type
        ("KCRS", (0, 1, 2, 3)),  # other letters: logical order
        ("d0,d2,d3,d1", (0, 2, 3, 1)),
        (Format.plain((0, 2, 3, 1)), (0, 2, 3, 1)),
    ],
)
def test_a_pin_has_the_letters_of_its_tensor(pin: str | Format, order: tuple[int, ...]) -> None:
    result = layoutopt.optimize(text_model(CHANNELS_LAST), "gpu-hopper", pins={"image": pin}, dialect="ops")
    assert result.report.verification.status == "passed"
    value = result.graph.find("image")
    assert value.storage.format.order == order
    block = {"NCHW8c": 8, "nChw8c": 8, "NC1HWC0": 16}.get(str(pin), 1)
    assert value.storage.format.block(3) == block
    metadata = {each.key: each.value for each in result.proto.metadata_props}
    assert recorded_pins(metadata, result.graph) == {"image": value.storage.format}


def test_the_stamp_has_the_letters_of_pins_and_is_recognised() -> None:
    pins = {"image": "NCHW", "y": Format.plain((0, 3, 1, 2))}
    result = layoutopt.optimize(text_model(CHANNELS_LAST), "gpu-hopper", runtime="compiler", pins=pins)
    metadata = {each.key: each.value for each in result.proto.metadata_props}
    stamp = json.loads(metadata["layoutopt"])
    assert stamp["pins"] == {"image": "NCHW", "y": "d0,d3,d1,d2"}
    assert stamp["pin_axes"] == {"image": "NHWC", "y": "NHWC"}
    assert recorded_pins(metadata, result.graph) == dict.fromkeys(("image", "y"), Format.plain((0, 3, 1, 2)))
    again = layoutopt.optimize(result.proto, "gpu-hopper", runtime="compiler", pins=pins)
    assert (again.report.changed, again.plan) == (False, None)
    other = layoutopt.optimize(
        result.proto, "gpu-hopper", runtime="compiler", pins={**pins, "image": "NHWC"}, verify=False
    )
    assert other.plan is not None
