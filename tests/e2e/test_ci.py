"""`layoutopt ci`: models, budgets, the baseline, and the files that it writes."""

import json
from pathlib import Path
from xml.etree import ElementTree

import onnx
import pytest
from command_line import PLANNED, TARGET, Cli, assert_one_line, convolutions, files, relu

import layoutopt
from layoutopt.report.schema import Report

BASELINE = ("--baseline", "baseline.json")


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with a model that keeps a Transpose, one that stays unchanged, and a file that is no model."""
    folder = tmp_path / "models"
    (folder / "sub").mkdir(parents=True)
    onnx.save(convolutions(), folder / "net.onnx")
    onnx.save(relu(), folder / "sub" / "relu.onnx")
    return folder


def record(tmp_path: Path, name: str = "r.json") -> dict[str, dict[str, object]]:
    """The results in a JSON report, by model."""
    return {each["model"]: each for each in json.loads((tmp_path / name).read_text())["models"]}


def test_budgets_and_reports(cli: Cli, models: Path, tmp_path: Path) -> None:
    """A file that is no model is an error in every report, and the other models are checked."""
    reports = ("--target", "gpu-hopper", "--runtime", "any", "--junit", "j.xml", "--json", "r.json")
    assert cli("ci", "models", "--max-transposes", "9", *reports).code == 0
    done = cli("ci", "models", "--max-transposes", "0", "--max-casts", "0", "--min-speedup", "1.2", *reports)
    assert done.code == 13
    assert_one_line(done.err)
    assert record(tmp_path)["models/net.onnx"]["status"] == "over budget"

    (models / "broken.onnx").write_text("no model")
    done = cli("ci", "models", "--min-speedup", "1.2", *reports)
    assert done.code == 3
    assert_one_line(done.err)
    assert [line.split()[:2] for line in done.out.splitlines()[-3:]] == [
        ["models/broken.onnx", "error"],
        ["models/net.onnx", "passed"],
        ["models/sub/relu.onnx", "over"],
    ]
    assert {name: each["status"] for name, each in record(tmp_path).items()} == {
        "models/broken.onnx": "error",
        "models/net.onnx": "passed",
        "models/sub/relu.onnx": "over budget",
    }
    suites = ElementTree.parse(tmp_path / "j.xml").getroot()
    assert (suites.get("errors"), suites.get("failures")) == ("1", "1")
    assert files(tmp_path).keys() >= {"j.xml", "r.json"} and len(files(tmp_path)) == 5


@pytest.mark.parametrize("arguments", [("--target", "gpu-hopper"), ("--target", "cpu-avx2")])
def test_numbers_are_those_of_the_report_of_optimize(
    cli: Cli, models: Path, tmp_path: Path, arguments: tuple[str]
) -> None:
    assert cli("ci", "models", *arguments, "--json", "r.json").code == 0
    for name, found in record(tmp_path).items():
        assert (
            cli("optimize", name, *arguments, "--no-verify", "--no-calibrate", "--json", "o.json", "--force").code == 0
        )
        report = Report.model_validate_json((tmp_path / "o.json").read_text())
        numbers = found["numbers"]
        assert (numbers["transposes"], numbers["casts"]) == (report.after.transposes, report.after.casts)
        moving = [each for each in (*report.ops, *report.casts) if each.moves_data]
        assert numbers["transposes"] + numbers["casts"] == len(moving)
        casts = sum(each.bytes for each in report.casts if each.moves_data)
        assert numbers["bytes_moved"] >= casts and bool(numbers["bytes_moved"]) == bool(moving)


def test_the_baseline(cli: Cli, models: Path, tmp_path: Path) -> None:
    assert cli("ci", "models/net.onnx", *PLANNED, *BASELINE).code == 2  # there is no such file
    (tmp_path / "baseline.json").touch()
    assert cli("ci", "models", *PLANNED, *BASELINE, "--update-baseline").code == 0
    content = (tmp_path / "baseline.json").read_text()
    same = cli("ci", "models", *PLANNED, *BASELINE)
    assert (same.code, same.err, "warning" in same.out) == (0, "", False)

    worse = json.loads(content)
    worse["entries"][0]["numbers"] |= {"transposes": 0, "speed_up": 9.0}
    (tmp_path / "baseline.json").write_text(json.dumps(worse))
    onnx.save(convolutions(seed=1), models / "net.onnx")
    regressed = cli("ci", "models", *PLANNED, *BASELINE)
    assert regressed.code == 14
    assert_one_line(regressed.err)
    assert "has changed since the baseline" in regressed.out and "the baseline has 9" in regressed.out
    assert cli("ci", "models", *PLANNED, *BASELINE, "--min-speedup", "5").code == 13

    other = cli("ci", "models", "-t", "ascend-310", *BASELINE)
    assert other.code == 2 and "no entry for the target ascend-310" in other.err
    assert_one_line(other.err)
    assert cli("ci", "models/net.onnx", *PLANNED, *BASELINE, "--update-baseline").code == 0
    assert cli("ci", "models", *PLANNED, *BASELINE).code == 0


def test_github(cli: Cli, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "summary.md").write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(models))
    done = cli("ci", "models/net.onnx", "-t", TARGET, "--max-transposes", "0", "--github")
    assert done.code == 13
    lines = done.out.splitlines()
    assert lines[-1].startswith("::error file=net.onnx,title=layoutopt max-transposes::models/net.onnx: ")
    assert lines[0] == f"::stop-commands::{lines[-2].strip(':')}"
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("before\n<pre>layoutopt ci") and "the budget is 0" in summary


REFUSED = {
    "ci": 2,
    "ci empty": 3,
    "ci none*.onnx": 3,
    "ci models --junit models/net.onnx": 2,
    "ci models --junit a.json --json a.json": 2,
    "ci models --baseline base.json --junit base.json": 2,
    "ci models --junit note.txt": 8,
    "ci models --json=note.txt": 8,
    "ci models --baseline note.txt": 2,
    "ci models --baseline note.txt --update-baseline": 8,
    "ci models --update-baseline": 2,
    "ci models --max-bytes-moved 12XB": 2,
    "ci models --min-speedup nan": 2,
    "ci models --max-casts -1": 2,
    "ci models --github --json -": 2,
    "ci models -t nowhere": 4,
    "ci models --dim x": 2,
}


@pytest.mark.parametrize("command", REFUSED)
def test_commands_that_are_refused_before_a_model_is_planned(
    cli: Cli, models: Path, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layoutopt.api, "optimize", None)
    (tmp_path / "empty").mkdir()
    (tmp_path / "note.txt").write_text("mine")
    (tmp_path / "base.json").write_text('{"layoutopt_baseline": 1}')
    before = files(tmp_path)
    done = cli(*command.split())
    assert (done.code, done.out) == (REFUSED[command], "")
    assert_one_line(done.err)
    assert files(tmp_path) == before


def test_models_are_found_once_and_names_may_contain_anything(cli: Cli, models: Path, tmp_path: Path) -> None:
    (models / ".hidden").mkdir()
    for name in (".hidden/h.onnx", "sub/a%::b,\nc.onnx"):
        onnx.save(relu(), models / name)
    (tmp_path / "link.onnx").symlink_to(models / "net.onnx")
    done = cli("ci", "models", "models/**/*.onnx", "link.onnx", *PLANNED, "--json", "r.json")
    assert done.code == 0 and len(done.out.splitlines()) == 4 + 4
    found = ["models/net.onnx", "models/sub/a%::b,\nc.onnx", "models/sub/relu.onnx", "link.onnx"]
    assert list(record(tmp_path)) == found


def test_a_fault_of_layoutopt_is_a_result_of_one_model(
    cli: Cli, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def optimize(model: Path, *_: object, **__: object) -> None:
        raise MemoryError if model.name == "net.onnx" else IndexError("x")

    monkeypatch.setattr(layoutopt.api, "optimize", optimize)
    done = cli("ci", "models", *PLANNED, "--json", "r.json")
    assert done.code == 1
    assert [line.partition(";")[0] for line in done.err.splitlines()] == [
        "error: models/net.onnx: not enough memory",
        "internal error: models/sub/relu.onnx: IndexError: x",
    ]
    messages = [each["findings"][0]["message"].partition(";")[0] for each in record(tmp_path).values()]  # type: ignore[index]
    assert messages == ["not enough memory", "internal error: IndexError: x"]


def test_the_configuration_sets_options_and_budgets(cli: Cli, models: Path, tmp_path: Path) -> None:
    config = 'target = "gpu-hopper"\n[models."relu.onnx".budgets]\nmin-speedup = 1000\n'
    (tmp_path / "layoutopt.toml").write_text(config)
    assert cli("ci", "models", "--json", "r.json").code == 13
    found = record(tmp_path)
    assert {each["target"] for each in found.values()} == {"gpu-hopper"}
    assert found["models/sub/relu.onnx"]["budgets"] == {"min-speedup": 1000}
    assert found["models/net.onnx"]["budgets"] == {}
    assert cli("ci", "models", "--min-speedup", "1").code == 0  # the command line comes before the configuration
    assert cli("ci", "models", "--max-bytes-moved", "12MB", "--min-speedup", "1").code == 0
    assert cli("ci", "models", "--config", "none", "-t", TARGET).code == 0
