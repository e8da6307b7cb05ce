"""House rules of the source tree: layers, imports of libraries, no op names in passes, public names, small files."""

import ast
import inspect
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import onnx
import pytest

import layoutopt
import layoutopt.cost_models
import layoutopt.passes
from layoutopt import errors, extend, testing
from layoutopt.ops import rules

CHECKOUT = Path(__file__).parent.parent
MAX_LINES = 800

# The folders of the packages in a wheel or in a checkout, where passes and cost_models are top-level folders.
PACKAGE_FOLDERS = {
    "": Path(layoutopt.__path__[0]),
    "passes": Path(layoutopt.passes.__path__[0]),
    "cost_models": Path(layoutopt.cost_models.__path__[0]),
}


def modules() -> dict[str, Path]:
    """Every module of the package, by its name without `layoutopt.`, as it is imported."""
    found = {}
    for prefix, folder in PACKAGE_FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [*([prefix] if prefix else []), *path.relative_to(folder).with_suffix("").parts]
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()


@cache
def imported(path: Path) -> frozenset[str]:
    """The top-level names of all imports of a module, also those in functions."""
    return frozenset(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def importers(*libraries: str) -> set[str]:
    return {name for name, path in MODULES.items() if not set(libraries).isdisjoint(imported(path))}


def test_the_layers(tmp_path: Path) -> None:
    """The layers hold; import-linter requires one folder, so it reads a copy of the tree in the layout of a wheel."""
    pytest.importorskip("importlinter")
    for name, path in MODULES.items():
        is_package = path.name == "__init__.py"
        target = tmp_path.joinpath("layoutopt", *name.split(".")) if name != "__init__" else tmp_path / "layoutopt"
        target = target / "__init__.py" if is_package else target.with_suffix(".py")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    command = "import sys; from importlinter.cli import lint_imports_command; lint_imports_command(sys.argv[1:])"
    result = subprocess.run(
        [sys.executable, "-c", command, "--config", str(CHECKOUT / "pyproject.toml"), "--no-cache"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"Analyzed {len(MODULES)} files" in " ".join(result.stdout.split())


def test_passes_name_no_ops() -> None:
    """Passes contain no names of op types; a property of an op is in its rule in `ops`."""
    names = {schema.name for schema in onnx.defs.get_all_schemas()} | set(rules())
    for name, path in MODULES.items():
        if name.split(".")[0] == "passes":
            texts = {
                str(node.value) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)
            }
            assert texts.isdisjoint(names), f"{name} names {sorted(texts & names)}"


def test_imports_of_networkx() -> None:
    assert importers("networkx") == {"ir.graph", "planner.problem"}


def test_imports_of_onnx() -> None:
    """Only `onnx_io`, the packages that accept or run models, and type inference import onnx."""
    names = importers("onnx", "onnx_ir")
    others = {name.split(".")[0] for name in names if not name.startswith(("onnx_io", "ops.shape_functions"))}
    assert others <= {
        *("api", "backend", "calibrate", "certificate", "driver"),
        *("inference", "kernel_times", "runtime", "testing", "verification"),
    }


def test_imports_of_onnxruntime() -> None:
    """Only packages that time it, and `runtime`, import onnxruntime; `verification` and `backend` use `runtime.session`."""
    assert {name.split(".")[0] for name in importers("onnxruntime")} == {
        "calibrate",
        "kernel_times",
        "runtime",
    }


def test_imports_of_the_solver_and_the_terminal() -> None:
    assert importers("highspy") == {"planner.program", "planner.regret", "planner.solver"}
    assert all(name.split(".")[0] == "cli" for name in importers("typer", "rich", "click"))


def test_the_algebra_needs_numpy_and_msgspec_at_most() -> None:
    algebra = [path for name, path in MODULES.items() if name.startswith(("formats", "systems.cut"))]
    libraries = {each for path in algebra for each in imported(path)}
    assert libraries - set(sys.stdlib_module_names) <= {"layoutopt", "msgspec", "numpy"}


def test_the_public_names() -> None:
    assert layoutopt.__all__ == [
        *("ArgumentError", "CertificateError", "Conversion", "CostModel", "DimensionError", "Explanation"),
        *("ExtensionError", "Format", "FormatError", "InputError", "InvariantError", "Layout"),
        *("LayoutoptError", "ModelError", "Outcome", "OutputError", "Pass", "PassContext", "PinError"),
        *("Pipeline", "Plan", "Report", "Result", "TargetError", "UnverifiedError", "Verification"),
        "VerificationError",
        *("__version__", "explain", "export", "load_target", "optimize", "optimize_many", "target_names"),
        "verify_models",
    ]
    assert dir(layoutopt) == layoutopt.__all__
    for name in layoutopt.__all__:
        assert getattr(layoutopt, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        layoutopt.no_such_name  # noqa: B018


def test_every_error_is_public() -> None:
    """Every exception that `optimize` raises can be imported from the package root."""
    declared = {name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, Exception)}
    assert declared <= set(layoutopt.__all__)


def test_extensions_import_public_names() -> None:
    """Examples of extensions import public names only, and every public name has a docstring."""
    public_modules = {"layoutopt", "layoutopt.bench", "layoutopt.extend", "layoutopt.testing"}
    files = [*(CHECKOUT / "examples/plugin").rglob("*.py"), *(CHECKOUT / "examples").glob("*_a_*.py")]
    trees = [ast.parse(path.read_text()) for path in files]
    sources = {node.module for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name for name in sources if name and name.startswith("layoutopt")} <= public_modules
    for module in (extend, testing):
        public = (getattr(module, name) for name in module.__all__)
        assert all(each.__doc__ for each in public if isinstance(each, type) or inspect.isroutine(each))


OPTIMIZE = "jinja2 joblib asyncio layoutopt.page layoutopt.explanation layoutopt.batch layoutopt.gates.report"
COMMAND = f"sympy networkx.algorithms rich {OPTIMIZE}"


@pytest.mark.parametrize(
    ("program", "unused"),
    [
        ("layoutopt", "numpy onnx onnx_ir onnxruntime highspy networkx typer rich pydantic layoutopt.registry"),
        ("layoutopt; layoutopt.optimize", OPTIMIZE),
        ("layoutopt.cli.options as of; of.import_deferring('layoutopt.cli.optimization')", COMMAND),
        ("layoutopt.cli.options as of; of.import_deferring('networkx').path_graph(3)", "sympy"),
    ],
)
def test_imports_load_no_library_in_vain(program: str, unused: str) -> None:
    """The package loads no library, so that `layoutopt --help` is fast, and `optimize` no library of another command."""
    program = f"import {program}; import sys; print([name for name in {unused.split()} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "[]"


def test_files_stay_small() -> None:
    long = {name: lines for name, path in MODULES.items() if (lines := len(path.read_text().splitlines())) > MAX_LINES}
    assert not long


def test_every_module_has_a_docstring() -> None:
    assert [name for name, path in MODULES.items() if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_the_wheel_contains_every_package() -> None:
    """The wheel contains every package; the list is written by hand, because two packages are in other folders."""
    listed = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    present = {"layoutopt"} | {
        f"layoutopt.{name}" for name, path in MODULES.items() if path.name == "__init__.py" and name != "__init__"
    }
    assert set(listed) == present
