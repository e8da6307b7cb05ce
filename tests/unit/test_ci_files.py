"""The action, the GitLab job, the pre-commit hook and the image: their schemas, and their shell steps on a tiny model."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
from check_jsonschema.builtin_schemas import get_builtin_schema
from jsonschema import Draft7Validator
from ruamel.yaml import YAML

from layoutopt.cli.app import app

CHECKOUT = Path(__file__).parents[2]
ACTION = CHECKOUT / "action.yml"
GITLAB = CHECKOUT / "docs" / "ci" / "gitlab.yml"
HOOKS = CHECKOUT / ".pre-commit-hooks.yaml"
_YAML = re.compile(r"^```yaml\n(.*?)^```", re.DOTALL | re.MULTILINE)
TRANSPOSE = (
    '<ir_version: 10, opset_import: ["" : 18]> g (float[2,3] x) => (float[3,2] y) { y = Transpose<perm=[1,0]>(x) }'
)


def load(text: str) -> Any:
    return YAML(typ="safe").load(text)


def check(data: Any, schema: str) -> None:
    Draft7Validator(get_builtin_schema(f"vendor.{schema}")).validate(data)


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """A folder with the program layoutopt."""
    program = tmp_path / "bin" / "layoutopt"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m layoutopt "$@"\n')
    program.chmod(0o755)
    return program.parent


def run(command: Sequence[str], folder: Path, bin_folder: Path, variables: Mapping[str, str]) -> tuple[int, str]:
    path, modules = (os.environ.get(name, "") for name in ("PATH", "PYTHONPATH"))
    environment = {**os.environ, "PATH": f"{bin_folder}:{path}", "PYTHONPATH": f"{CHECKOUT}:{modules}", **variables}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_action_is_valid_and_its_variables_are_its_inputs() -> None:
    action = load(ACTION.read_text())
    check(action, "github-actions")
    used = set(re.findall(r"\$\{\{ inputs\.([\w-]+) \}\}", ACTION.read_text()))
    assert used == action["inputs"].keys()
    assert all("${{" not in step.get("run", "") for step in action["runs"]["steps"])


def test_the_step_of_the_action(tmp_path: Path, bin_folder: Path) -> None:
    (step,) = [each for each in load(ACTION.read_text())["runs"]["steps"] if each.get("id") == "gate"]
    models = tmp_path / "the models"
    models.mkdir()
    onnx.save(onnx.parser.parse_model(TRANSPOSE), models / "$(touch run) a.onnx")
    values = {
        "MODELS": "the models/$(touch run) a.onnx\n",
        "TARGET": "gpu-hopper",
        "OPTIONS": "--max-transposes=0\n--json=r.json\n",
        "SARIF": "s.sarif",
    }
    variables = {name: values.get(name, "") for name in step["env"]}
    assert values.keys() <= variables.keys()
    for name in ("OUTPUT", "STEP_SUMMARY"):
        variables[f"GITHUB_{name}"] = str(tmp_path / name)
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    code, printed = run(command, tmp_path, bin_folder, variables | {"GITHUB_WORKSPACE": str(tmp_path)})
    assert code == 13, printed
    assert "::error file=the models/$(touch run) a.onnx,title=layoutopt max-transposes::" in printed
    assert (tmp_path / "OUTPUT").read_text() == "exit-code=13\n"
    assert "### layoutopt ci" in (tmp_path / "STEP_SUMMARY").read_text()
    assert json.loads((tmp_path / "r.json").read_text())["models"][0]["status"] == "over budget"
    assert (tmp_path / "s.sarif").exists() and not (tmp_path / "run").exists()


def test_the_job_of_gitlab(tmp_path: Path, bin_folder: Path) -> None:
    jobs = load(GITLAB.read_text())
    check(jobs, "gitlab-ci")
    (job,) = jobs.values()
    (bin_folder / "layoutopt").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 13\n')
    code, printed = run(["sh", "-ec", "\n".join(job["script"])], tmp_path, bin_folder, job["variables"])
    reports = ["--junit", job["artifacts"]["reports"]["junit"], "--sarif", *job["artifacts"]["paths"]]
    limits = ["--target", "cpu-avx2", "--max-transposes", "0"]
    assert (code, printed.splitlines()) == (13, ["ci", *reports, *limits, "--", "models"])


def test_the_hook_of_pre_commit() -> None:
    (hook,) = load(HOOKS.read_text())
    assert {"id", "name", "entry", "language"} <= hook.keys()
    program, command = shlex.split(hook["entry"])
    assert program == "layoutopt" and command in {each.name for each in app.registered_commands}
    assert re.search(hook["files"], "models/a.onnx") and not re.search(hook["files"], "a.onnx.md")


def test_the_examples_of_the_documentation() -> None:
    """The workflow and the configuration of pre-commit use inputs and hooks that exist."""
    workflow, include, hooks = map(load, _YAML.findall((CHECKOUT / "docs" / "ci.md").read_text()))
    check(workflow, "github-workflows")
    check(include, "gitlab-ci")
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    (gate,) = [step for step in steps if "layoutopt" in step.get("uses", "")]
    assert gate["with"].keys() <= load(ACTION.read_text())["inputs"].keys()
    assert include.keys() - {"include"} == load(GITLAB.read_text()).keys()
    ids = [hook["id"] for repository in hooks["repos"] for hook in repository["hooks"]]
    assert ids == [hook["id"] for hook in load(HOOKS.read_text())]
