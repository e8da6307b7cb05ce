"""Entry points of installed packages: loaded at the first access to a registry, and refused in one line."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from layoutopt import dialects
from layoutopt.driver.job import lowering_passes
from layoutopt.errors import ExtensionError, LayoutoptError
from layoutopt.extend import Graph, OneAxis, Op, Pass, PassContext, format_system
from layoutopt.formats import catalog
from layoutopt.ops import base
from layoutopt.passes import EXTENSIONS as PASSES
from layoutopt.passes import default_pipeline
from layoutopt.patterns import base as pattern_base
from layoutopt.registry import EntryPoints, instance_of


class Second(OneAxis):
    """A second rule for an op type of ONNX."""

    family = "softmax"
    ops = ("Softmax",)


class Step(Pass):
    """A pass."""

    name, after = "step", "remove-dead"

    def run(self, graph: Graph, context: PassContext) -> None:
        return


class Behind(Step):
    """A pass on lowered graphs of one dialect."""

    name, after = "behind", "winograd"


class Nowhere(Step):
    """A pass without a position in the pipeline."""

    name, after = "nowhere", ""


NUMBER = 7


def wrong_spelling() -> None:
    raise AssertionError


BROKEN_FORMATS = format_system("Test", "Test manual", ("T4", "NC?W", "NCHW", ""))


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registries without loaded entry points, before and after each test."""
    monkeypatch.setattr(base, "_RULES", dict(base._RULES))
    monkeypatch.setattr(pattern_base, "_PATTERNS", {name: [*each] for name, each in pattern_base._PATTERNS.items()})
    catalog._extension_entries.cache_clear()


def install(monkeypatch: pytest.MonkeyPatch, group: EntryPoints, **values: str) -> None:
    """Let this file declare entry points of a package; returns its objects by name."""
    found = {name: EntryPoint(name, f"{__name__}:{value}", group.group) for name, value in values.items()}
    monkeypatch.setattr(group, "_found", found)
    monkeypatch.setattr(group, "_loaded", {})
    catalog._extension_entries.cache_clear()


@pytest.fixture(autouse=True, scope="module")
def _clean_after() -> object:
    yield
    catalog._extension_entries.cache_clear()


def test_built_in_ops_need_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, base.EXTENSIONS, gone="nothing")
    assert base.rule_of(Op("Relu", (), (), version=18)) is not None
    with pytest.raises(ExtensionError):
        base.rule_of(Op("Relu", (), (), domain="registry.test"))


def test_passes_behind_lowering(monkeypatch: pytest.MonkeyPatch) -> None:
    """They run in the dialects that have the pass that they name."""
    install(monkeypatch, PASSES, behind="Behind")
    assert "behind" not in [each.name for each in default_pipeline("inference").passes]
    names = {name: [each.name for each in lowering_passes(dialect)] for name, dialect in dialects.DIALECTS.items()}
    assert names["onnxruntime"][names["onnxruntime"].index("winograd") + 1] == "behind"
    assert all("behind" not in names[name] for name in ("functions", "ascend", "ops"))


@pytest.mark.parametrize(
    ("group", "value", "expected"),
    [
        (base.EXTENSIONS, "NUMBER", "is neither a class that derives from LayoutRule"),
        (base.EXTENSIONS, "Second", "two layout rules for Softmax"),
        (PASSES, "NUMBER", "is no Pass but a int"),
        (PASSES, "Nowhere", "has no single position in the pipeline"),
        (dialects.EXTENSIONS, "wrong_spelling", "cannot be loaded: AssertionError"),
        (catalog.EXTENSIONS, "BROKEN_FORMATS", "NC?W"),
    ],
)
def test_an_error_is_one_line_with_the_package(
    monkeypatch: pytest.MonkeyPatch, group: EntryPoints, value: str, expected: str
) -> None:
    install(monkeypatch, group, mine=value)
    with pytest.raises(ExtensionError) as caught:
        group.load_all()
    line = str(caught.value)
    assert expected in line and "\n" not in line
    assert f"package {__name__}: entry point mine = {__name__}:{value} of {group.group}" in line


def test_two_packages_with_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    group: EntryPoints[Pass] = EntryPoints("some.group", instance_of(Pass, ""))
    found = [EntryPoint("one", f"{package}:Step", "some.group") for package in ("first", "second")]
    monkeypatch.setattr("layoutopt.registry.entry_points", lambda group: found)
    with pytest.raises(ExtensionError, match=r"package second.* has the same name as that of first"):
        group.load_all()


def test_the_package_asks_for_no_entry_points_when_it_is_imported() -> None:
    probe = "import sys, layoutopt; sys.exit('layoutopt.registry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
    assert issubclass(ExtensionError, LayoutoptError) and ExtensionError.exit_code == 12
