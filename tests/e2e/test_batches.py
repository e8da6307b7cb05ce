"""Batches: worker processes write the bytes of one process, entries of the cache are verified, interruptions leave nothing."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from command_line import PLANNED, Cli, assert_one_line, convolutions, files, relu

import layoutopt
from layoutopt.batch.cache import MODEL, outcome_key
from layoutopt.errors import ArgumentError

FAST = (*PLANNED, "--no-verify")
OPTIONS = {"runtime": "compiler", "verify": False}


@pytest.fixture(autouse=True)
def models(tmp_path: Path) -> None:
    """Two models that are rewritten, one that stays unchanged, and a file that is no model."""
    (tmp_path / "m" / "sub").mkdir(parents=True)
    onnx.save(convolutions(1), tmp_path / "m" / "a.onnx")
    onnx.save(convolutions(2), tmp_path / "m" / "sub" / "b.onnx")
    onnx.save(relu(), tmp_path / "m" / "relu.onnx")
    (tmp_path / "m" / "text.onnx").write_text("no model")


def lines(path: str) -> dict[str, dict[str, Any]]:
    found = [json.loads(line) for line in Path(path).read_text().splitlines()]
    assert len({each["model"] for each in found}) == len(found)
    return {each["model"]: each for each in found}


def run(*models: str, **options: Any) -> dict[str, layoutopt.Outcome]:
    many = layoutopt.optimize_many(models, "gpu-hopper", jobs=0, **OPTIONS, **options)
    return {each.model.name: each for each in many}


# --- worker processes --------------------------------------------------------------------------------------


def test_worker_processes_write_the_bytes_of_one_process_and_a_second_run_the_cache(cli: Cli, tmp_path: Path) -> None:
    alone = cli("m", "-o", "alone", *FAST)
    first = cli("m", "-o", "first", *FAST, "--jobs", "2", "--cache", "cache", "--json", "first.jsonl", "-q")
    second = cli("m", "-o", "second", *FAST, "--cache", "cache", "--json", "second.jsonl", "-v")
    assert alone.code == first.code == second.code == 3
    assert first.err == alone.err == second.err
    assert_one_line(first.err)
    expected = files(tmp_path / "alone")
    assert expected.keys() == {"a.onnx", "relu.onnx", "sub/b.onnx"}
    assert files(tmp_path / "first") == files(tmp_path / "second") == expected
    kept, restored = lines("first.jsonl"), lines("second.jsonl")
    assert kept.keys() == restored.keys() and restored["m/text.onnx"] == kept["m/text.onnx"]
    for name in ("m/a.onnx", "m/sub/b.onnx", "m/relu.onnx"):
        assert not kept[name].pop("cached") and restored[name].pop("cached")
        assert kept[name] == restored[name]
    assert second.out.count("\n  verification  ") == 3  # a summary of each model
    assert second.out.splitlines()[-1] == "4 models: 2 rewritten, 1 unchanged, 1 failed; 3 from the cache"


@pytest.mark.usefixtures("default_ctrl_c")
def test_an_interruption_ends_in_one_line_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    for number in range(30):
        onnx.save(convolutions(number), tmp_path / "m" / f"{number}.onnx")
    command = [sys.executable, "-m", "layoutopt", "m", "-o", "out", *FAST, "--jobs", "1", "--json", "all.jsonl", "-q"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    record = tmp_path / "all.jsonl"
    while not record.exists():
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: all processes of the group get it
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err == "error: interrupted\n"
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert all(path.suffix == ".onnx" for path in written) and len(written) < 30
    for path in written:
        onnx.checker.check_model(onnx.load(path))
    assert {line[-2:] for line in record.read_text().splitlines(keepends=True)} == {"}\n"}
    with pytest.raises(ProcessLookupError):  # the last process of the group ends a moment later
        for _ in range(200):
            os.killpg(process.pid, 0)
            time.sleep(0.05)


def test_unreadable_links_and_a_full_disk_end_no_batch(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m" / ".git").mkdir()
    (tmp_path / "m" / ".git" / "link.onnx").symlink_to("n" * 300)
    (tmp_path / "m" / "link.onnx").symlink_to("n" * 300)
    done = cli("m", "-o", "out", *FAST, "--json", "r.jsonl", "-q")
    assert done.code == 3 and lines("r.jsonl").keys() == {
        f"m/{each}.onnx" for each in ("a", "link", "relu", "sub/b", "text")
    }
    monkeypatch.setattr("layoutopt.cli.output_files.marked", lambda *_: "x" * 100_000)  # is larger than the limit
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (90_000, limit[1]))
    try:
        failed = cli("m", "-o", "out", *FAST, "--json", "r.jsonl", "-q")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert failed.code == 8 and "r.jsonl: the file is larger than" in failed.err.splitlines()[-1]
    assert len(lines("r.jsonl")) == 1 and failed.err.count("error: m/") == 2


# --- Python ------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def test_wrong_arguments(folder: Path) -> None:
    for arguments in (
        {"models": "m/a.onnx"},
        {"models": ["m/a.onnx"], "measure": "no"},
        {"models": ["m/a.onnx", "a.onnx"], "output": "out"},
        {"models": {"m/a.onnx": "a.onnx"}, "output": "out"},
        {"models": ["m/a.onnx"], "target": ["cpu"]},
        {"models": ["m/a.onnx"], "cache": "m"},
    ):
        with pytest.raises(ArgumentError):
            layoutopt.optimize_many(**arguments)
    with pytest.raises(TypeError, match="mesure"):
        layoutopt.optimize_many(["m/a.onnx"], mesure=False)


def test_errors_are_outcomes_and_no_empty_folder_stays(folder: Path) -> None:
    found = run("m/text.onnx", "m/missing.onnx", output="out/deep")
    assert not Path("out").exists()
    assert all(each.report is None and isinstance(each.error, layoutopt.ModelError) for each in found.values())
    assert "failed: m/text.onnx: is not an ONNX model" in repr(found["text.onnx"])


# --- the cache ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["bytes", "outcome", "no model", "no outcome"])
def test_a_damaged_entry_is_removed_and_computed_again(folder: Path, damage: str) -> None:
    expected = run("m/a.onnx", output="first", cache="cache")["a.onnx"]
    (entry,) = Path("cache").glob("??/*")
    path = entry / (MODEL if damage in ("bytes", "no model") else "outcome")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink() if damage.startswith("no") else path.write_bytes(content)
    again = run("m/a.onnx", output="second", cache="cache")["a.onnx"]
    assert not again.is_cached and expected.notes == ()
    assert files(folder / "first") == files(folder / "second")
    assert run("m/a.onnx", output="third", cache="cache")["a.onnx"].is_cached
    assert files(folder / "first") == files(folder / "third")


def test_keys_depend_on_content_and_options(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def key(model: str = "m/a.onnx", **options: Any) -> str:
        return outcome_key(Path(model), {"target": "gpu-hopper", "threads": 1} | options)

    shutil.copy("m/a.onnx", "copy.onnx")
    onnx.save(onnx.load("m/a.onnx"), "x.onnx", save_as_external_data=True, location="x.bin", size_threshold=0)
    Path("t.toml").write_text('inherits = "gpu-hopper"\nname = "t"\n')
    keys = [key(model) for model in ("m/a.onnx", "m/sub/b.onnx", "x.onnx")]
    keys += [key(target=target) for target in ("t.toml", "ascend-910b", "cpu-avx2")]
    keys += [key(dims={"n": 1}), key(target="cpu-avx2", threads=2)]
    assert key() == key("copy.onnx")
    data = bytearray(Path("x.bin").read_bytes())
    data[0] ^= 1
    Path("x.bin").write_bytes(data)
    keys.append(key("x.onnx"))
    Path("t.toml").write_text(
        'inherits = "gpu-hopper"\nname = "t"\n[memory]\nbandwidth = { value = 1e9, source = "test" }\n'
    )
    keys.append(key(target="t.toml"))
    monkeypatch.setattr("layoutopt.batch.cache.software", lambda: {"layoutopt": "another"})
    keys.append(key())
    assert len(set(keys)) == len(keys)
