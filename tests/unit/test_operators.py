"""The table of operators contains every operator."""

import json

import onnx
import onnx.defs
import pytest
from typer.testing import CliRunner

from layoutopt.cli.app import app
from layoutopt.ops import OPS_WITHOUT_RULE, rules
from layoutopt.report.operators import UNKNOWN, known_operators


def output_of(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["list", "ops", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_operator_of_onnx_has_a_rule_or_a_reason_to_have_none() -> None:
    kinds = {f"{each.domain}::{each.name}" if each.domain else each.name for each in onnx.defs.get_all_schemas()}
    assert not kinds - set(rules()) - set(OPS_WITHOUT_RULE)
    assert not [each.kind for each in known_operators() if each.reason == UNKNOWN]


def test_none_has_both() -> None:
    assert not set(rules()) & set(OPS_WITHOUT_RULE)


def test_opsets_are_those_at_which_an_operator_changed() -> None:
    found = {each.kind: each.opsets for each in known_operators()}
    assert found["Relu"][:3] == (7, 13, 14) and found["Squeeze"][:3] == (7, 11, 13) and found["Mish"][0] == 18
    assert found["com.microsoft.FusedConv"] == ()


def test_the_command() -> None:
    (conv,) = [each for each in json.loads(output_of("Conv", "--json=-"))["operators"] if not each["domain"]]
    assert conv["family"] == "convolution" and conv["opsets"][:2] == [7, 11]
    assert "com.microsoft.Gelu" in output_of("com.microsoft::gelu") and "its indices" in output_of("maxunpool")
    assert {each["family"] for each in json.loads(output_of("--family", "pooling", "--json=-"))["operators"]} == {
        "pooling"
    }


@pytest.mark.parametrize("arguments", [["no-such-operator"], ["--family", "no-such-family"]])
def test_what_is_not_there(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["list", "ops", *arguments]).exit_code != 0
