"""`--json` of every command: one object with the version of layoutopt, printed, or in a file that a second run replaces."""

import json
from pathlib import Path

import pytest
from command_line import PLANNED, Cli, assert_one_line

COMMANDS = {
    "optimize": ("model.onnx", "--no-verify", *PLANNED),
    "inspect": ("model.onnx", *PLANNED),
    "verify": ("model.onnx", "model.onnx"),
    "check": ("model.onnx",),
    "formats": ("NHWC",),
    "targets": ("gpu-hopper",),
    "list ops": ("Conv",),
    "list runtimes": (),
    "list passes": (),
    "list dialects": (),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_json(cli: Cli, model: str, command: str) -> None:
    arguments = (*command.split(), *COMMANDS[command])
    printed = cli(*arguments, "--json")
    assert (printed.code, printed.err) == (0, "")
    record = json.loads(printed.out)
    assert record["layoutopt_version"]
    for _ in range(2):
        written = cli(*arguments, "--json", "record.json")
        assert written.code == 0 and written.out != printed.out != ""
        assert json.loads(Path("record.json").read_text()).keys() - record.keys() == {"layoutopt_file"}
    Path("foreign.json").write_text("[]")
    refused = cli(*arguments, "--json", "foreign.json")
    assert refused.code == 8
    assert_one_line(refused.err)
    assert cli(*arguments, "--json", "foreign.json", "--force").code == 0


def test_json_takes_only_names_in_json_as_its_file(cli: Cli, model: str) -> None:
    assert json.loads(cli("formats", "--json", "NHWC").out)["name"] == "NHWC"
    assert json.loads(cli("inspect", "--json", model, *PLANNED).out)["model"] == model
    assert cli("formats", "NHWC", "--json=record").code == 0
    assert json.loads(Path("record").read_text())["name"] == "NHWC"


def test_quiet(cli: Cli, model: str) -> None:
    for command in (("verify", model, model), ("check", model), ("optimize", model, "--no-verify", *PLANNED)):
        done = cli(*command, "--quiet")
        assert (done.code, done.out, done.err) == (0, "", "")
