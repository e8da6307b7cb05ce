"""`layoutopt explain`: text, JSON, and one line for each error."""

import json
from pathlib import Path

import onnx
import pytest
from command_line import Cli, relu

from layoutopt.explanation import Explanation

ASCEND = ("--target", "ascend-310")


def test_explain_names_both_sides_of_each_conversion_and_prices_the_alternatives(cli: Cli, model: str) -> None:
    found = cli("explain", model, *ASCEND)
    assert (found.code, found.err) == (0, "")
    assert "proven optimal" in found.out
    assert ". y: NCHW16c to NCHW" in found.out
    lines = [" ".join(line.split()) for line in found.out.splitlines()]
    assert "from Conv conv1 NCHW16c NCHW NCHW16c" in lines and "to graph output y NCHW NCHW" in lines
    assert "alternatives" in lines and "remedies" in lines


def test_the_record_is_the_explanation(cli: Cli, model: str) -> None:
    found = Explanation.model_validate_json(cli("explain", model, *ASCEND, "--json").out)
    assert found.target == "ascend-310" and found.model == model
    assert found.conversions and all(each.is_priced for each in found.conversions)
    few = json.loads(cli("explain", model, *ASCEND, "--json", "--limit", "0").out)
    assert [each["is_priced"] for each in few["conversions"]] == [False] * len(found.conversions)
    assert "alternatives" not in cli("explain", model, *ASCEND, "--limit", "0").out


def test_a_tensor_and_a_node(cli: Cli, model: str) -> None:
    for name in ("b", "conv0"):
        found = cli("explain", model, name, *ASCEND)
        assert found.code == 0
        assert "alternatives" in found.out and "kernel" in found.out
        assert json.loads(cli("explain", model, name, *ASCEND, "--json").out)["item"]["name"] == name


def test_a_model_without_conversions_takes_one_line(cli: Cli, tmp_path: Path) -> None:
    onnx.save(relu(), tmp_path / "relu.onnx")
    lines = cli("explain", "relu.onnx", *ASCEND).out.splitlines()
    assert [line for line in lines if "conversions" in line] == ["  conversions     0"]
    assert len(lines) == 3


def test_a_model_that_was_optimised_has_no_plan_to_explain(cli: Cli, model: str) -> None:
    assert cli("optimize", model, "-o", "out.onnx", *ASCEND, "--no-verify").code == 0
    found = cli("explain", "out.onnx", *ASCEND)
    assert found.code == 0
    assert "no plan  it has been optimised like this before" in found.out


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (
            ("conv2",),
            2,
            "error: conv2: there is no such tensor or node when formats are planned; near it are conv1, conv0",
        ),
        (("--target", "gpu-hopper,ascend-310"), 4, "a plan for several targets has no single price to explain"),
        (("--target", "nothing"), 4, "nothing"),
        (("--limit", "-1"), 2, "--limit"),
        (("--pin", "x"), 2, "not a pin"),
        (("--pin", "none=NHWC"), 6, "none: there is no such tensor to pin"),
        (("--dim", "N=2"), 2, "N"),
    ],
)
def test_errors_are_one_line(cli: Cli, model: str, arguments: tuple[str, ...], code: int, line: str) -> None:
    found = cli("explain", model, *arguments)
    assert found.code == code
    assert found.out == "" and line in found.err
    assert found.err.count("\n") == 1
