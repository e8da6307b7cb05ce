"""`optimize` without a command name and without -o, of several models, and in pipes."""

import io
import json
import sys
from pathlib import Path

import onnx
import pytest
from command_line import PLANNED, Cli, assert_one_line, convolutions, files, relu

from layoutopt.cli import main
from layoutopt.cli.model_files import place

FAST = ("--no-verify", "-q", *PLANNED)


def save(*paths: str) -> None:
    for path in paths:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        onnx.save(convolutions(), path)


def outputs(*arguments: str, output: str | None = None) -> dict[str, str]:
    return {str(each.model): str(each.output) for each in place([Path(name) for name in arguments], output)}


# --- one model ---------------------------------------------------------------------------------------------


def test_the_default_output_is_next_to_the_model(cli: Cli, model: str, tmp_path: Path) -> None:
    assert cli(model, *FAST).code == cli("optimize", model, "-o", "named.onnx", *FAST).code == 0
    assert files(tmp_path).keys() == {"model.onnx", "model.opt.onnx", "named.onnx"}
    assert Path("model.opt.onnx").read_bytes() == Path("named.onnx").read_bytes()
    assert cli(*FAST, model).code == 0  # options may come first, and its own result is replaced


# --- several models ----------------------------------------------------------------------------------------


def test_placements(cli: Cli) -> None:
    save("a.onnx", "m/b.onnx", "m/sub/c.onnx", "m/.hidden/d.onnx")
    expected = {"m/b.onnx": "out/b.onnx", "m/sub/c.onnx": "out/sub/c.onnx"}
    assert outputs("m", output="out") == outputs("m/**/*.onnx", output="out") == expected
    assert outputs("a.onnx", "m", output="out") == {"a.onnx": "out/a.onnx", **expected}


def test_results_are_no_models(cli: Cli, tmp_path: Path) -> None:
    """A second run finds the same models, whether the results are next to them, in a folder below, or named by the shell."""
    save("m/a.onnx", "m/foreign.opt.onnx")
    assert cli("m", *FAST).code == cli("m", "-o", "m/out", *FAST).code == 0
    names = {"m/a.onnx", "m/foreign.opt.onnx"}
    for found in (outputs("m"), outputs("m", output="m/out"), outputs("m", output="new"), outputs("m/**/*.onnx")):
        assert found.keys() == names
    assert outputs(*(str(path) for path in Path("m").glob("*.onnx"))).keys() == names


def test_failures_are_isolated(cli: Cli, tmp_path: Path) -> None:
    save("m/a.onnx", "m/sub/c.onnx")
    Path("m/b.onnx").write_text("no model")
    Path("m/empty.onnx").touch()
    done = cli("m", "-o", "out", "--no-verify", *PLANNED)
    assert done.code == 3
    assert [line.split(":")[1].strip() for line in done.err.splitlines()] == ["m/b.onnx", "m/empty.onnx"]
    assert done.out.splitlines()[-1].startswith("4 models: 2 rewritten")
    assert files(tmp_path / "out").keys() == {"a.onnx", "sub/c.onnx"}


def test_one_line_of_json_per_model(cli: Cli, tmp_path: Path) -> None:
    save("a.onnx", "b.onnx")
    Path("c.onnx").write_text("no model")
    arguments = ("a.onnx", "c.onnx", "b.onnx", "-o", "out", "--no-verify", *PLANNED, "--json")
    printed = cli(*arguments)
    lines = [json.loads(line) for line in printed.out.splitlines()]
    assert [each["model"] for each in lines] == ["a.onnx", "c.onnx", "b.onnx"]
    assert lines[1]["exit_code"] == printed.code == 3 and all("layoutopt_version" in each for each in lines)
    for _ in range(2):
        assert cli(*arguments, "models.jsonl", "-q").code == 3
    assert len(Path("models.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("m/a.onnx n/a.onnx -o out", "is the result of m/a.onnx and of n/a.onnx"),
        ("m n -o out", "is the result of"),
        ("m p", "is the result of p/a.onnx, and a model that is read"),
        ("m -o m --force", "is the result of m/a.onnx, and a model that is read"),
        ("m -o link --force", "is the result of m/a.onnx, and a model that is read"),
        ("m/a.onnx -o m --force", "is the result of m/a.onnx, and a model that is read"),
        ("m -o m/a.onnx", "several models need a folder"),
        ("m n --external-data w.bin", "is for one model"),
        ("m/a.onnx n/a.onnx", "n/a.onnx: exists and is no result of m/a.onnx; write -o n/a.onnx --force to replace it"),
    ],
)
def test_nothing_is_written_on_a_wrong_request(cli: Cli, tmp_path: Path, arguments: str, expected: str) -> None:
    save("m/a.onnx", "n/a.onnx", "p/a.onnx")
    Path("link").symlink_to("m")
    onnx.save(relu(), "p/a.opt.onnx")
    before = files(tmp_path)
    refused = cli(*arguments.split(), *FAST)
    assert refused.code == 2
    assert expected in refused.err
    assert_one_line(refused.err)
    assert files(tmp_path) == before and not Path("out").exists()


# --- pipes -------------------------------------------------------------------------------------------------


def test_a_pipe(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.chdir(tmp_path)
    content = Path(model).read_bytes()
    assert main([model, "-o", "out.onnx", *FAST]) == 0
    for arguments in (("-",), ("-", "-o", "-"), (model, "-o", "-")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert main([*arguments, "--no-verify", *PLANNED]) == 0
        printed = capsysbinary.readouterr()
        assert Path("out.onnx").read_bytes().startswith(printed.out)  # and ends with the mark of the file
        assert b"to stdout" in printed.err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"no model at all")))
    assert main(["-", "-o", "new.onnx"]) == 3
    assert not Path("new.onnx").exists()
