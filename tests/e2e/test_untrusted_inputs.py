"""Inputs of strangers, at their worst: the rows of the table in SECURITY.md."""

import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from command_line import Cli, assert_one_line, convolutions, files, relu
from tiers import covering

import layoutopt
from layoutopt.cli.config import ConfigTable, ModelTable, find_config, keys
from layoutopt.cli.options import REFUSALS
from layoutopt.kernel_times.store import KernelStore, Machine, StoredTime

FAST = ("-t", "gpu-hopper", "--no-measure", "--no-calibrate", "-j", "0", "-q")
MARK = "code of a stranger ran"


class Payload:
    """An object whose unpickling creates a file."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (MARK,)


def evil_inputs() -> tuple[str, ...]:
    np.savez("x.npz", x=np.array([Payload()], dtype=object), allow_pickle=True)
    return "m.onnx", "-o", "o.onnx", "--inputs", "x.npz"


def evil_model() -> tuple[str, ...]:
    model, secret = relu(), onnx.TensorProto(name="w", data_type=1, dims=[2], data_location=1)
    secret.external_data.add(key="location", value="../secret.bin")
    model.graph.initializer.append(secret)
    model.graph.node[0].op_type = "Add"
    model.graph.node[0].input.append("w")
    Path("../secret.bin").write_bytes(b"12345678")
    onnx.save(model, "m.onnx")
    return "m.onnx", "-o", "o.onnx"


def evil_profile() -> tuple[str, ...]:
    Path("p.jsonl").write_bytes(pickle.dumps(Payload()))
    onnx.save(convolutions(), "m.onnx")
    return "m.onnx", "-o", "o.onnx", "--config", "profile=p.jsonl"


def evil_certificate() -> tuple[str, ...]:
    Path("c.json").write_bytes(pickle.dumps(Payload()))
    return "certify", "m.onnx", "m.onnx", "c.json"


def written(name: str, text: str, *options: str) -> Callable[[], tuple[str, ...]]:
    """Writes a text of a stranger."""

    def prepare() -> tuple[str, ...]:
        Path(name).write_text(text)
        return "m.onnx", "-o", "o.onnx", *options

    return prepare


ROWS = {
    "model": (evil_model, 3),
    "inputs": (evil_inputs, 2),
    "profile": (evil_profile, 2),
    "certificate": (evil_certificate, 15),
    "configuration": (written("layoutopt.toml", 'custom-ops = ["k.so"]'), 2),
    "cluster": (written("layoutopt.toml", 'cluster = "dask://host:1"'), 2),
    "cache": (written("layoutopt.toml", 'cache = "kept"'), 2),
    "target": (written("t.toml", 'inherits = "gpu-hopper"\nname = "t"\nmodule = "stranger"\n', "-t", "t.toml"), 4),
}


@pytest.fixture(autouse=True)
def stranger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A working folder with modules of a stranger that have the names of libraries."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAYOUTOPT_NO_MEASURE")  # else no profile is read
    onnx.save(relu(), "m.onnx")
    for name in ("json", "numpy", "onnx", "joblib", "pickle", "stranger"):
        Path(f"{name}.py").write_text(f"import os\nos.mkdir({MARK!r})\n")


@pytest.mark.parametrize("row", ROWS)
def test_a_refusal_is_one_line_and_runs_nothing(cli: Cli, row: str) -> None:
    prepare, code = ROWS[row]
    arguments = prepare()
    before = files(Path())
    refused = cli(*arguments)
    assert refused.code == code, refused
    assert_one_line(refused.err)
    assert files(Path()) == before and not Path(MARK).exists()


@pytest.mark.parametrize(("key", "table"), covering(sorted(REFUSALS), ["", "[tool.layoutopt]\n", '[models."*"]\n']))
def test_a_configuration_sets_no_option_that_is_marked(cli: Cli, table: str, key: str) -> None:
    name = "pyproject.toml" if "tool" in table else "layoutopt.toml"
    Path(name).write_text(f'{table}{key} = "x"')
    for command in ("optimize", "inspect", "explain", "verify", "bench", "ci"):
        refused = cli(command, *["m.onnx"] * (2 if command == "verify" else 1))
        assert (refused.code, refused.out) == (2, "")
        expected = f"{key} {REFUSALS[key]}; type it as an option of the command line"
        assert refused.err == f"error: {name}:{1 + bool(table)}: {expected}\n"


def test_options_with_files_and_code_are_marked() -> None:
    marked = {"custom-ops", "cluster", "cache", "external-data", "output", "json", "html", "certificate", "dump-ir"}
    assert marked | {"junit", "baseline"} <= REFUSALS.keys()
    assert REFUSALS.keys().isdisjoint({*keys(ConfigTable), *keys(ModelTable)})


@pytest.mark.parametrize(
    ("top", "expected"), [(".git", "folder/a"), ("pyproject.toml", "folder/a"), (None, "folder/a/b")]
)
def test_no_configuration_above_the_project_is_found(tmp_path: Path, top: str | None, expected: str) -> None:
    """A folder without a project around it is searched alone."""
    deep = tmp_path / "folder/a/b"
    deep.mkdir(parents=True)
    (tmp_path / "layoutopt.toml").write_text("threads = 1")
    if top is not None:
        (tmp_path / "folder/a" / top).write_text("")
    assert find_config(deep) is None
    (tmp_path / expected / "layoutopt.toml").write_text("threads = 2")
    found = find_config(deep)
    assert found is not None and found.path.parent == tmp_path / expected


def test_other_processes_import_nothing_from_the_working_folder() -> None:
    Path("m").mkdir()
    shutil.copy("m.onnx", "m")
    script = Path(sys.executable).with_name("layoutopt")
    for arguments in (("m", "-o", "out", *FAST[:-3], "-j", "1"), ("bench", "m.onnx", "--seconds", "0.01")):
        done = subprocess.run([script, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0 and not Path(MARK).exists(), done.stderr


def exchange(folders: list[Path]) -> None:
    first, second = folders
    first.rename("x")
    second.rename(first)
    Path("x").rename(second)


def write_outcome(folder: Path, content: dict[str, object]) -> None:
    """The outcome of an entry, with the right hash."""
    line = json.dumps(content).encode()
    (folder / "outcome").write_bytes(hashlib.sha256(line).hexdigest().encode() + b"\n" + line)


def rename_key(folders: list[Path]) -> None:
    """Exchange two entries, and write the key of each folder into its outcome, with the right hash."""
    exchange(folders)
    for folder in folders:
        write_outcome(folder, json.loads((folder / "outcome").read_bytes().partition(b"\n")[2]) | {"key": folder.name})


def no_table(folders: list[Path]) -> None:
    for folder in folders:
        write_outcome(folder, {"key": folder.name, "files": []})


@pytest.mark.parametrize("damage", [exchange, rename_key, no_table])
def test_an_entry_of_another_key_or_model_is_not_used(cli: Cli, damage: Callable[[list[Path]], None]) -> None:
    Path("m").mkdir()
    for number, name in enumerate(("a.onnx", "b.onnx")):
        onnx.save(convolutions(number), f"m/{name}")
    command = ("m", *FAST, "--cache", "cache")
    assert cli(*command, "-o", "first").code == 0
    damage([*Path("cache").glob("??/*")])
    again = cli(*command, "-o", "second")
    assert again.code == 0
    assert cli(*command, "-o", "third").err == ""
    assert files(Path("first")) == files(Path("second")) == files(Path("third"))


def test_kernel_times_of_another_machine_are_not_used(tmp_path: Path) -> None:
    stores = [KernelStore(Machine(name, "avx2", "32K", "1.32.0", 1), tmp_path) for name in ("one", "other")]
    for seconds, store in enumerate(stores, 1):
        store.add({"Conv": float(seconds)})
    shutil.copy(stores[1].path, stores[0].path)
    store = KernelStore(stores[0].machine, tmp_path)
    assert store.get("Conv") is None
    store.add({"Conv": 3.0})
    assert KernelStore(stores[0].machine, tmp_path).get("Conv") == StoredTime(3.0, 0.0)
    assert KernelStore(stores[1].machine, tmp_path).get("Conv") == StoredTime(2.0, 0.0)


HUGE = """<ir_version: 10, opset_import: ["" : 18]> g (float[2] x) => (float[n] y)
<int64[1] s = {1000000000000}> { c = ConstantOfShape<value = float[1] {1}>(s) y = Relu(c) }"""


@pytest.mark.parametrize("target", ["cpu", "gpu-hopper"])
def test_too_little_memory_is_an_error_of_layoutopt(cli: Cli, target: str) -> None:
    onnx.save(onnx.parser.parse_model(HUGE), "huge.onnx")
    with pytest.raises(layoutopt.LayoutoptError, match="not enough memory") as caught:
        layoutopt.optimize("huge.onnx", target)
    assert isinstance(caught.value, MemoryError) and str(caught.value).startswith("not enough memory for huge.onnx: ")
    failed = cli("huge.onnx", "-o", "o.onnx", "-t", target)
    assert failed.code == 1 and not Path("o.onnx").exists()
    assert_one_line(failed.err)
