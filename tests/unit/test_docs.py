"""The documentation and the files for CI: links, commands, programs, generated parts and shell steps; the site builds."""

import doctest
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
import typer
from check_jsonschema.builtin_schemas import get_builtin_schema
from jsonschema import Draft7Validator
from ruamel.yaml import YAML

import layoutopt
from layoutopt.cli.app import app, prepare_arguments
from layoutopt.cli.exit_codes import exit_codes
from layoutopt.errors import LayoutoptError
from layoutopt.report.schema import SCHEMA_VERSION, Report

CHECKOUT = Path(__file__).parents[2]
PAGES = [*sorted(CHECKOUT.glob("*.md")), *sorted((CHECKOUT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_SHELL = ("sh", "bash", "console", "")
_PROMPT = re.compile(r"^ *(?:\$ )?((?:[A-Z_]+=\S+ )*layoutopt .*)$", re.MULTILINE)
_COMMAND = typer.main.get_command(app)


def commands(text: str) -> Iterator[list[str]]:
    """The arguments of every call of layoutopt in the code blocks of a page."""
    for language, block in _BLOCK.findall(text):
        if language not in _SHELL:
            continue
        for line in _PROMPT.findall(block.replace("\\\n", " ")):
            words = shlex.shlex(line, posix=True, punctuation_chars=True)
            words.whitespace_split = True
            yield from _calls(list(words))


def _calls(words: list[str]) -> Iterator[list[str]]:
    """The arguments of each call in a line, which `&&`, `|` and `>` separate."""
    call: list[str] | None = None
    for word in [*words, "&&"]:
        if set(word) <= set("&|;<>()"):
            if call is not None:
                yield call
            call = None
        elif call is not None:
            call.append(word)
        elif word == "layoutopt":
            call = []


def parse(arguments: list[str]) -> None:
    """Parse the arguments as the command line does, without running the command or reading a file.

    Raises:
        Exception: typer's usage error; its class depends on typer's version.
    """
    group = _COMMAND.make_context("layoutopt", [], resilient_parsing=True)
    prepared = prepare_arguments(arguments)
    _, rest, _ = _COMMAND.make_parser(group).parse_args(prepared)
    while rest:
        command = _COMMAND.get_command(group, rest[0])
        assert command is not None, f"there is no command {rest[0]}"
        context = type(group)(command, group, rest[0])
        values, extra, _ = command.make_parser(context).parse_args(rest[1:])
        assert not extra, f"unexpected {extra}"
        missing = [each.name for each in command.params if each.required and not values.get(each.name)]
        assert not missing, f"without {missing}"
        rest = []


def failure(arguments: list[str]) -> str:
    """The reason why the arguments are no command; empty if they are."""
    try:
        parse(arguments)
    except Exception as error:
        return f"layoutopt {shlex.join(arguments)}: {getattr(error, 'message', error)}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_commands_exist_with_their_options(page: Path) -> None:
    assert [each for call in commands(page.read_text()) if (each := failure(call))] == []


DOCS = CHECKOUT / "docs"
EXTENDING = (DOCS / "extending.md").read_text()
_SESSION = re.compile(r"```pycon\n(.*?)```", re.DOTALL)
_FILE = re.compile(r"^`(examples/[^`]+)`:\n\n```\w+\n(.*?)^```", re.DOTALL | re.MULTILINE)
_PYTHON = re.compile(r"```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES_WITH_SESSIONS = [page for page in sorted(DOCS.glob("*.md")) if _SESSION.search(page.read_text())]
FILES = dict(_FILE.findall(EXTENDING))
PROGRAMS = [block for block in _PYTHON.findall(EXTENDING) if block not in FILES.values()]


@pytest.mark.parametrize("page", PAGES_WITH_SESSIONS, ids=lambda page: page.name)
def test_sessions(page: Path) -> None:
    session = "\n".join(_SESSION.findall(page.read_text()))
    test = doctest.DocTestParser().get_doctest(session, {}, page.name, str(page), 0)
    messages: list[str] = []
    doctest.DocTestRunner().run(test, out=messages.append)
    assert not messages, "".join(messages)


def test_files_are_printed_as_they_are() -> None:
    """The printed files are those of the example package, which `tests/e2e/test_plugin.py` runs."""
    assert {name: (CHECKOUT / name).read_text() for name in FILES} == FILES
    plugin = CHECKOUT / "examples/plugin"
    parts = [*plugin.glob("*.toml"), *plugin.glob("acme_npu/*.toml"), *plugin.glob("acme_npu/*.py")]
    assert {str(path.relative_to(CHECKOUT)) for path in parts if path.name != "__init__.py"} == FILES.keys()


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_run(program: str) -> None:
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


DRAWN = runpy.run_path(str(DOCS / "figures" / "draw.py"))


@pytest.mark.parametrize("name", DRAWN["FIGURES"])
def test_figures_are_up_to_date(name: str) -> None:
    """If not: python docs/figures/draw.py."""
    assert (DOCS / "figures" / f"{name}.svg").read_text() == DRAWN["svg"](name)
    assert f"figures/{name}.svg" in (DOCS / "formats.md").read_text()


_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
_NAMED_FILE = re.compile(r"`([\w./]+/|[\w./]+\.(?:py|toml|md))`")
_CODE = re.compile(r"```.*?```", re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    titles = (re.sub(r"[^\w\- ]", "", title.lower()) for title in _HEADING.findall(page.read_text()))
    return {title.strip().replace(" ", "-") for title in titles}


def broken_links(page: Path) -> Iterator[str]:
    for link in _LINK.findall(_CODE.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if "://" not in link and (not target.exists() or (anchor and anchor not in anchors(target))):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert not list(broken_links(page))


def test_files_that_the_design_names_exist() -> None:
    """Named files exist in the checkout, in `layoutopt/` or in `docs/`; the page leaves out these roots."""
    roots = (CHECKOUT, CHECKOUT / "layoutopt", CHECKOUT / "docs")
    named = set(_NAMED_FILE.findall((CHECKOUT / "docs" / "design.md").read_text()))
    assert named
    assert not [path for path in sorted(named) if not any((root / path).exists() for root in roots)]


def test_the_figure_of_the_layers_is_up_to_date() -> None:
    contract = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    layers = [layer.replace("layoutopt.", "") for layer in contract["layers"]]
    figure = (CHECKOUT / "docs" / "design.md").read_text().split("## Layers")[1].split("```")[1]
    assert [re.split(r"\s{2,}", line.strip())[0] for line in figure.strip().splitlines()] == layers


_PAGE = re.compile(r"^ +- .+: (\S+\.md)$", re.MULTILINE)
_GENERATED = re.compile(r'^    "(\S+\.md)": ', re.MULTILINE)


def test_every_page_is_in_the_navigation() -> None:
    """If not: add the page to `nav` in mkdocs.yml."""
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    generated = set(_GENERATED.findall((DOCS / "generate/hook.py").read_text()))
    assert generated
    navigation = _PAGE.findall((CHECKOUT / "mkdocs.yml").read_text())
    assert sorted(navigation) == sorted({*pages, *generated, "index.md"})


def test_troubleshooting_has_every_error() -> None:
    page = (DOCS / "troubleshooting.md").read_text()
    assert all(f"\n| {code} | " in page for code in exit_codes())
    classes = {name for name in layoutopt.__all__ if name.endswith("Error")}
    assert LayoutoptError.__name__ in classes
    assert not [name for name in classes if f"`{name}`" not in page]


NOTEBOOKS = sorted((CHECKOUT / "examples/notebooks").glob("*.ipynb"))


def run(program: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    command = [sys.executable, *program]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.thorough
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="needs layoutopt[docs]")
    result = run(["-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)], CHECKOUT)
    assert result.returncode == 0, result.stderr
    options = (tmp_path / "reference/cli/index.html").read_text()
    assert "--runtime" in options and "--portable" in options
    assert "com.microsoft.FusedConv" in (tmp_path / "reference/operators/index.html").read_text()
    assert "KRSCk4c4" in (tmp_path / "reference/formats/index.html").read_text()
    assert "kernel_efficiency" in (tmp_path / "reference/targets/index.html").read_text()
    assert "largest_error" in (tmp_path / "reference/report/index.html").read_text()
    assert "allow_unverified" in (tmp_path / "reference/python/index.html").read_text()


@pytest.mark.thorough
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(notebook: Path) -> None:
    pytest.importorskip("nbclient", reason="needs layoutopt[dev]")
    program = (
        "import sys, nbformat; from nbclient import NotebookClient; "
        "NotebookClient(nbformat.read(sys.argv[1], 4), timeout=300, kernel_name='python3').execute()"
    )
    result = run(["-c", program, notebook.name], notebook.parent)
    assert result.returncode == 0, result.stderr


SCHEMA = DOCS / "report.schema.json"


def schema() -> dict[str, Any]:
    return {"$id": f"layoutopt-report-{SCHEMA_VERSION}", **Report.model_json_schema()}


def fields(found: dict[str, Any]) -> set[tuple[str, str]]:
    """The fields of a schema, as (part, field)."""
    parts = {"Report": found, **found["$defs"]}
    return {(name, field) for name, part in parts.items() for field in part.get("properties", ())}


def test_a_version_keeps_its_fields(update_golden: bool) -> None:
    published = json.loads(SCHEMA.read_text())
    if published["$id"] == schema()["$id"]:
        assert not fields(published) - fields(schema()), "a field is gone: increment SCHEMA_VERSION"
    if update_golden:
        SCHEMA.write_text(json.dumps(schema(), indent=1) + "\n")
    assert json.loads(SCHEMA.read_text()) == schema(), "run this test with --update-golden"


ACTION = CHECKOUT / "action.yml"
GITLAB = CHECKOUT / "docs" / "ci" / "gitlab.yml"
HOOKS = CHECKOUT / ".pre-commit-hooks.yaml"
_YAML = re.compile(r"^```yaml\n(.*?)^```", re.DOTALL | re.MULTILINE)
TRANSPOSE = (
    '<ir_version: 10, opset_import: ["" : 18]> g (float[2,3] x) => (float[3,2] y) { y = Transpose<perm=[1,0]>(x) }'
)


def load(text: str) -> Any:
    return YAML(typ="safe").load(text)


def check_schema(data: Any, schema: str) -> None:
    Draft7Validator(get_builtin_schema(f"vendor.{schema}")).validate(data)


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """A folder with the program layoutopt."""
    program = tmp_path / "bin" / "layoutopt"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m layoutopt "$@"\n')
    program.chmod(0o755)
    return program.parent


def run_step(command: Sequence[str], folder: Path, bin_folder: Path, variables: Mapping[str, str]) -> tuple[int, str]:
    path, modules = (os.environ.get(name, "") for name in ("PATH", "PYTHONPATH"))
    environment = {**os.environ, "PATH": f"{bin_folder}:{path}", "PYTHONPATH": f"{CHECKOUT}:{modules}", **variables}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_action_is_valid_and_its_variables_are_its_inputs() -> None:
    action = load(ACTION.read_text())
    check_schema(action, "github-actions")
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
        "JUNIT": "j.xml",
    }
    variables = {name: values.get(name, "") for name in step["env"]}
    assert values.keys() <= variables.keys()
    for name in ("OUTPUT", "STEP_SUMMARY"):
        variables[f"GITHUB_{name}"] = str(tmp_path / name)
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    code, printed = run_step(command, tmp_path, bin_folder, variables | {"GITHUB_WORKSPACE": str(tmp_path)})
    assert code == 13, printed
    assert "::error file=the models/$(touch run) a.onnx,title=layoutopt max-transposes::" in printed
    assert (tmp_path / "OUTPUT").read_text() == "exit-code=13\n"
    assert "<pre>layoutopt ci" in (tmp_path / "STEP_SUMMARY").read_text()
    assert json.loads((tmp_path / "r.json").read_text())["models"][0]["status"] == "over budget"
    assert (tmp_path / "j.xml").exists() and not (tmp_path / "run").exists()


def test_the_job_of_gitlab(tmp_path: Path, bin_folder: Path) -> None:
    jobs = load(GITLAB.read_text())
    check_schema(jobs, "gitlab-ci")
    (job,) = jobs.values()
    (bin_folder / "layoutopt").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 13\n')
    code, printed = run_step(["sh", "-ec", "\n".join(job["script"])], tmp_path, bin_folder, job["variables"])
    reports = ["--junit", job["artifacts"]["reports"]["junit"]]
    limits = ["--target", "cpu-avx2", "--max-transposes", "0"]
    assert (code, printed.splitlines()) == (13, ["ci", *reports, *limits, "--", "models"])


def test_the_hook_of_pre_commit() -> None:
    (hook,) = load(HOOKS.read_text())
    assert {"id", "name", "entry", "language"} <= hook.keys()
    program, command = shlex.split(hook["entry"])
    assert program == "layoutopt" and command in {each.name for each in app.registered_commands}
    assert re.search(hook["files"], "models/a.onnx") and not re.search(hook["files"], "a.onnx.md")


def test_the_examples_of_the_documentation() -> None:
    workflow, include, hooks = map(load, _YAML.findall((CHECKOUT / "docs" / "ci.md").read_text()))
    check_schema(workflow, "github-workflows")
    check_schema(include, "gitlab-ci")
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    (gate,) = [step for step in steps if "layoutopt" in step.get("uses", "")]
    assert gate["with"].keys() <= load(ACTION.read_text())["inputs"].keys()
    assert include.keys() - {"include"} == load(GITLAB.read_text()).keys()
    ids = [hook["id"] for repository in hooks["repos"] for hook in repository["hooks"]]
    assert ids == [hook["id"] for hook in load(HOOKS.read_text())]
