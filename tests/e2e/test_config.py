"""Configuration files: found, merged by model, checked with line numbers, and overridden by the command line."""

import json
from pathlib import Path

import onnx
import pytest
from command_line import Cli, assert_one_line, convolutions, relu

from layoutopt.cli.config import BudgetTable, ConfigTable, ModelTable, find_config, keys, load_config
from layoutopt.cost_models.target_files import line_of
from layoutopt.driver.options import Options, declared, key_of

WHOLE = """\
target = "cpu"
dim = ["batch=1"]
[budgets]
max-transposes = 4
min-speedup = 1.1
[models."detector/*.onnx"]
target = "boards/npu.toml,gpu-hopper"
inputs = ["a.npz"]
[models."detector/*.onnx".budgets]
max-transposes = 0
[models."b.onnx"]
dim = []
threads = 2
"""


def write(path: str, text: str) -> Path:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)
    return Path(path)


def test_options_and_budgets_of_a_model(tmp_path: Path) -> None:
    config = load_config(write(f"{tmp_path}/layoutopt.toml", WHOLE))
    shared = {"target": "cpu", "dim": [("batch", (1, 1))]}
    assert config.options_for(tmp_path / "other.onnx") == shared
    assert config.budgets_for(tmp_path / "other.onnx") == {"max_transposes": 4, "min_speedup": 1.1}
    assert config.budgets_for(tmp_path / "detector/deep/a.onnx") == {"max_transposes": 0, "min_speedup": 1.1}
    assert config.options_for(tmp_path / "detector/b.onnx") == {
        "target": f"{tmp_path}/boards/npu.toml,gpu-hopper",
        "dim": [],
        "inputs": [tmp_path / "a.npz"],
        "threads": 2,
    }


def test_the_closest_file_is_found(tmp_path: Path) -> None:
    deep = tmp_path / "a/b/c"
    deep.mkdir(parents=True)
    write(f"{tmp_path}/layoutopt.toml", "threads = 1")
    write(f"{tmp_path}/a/pyproject.toml", "[tool.layoutopt]\nthreads = 2")
    found = [find_config(folder) for folder in (deep, tmp_path / "a", tmp_path)]
    assert [each.path.parent.name for each in found if each] == ["a", "a", tmp_path.name]
    write(f"{tmp_path}/a/b/c/pyproject.toml", "not TOML")
    assert find_config(deep) is None
    write(f"{tmp_path}/a/b/c/pyproject.toml", "[tool.ruff]")
    assert find_config(deep) is None
    Path(f"{tmp_path}/a/b/c/pyproject.toml").unlink()
    write(f"{tmp_path}/a/layoutopt.toml", "threads = 3")
    config = find_config(deep)
    assert config is not None and config.options_for(Path("m.onnx")) == {"threads": 3}


WRONG = {
    "unknown": ("a = 1", "1: no option 'a'"),
    "misspelt": ("# b\n\ntarjet = 'cpu'", "3: no option 'tarjet'; did you mean target"),
    "underscore": ("time_limit = 1.0", "did you mean time-limit"),
    "negated": ("no-verify = true", "did you mean verify"),
    "for one model": ("pin = ['x=NHWC']", "pin is an option of one model; write it in a table of models"),
    "budget": ("[budgets]\nmax-transpose = 1", "2: no budget 'max-transpose'; did you mean max-transposes"),
    "in a pattern": ("dim = []\n[models.'a*']\nthreads = 1\nmod = 2", "4: no option 'mod'; did you mean mode"),
    "type": ("threads = '4'", "1: threads = '4': should be a valid integer"),
    "flag": ("verify = 1", "verify = 1: should be a valid boolean"),
    "range": ("time-limit = 0", "time-limit = 0: should be greater than 0"),
    "choice": ("mode = 'learning'", "should be 'inference' or 'training'"),
    "list": ("dim = [\n'batch=1',\n'n=4:2']", "1: dim: not a dimension; write NAME=SIZE"),
    "table": ("models = 3", "1: models = 3: should be"),
    "two errors": ("x = 1\ny = 2", "1: no option 'x'"),
    "no TOML": ("a = [", "is not TOML"),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors(cli: Cli, case: str) -> None:
    text, expected = WRONG[case]
    onnx.save(relu(), "model.onnx")
    write("layoutopt.toml", text)
    failed = cli("model.onnx")
    assert (failed.code, failed.out) == (2, "")
    assert_one_line(failed.err)
    assert failed.err.startswith("error: layoutopt.toml:") and expected in failed.err, failed.err
    assert not Path("model.opt.onnx").exists()


def test_lines() -> None:
    text = '[tool.\'x\']\n a . b = 1 # [c]\n\n[[tool.list]]\n\'k=1\' = """\nv = 2\n"""\n[tool.x."d.e"]\n'
    paths = {("tool", "x"): 1, ("tool", "x", "a", "b"): 2, ("tool", "x", "d.e"): 8}
    assert {path: line_of(text, path) for path in paths} == paths
    assert line_of(text, ("tool", "x", "a", "b", "inner")) == 2


def test_the_keys_are_options() -> None:
    """Every key is an option of `optimize`, and each option that sets a result and may be set here is a key."""
    fields = {key_of(each) for each, declaration in declared(Options) if not declaration.refusal} | {"allow-tested"}
    assert set(keys(ModelTable)) - {"budgets"} == fields
    assert set(keys(ConfigTable)) - {"models", "budgets", "jobs"} == fields - {"pin", "inputs"}
    assert keys(BudgetTable) == ["max-transposes", "max-casts", "max-bytes-moved", "min-speedup", "max-size-growth"]


def test_the_command_line_overrides_the_configuration(cli: Cli) -> None:
    for name in ("a.onnx", "b.onnx"):
        onnx.save(convolutions(), name)
    text = 'target = "gpu-hopper"\nverify = false\n[models."b*"]\ntarget = "gpu-turing"\nruntime = "compiler"\n'
    write("layoutopt.toml", text)
    write("other.toml", 'target = "gpu-ampere"')

    def targets(*arguments: str) -> list[str]:
        done = cli("[ab].onnx", "--dry-run", "--json", *arguments)
        assert done.code == 0, done
        return [json.loads(line)["target"] for line in done.out.splitlines()]

    assert targets() == ["gpu-hopper", "gpu-turing"]
    assert targets("-t", "ascend-310") == ["ascend-310"] * 2
    assert targets("--config", "other.toml", "--no-verify") == ["gpu-ampere"] * 2
    assert "gpu" not in targets("--config", "none", "--no-verify")[0]
    assert json.loads(cli("inspect", "b.onnx", "--json").out)["target"] == "gpu-turing"
    for wrong in (("--config", "none.toml"), ("--config", "other.toml", "--config", "none")):
        failed = cli("a.onnx", *wrong)
        assert failed.code == 2
        assert_one_line(failed.err)
