"""Files of the commands: no file of a user is replaced, names may contain all bytes, and full devices are reported."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from command_line import PLANNED, TARGET, Cli, assert_one_line, convolutions, files

from layoutopt.runtime.session import Session

EVIL = "conv\x1b[2J\x9b\u202e\x00<&\ufffe"  # controls, a mark that turns text around, what XML cannot hold


def save(path: str, seed: int = 0, data: str | None = None) -> str:
    onnx.save(convolutions(seed), path, save_as_external_data=data is not None, location=data, size_threshold=0)
    return path


def computed(path: str | Path) -> object:
    x = np.random.default_rng(0).normal(size=(1, 24, 24, 16)).astype(np.float32)
    return Session(path).run(None, {"x": x})[0]


# --- what is replaced --------------------------------------------------------------------------------------

KEPT = {
    "weights of the model": "optimize a.onnx -o b.onnx --external-data w.bin",
    "the model as weights": "optimize a.onnx -o b.onnx --external-data a.onnx",
    "a model as weights": "optimize a.onnx -o b.onnx --external-data sibling.onnx",
    "weights of a sibling": "optimize single.onnx -o b.onnx --external-data v.bin",
    "weights as the model": "optimize a.onnx -o w.bin",
    "weights of a sibling as the model": "optimize a.onnx -o v.bin",
    "a text as the model": "optimize a.onnx -o notes.txt",
    "weights as a report": "optimize a.onnx -o b.onnx --json=w.bin",
    "a model as a report": "optimize a.onnx --json=sibling.onnx",
    "another JSON as a report": "optimize a.onnx --json config.json",
    "the model as a page": "inspect a.onnx --html a.onnx",
    "weights as a page": "optimize a.onnx -o b.onnx --html w.bin",
    "another page": "optimize a.onnx -o b.onnx --html site.html",
    "one file as report and page": "optimize a.onnx --json=new --html new",
    "the model as a record": "check a.onnx --json=a.onnx",
    "weights as a record": "bench a.onnx --json=w.bin",
    "a dump": "inspect a.onnx --dump-ir dumps",
    "somebody's target": "calibrate -o mine.toml",
}
NEVER = (
    *("weights of the model", "the model as weights", "weights as the model", "weights as a report"),
    *("the model as a page", "weights as a page", "one file as report and page"),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save("a.onnx", data="w.bin")
    save("sibling.onnx", 1, data="v.bin")
    save("single.onnx", 2)
    (tmp_path / "dumps").mkdir()
    texts = {
        "notes.txt": "precious",
        "config.json": "{}",
        "site.html": "<!DOCTYPE html><title>mine</title>",
        "mine.toml": "a = 1",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    for number in range(20):
        for moment in ("before", "after"):
            (tmp_path / "dumps" / f"{number:02}-{moment}-share-constants.txt").write_text("precious")
    return tmp_path


@pytest.mark.parametrize("case", KEPT)
def test_what_belongs_to_somebody_is_kept(cli: Cli, folder: Path, case: str) -> None:
    before = files(folder)
    arguments = KEPT[case].split()
    arguments += [*PLANNED] if arguments[0] in ("optimize", "inspect") else []
    refused = cli(*arguments)
    assert refused.code in (2, 8), refused
    assert_one_line(refused.err)
    assert files(folder) == before
    if case in NEVER:
        assert cli(*arguments, "--force").code in (2, 8)
        assert files(folder) == before


def test_every_command_replaces_what_it_wrote(cli: Cli, folder: Path) -> None:
    for command in (
        f"optimize a.onnx -o b.onnx --external-data u.bin --json r.json -t {TARGET} --runtime compiler",
        f"inspect a.onnx -t {TARGET} --runtime compiler --dump-ir graphs",
        f"optimize a.onnx --html h.html -t {TARGET} --runtime compiler",
        f"inspect a.onnx -t {TARGET} --runtime compiler --html i.html",
        "check a.onnx --json c.json",
    ):
        for _ in range(2):
            assert (done := cli(*command.split())).code == 0, done
    assert not [name for name in files(folder) if "tmp" in name]


def test_in_place_with_external_data(cli: Cli, folder: Path) -> None:
    """It works also if a sibling shares the weights; the summary names the new file and the remaining old one."""
    (folder / "shares.onnx").write_bytes((folder / "sibling.onnx").read_bytes())
    expected = {name: computed(name) for name in ("a.onnx", "sibling.onnx")}
    done = cli("optimize", "a.onnx", "-o", "a.onnx", "--external-data", "w.bin", *PLANNED)
    assert done.code == 0, done
    new = next(path.name for path in folder.glob("w-*.bin"))
    assert (
        f"a.onnx, {new}" in done.out and "unused" in done.out.splitlines()[-1] and "w.bin" in done.out.splitlines()[-1]
    )
    again = cli("optimize", "a.onnx", "-o", "a.onnx", "--external-data", "w.bin", *PLANNED)
    assert again.code == 0 and "left unchanged" in again.out and new in again.out and "unused" not in again.out
    assert cli("optimize", "sibling.onnx", "-o", "sibling.onnx", "--external-data", "v.bin", *PLANNED).code == 0
    for name, output in {**expected, "shares.onnx": expected["sibling.onnx"]}.items():
        assert np.allclose(computed(name), output, atol=1e-3)


# --- names -------------------------------------------------------------------------------------------------


def test_names_of_all_bytes(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / os.fsdecode(b"f\xff")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system has no such names")
    monkeypatch.chdir(folder)
    source, out, report = (os.fsdecode(name) for name in (b"caf\xe9.onnx", b"d\xe9j\xe0.onnx", b"r\xff.json"))
    save(str(tmp_path / "m.onnx"), data="w.bin")
    for old, new in (("m.onnx", source), ("w.bin", "w.bin")):
        os.rename(tmp_path / old, new)
    for target in (TARGET, "cpu"):
        done = cli("optimize", source, "-o", out, "-t", target, "--json", report, "--external-data", "u.bin")
        assert (done.code, done.err) == (0, "") and r"d\xe9j\xe0.onnx" in done.out
        assert json.loads(Path(report).read_text())["model"] == r"caf\xe9.onnx"
        assert (
            json.loads(cli("optimize", source, "-t", target, "--json", "-").out)["verification"]["status"] == "passed"
        )
    for command in (
        "verify {0} {1}",
        "check {1}",
        "inspect {1}",
        "inspect {1} --json",
        "bench {0} {1} --seconds 0.01 --json -",
    ):
        done = cli(*(part.format(source, out) for part in command.split()))
        assert (done.code, done.err) == (0, ""), done
    Path(os.fsdecode(b"t\xff.toml")).write_text('inherits = "gpu-hopper"\n')
    assert cli("optimize", source, "--dry-run", "-t", os.fsdecode(b"./t\xff.toml")).code == 0
    assert cli("optimize", source, "-o", "n.onnx", "--external-data", os.fsdecode(b"\xff")).code == 8


LONG = "n" * 300
TOO_LONG = (
    f"optimize model.onnx -o {LONG}",
    f"optimize model.onnx -o out.onnx --json={LONG}",
    f"optimize model.onnx -o out.onnx --external-data {LONG}",
    f"inspect model.onnx --dump-ir {LONG}",
    f"bench model.onnx --json={LONG}",
    f"check model.onnx --json={LONG}",
    f"calibrate -o {LONG}.toml",
)


@pytest.mark.parametrize("command", TOO_LONG)
def test_a_name_that_is_too_long(cli: Cli, model: str, tmp_path: Path, command: str) -> None:
    before = files(tmp_path)
    refused = cli(*command.split())
    assert refused.code == 8
    assert "too long" in refused.err
    assert_one_line(refused.err)
    assert files(tmp_path) == before


def test_names_in_json(cli: Cli, tmp_path: Path) -> None:
    evil = convolutions()
    evil.graph.node[1].name = EVIL
    evil.graph.name = EVIL
    onnx.save(evil, tmp_path / "evil.onnx")
    assert cli("optimize", "evil.onnx", *PLANNED, "--json", "r.json", "-q").code == 0
    printed = [
        cli("inspect", "evil.onnx", *PLANNED, "--json").out,
        cli("optimize", "evil.onnx", *PLANNED, "--json", "-").out,
        (tmp_path / "r.json").read_text(),
        cli("check", "evil.onnx", "--json", "-").out,
    ]
    for text in printed:
        assert any(EVIL in each for each in _strings(json.loads(text))) or text is printed[-1]
        assert all(line.isprintable() for line in text.splitlines())
    shown = cli("inspect", "evil.onnx", *PLANNED, "--all").out + cli("check", "evil.onnx", "--all").out
    assert all(line.isprintable() for line in shown.splitlines())


def _strings(data: object) -> list[str]:
    """All strings in a JSON document, as one text."""
    if isinstance(data, dict):
        data = list(data.values())
    if isinstance(data, list):
        return [text for each in data for text in _strings(each)]
    return [data] if isinstance(data, str) else []


def test_a_deeply_nested_target(cli: Cli, model: str, tmp_path: Path) -> None:
    (tmp_path / "deep.toml").write_text("x = " + "[" * 100_000)
    for command in ("targets deep.toml", "optimize model.onnx -o out.onnx -t deep.toml"):
        refused = cli(*command.split())
        assert refused.code == 4
        assert_one_line(refused.err)


# --- full devices ------------------------------------------------------------------------------------------

full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
PRINTING = {
    "--help": [],
    "--version": [],
    f"optimize model.onnx -o out.onnx --json r.json -t {TARGET} --runtime compiler": ["out.onnx", "r.json"],
    f"optimize model.onnx -o out.onnx --json - -t {TARGET} --runtime compiler": ["out.onnx"],
    f"optimize m*.onnx -o out --json - -t {TARGET} --runtime compiler": ["out/model.onnx"],
    f"inspect model.onnx -t {TARGET} --runtime compiler": [],
    "formats NCHW4c --shape 1,6,3,4": [],
    "verify model.onnx model.onnx": [],
    "check model.onnx --json c.json": ["c.json"],
    "targets": [],
}


@full
@pytest.mark.parametrize("command", PRINTING)
def test_stdout_on_a_full_device(
    cli: Cli, model: str, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written files stay, and the error message mentions them, unless other models of a batch remain."""
    with open("/dev/full", "w") as device:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", device)
            failed = cli(*command.split())
        os.dup2(os.open(os.devnull, os.O_WRONLY), device.fileno())  # buffered output is lost
    written = PRINTING[command]
    assert failed.code == 8
    assert_one_line(failed.err)
    assert "no space left" in failed.err
    assert ("all files are written" in failed.err) is (bool(written) and "*" not in command)
    assert files(tmp_path).keys() == {"model.onnx", *written}
