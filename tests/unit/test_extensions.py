"""Extensions: entry points of packages, refused in one line, and the checks of `layoutopt.testing`, which name a broken law."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from importlib.metadata import EntryPoints as Installed
from typing import Any

import numpy as np
import onnx
import pytest
from test_graphs import RELUS, DropRepeats

from layoutopt import dialects, testing
from layoutopt.driver.job import lowered_passes
from layoutopt.errors import ExtensionError, LayoutoptError, VerificationError
from layoutopt.extend import Graph, OneAxis, Op, Pass, PassContext, format_system, register
from layoutopt.formats import catalog
from layoutopt.ops import base
from layoutopt.passes import EXTENSIONS as PASSES
from layoutopt.passes import default_pipeline
from layoutopt.patterns import base as pattern_base
from layoutopt.registry import EntryPoints, instance_of, library


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


class First(Step):
    """A pass on the lowered graphs of all dialects."""

    name, after = "first", "lower"


class Nowhere(Step):
    """A pass without a position in the pipeline."""

    name, after = "nowhere", ""


class Before(Step):
    """A pass before the passes of all dialects, which only `after` can express."""

    name, before, after = "before", "lower", ""


NUMBER = 7


def wrong_spelling() -> None:
    raise AssertionError


BROKEN_FORMATS = format_system("Test", "Test manual", ("T4", "NC?W", "NCHW", ""))


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Registries without loaded entry points, before and after each test."""
    monkeypatch.setattr(base, "_RULES", dict(base._RULES))
    monkeypatch.setattr(pattern_base, "_PATTERNS", {name: [*each] for name, each in pattern_base._PATTERNS.items()})
    catalog._extension_entries.cache_clear()
    yield
    catalog._extension_entries.cache_clear()


def install(monkeypatch: pytest.MonkeyPatch, group: EntryPoints, **values: str) -> None:
    """Let this file declare entry points of a package; returns its objects by name."""
    found = {name: EntryPoint(name, f"{__name__}:{value}", group.group) for name, value in values.items()}
    monkeypatch.setattr(group, "found", found)
    monkeypatch.setattr(group, "_loaded", {})
    catalog._extension_entries.cache_clear()


def test_built_in_ops_need_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, base.EXTENSIONS, gone="nothing")
    assert base.rule_of(Op("Relu", (), (), version=18)) is not None
    with pytest.raises(ExtensionError):
        base.rule_of(Op("Relu", (), (), domain="registry.test"))


def test_passes_behind_lowering(monkeypatch: pytest.MonkeyPatch) -> None:
    """They run in the dialects that have the pass that they name, and behind `lower` first in all dialects."""
    install(monkeypatch, PASSES, behind="Behind", first="First")
    assert not {"behind", "first"} & {each.name for each in default_pipeline("inference").passes}
    names = {name: [each.name for each in lowered_passes(dialect)] for name, dialect in dialects.DIALECTS.items()}
    assert names["onnxruntime"][names["onnxruntime"].index("winograd") + 1] == "behind"
    assert all("behind" not in names[name] for name in ("functions", "ascend", "ops"))
    assert {(each[0], each.count("first")) for each in names.values()} == {("first", 1)}
    install(monkeypatch, PASSES, before="Before")
    with pytest.raises(ExtensionError, match="no pass 'lower' to run next to"):
        lowered_passes(dialects.DIALECTS["ops"])


def test_an_import_that_fails_is_named_and_the_order_is_that_of_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    group: EntryPoints[Any] = EntryPoints("some.group", str, built_in={"z": ""})
    found = {name: EntryPoint(name, f"{__name__}:NUMBER", "some.group") for name in "ab"}
    monkeypatch.setattr(group, "found", found)
    assert group["b"] == "7" and [*group] == ["z", "a", "b"]
    monkeypatch.setattr(EntryPoint, "load", lambda _: int("x"))
    with pytest.raises(ExtensionError, match="cannot be loaded: ValueError"):
        dict(group)


def test_a_library_that_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("layoutopt.registry.import_module", lambda _: exec("from os import nothing"))
    with pytest.raises(LayoutoptError, match="cannot import the package torch: cannot import name 'nothing'"):
        library("torch", "torch", "export")


@pytest.mark.parametrize(
    ("group", "value", "expected"),
    [
        (base.EXTENSIONS, "NUMBER", "is neither a class that derives from LayoutRule"),
        (base.EXTENSIONS, "Second", "two layout rules for Softmax"),
        (PASSES, "NUMBER", "is no Pass but a int"),
        (PASSES, "Nowhere", "has no single position in the pipeline"),
        (dialects.DIALECTS, "wrong_spelling", "cannot be loaded: AssertionError"),
        (catalog.EXTENSIONS, "BROKEN_FORMATS", "NC?W"),
    ],
)
def test_an_error_is_one_line_with_the_package(
    monkeypatch: pytest.MonkeyPatch, group: EntryPoints, value: str, expected: str
) -> None:
    install(monkeypatch, group, mine=value)
    with pytest.raises(ExtensionError) as caught:
        dict(group)
    line = str(caught.value)
    assert expected in line and "\n" not in line
    assert f"package {__name__}: entry point mine = {__name__}:{value} of {group.group}" in line


def test_two_packages_with_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    group: EntryPoints[Pass] = EntryPoints("some.group", instance_of(Pass, ""))
    found = [EntryPoint("one", f"{package}:Step", "some.group") for package in ("first", "second")]
    monkeypatch.setattr("layoutopt.registry.installed", lambda: Installed(found))
    with pytest.raises(ExtensionError, match=r"package second.* has the same name as that of first"):
        dict(group)


MODEL = onnx.parser.parse_model(RELUS)

REVERSED = """<domain: "test", opset_import: ["" : 17]> {} (x) => (y) {{
    last = Constant <value_ints = [-1]> ()
    first = Constant <value_ints = [-9223372036854775807]> ()
    axis = Constant <value_ints = [1]> ()
    z = Slice (x, last, first, axis, last)
    shape = Shape (x)
    y = Reshape (z, shape)
}}"""


def reversing(name: str) -> testing.Sample:
    """A sample of an op that reverses the channels."""
    return testing.make_sample(f"y = test.{name} (x)", x=(2, 8, 3, 5), function=REVERSED.format(name))


def test_a_rule_that_is_wrong() -> None:
    @register
    class Reverse(OneAxis):
        """A wrong rule: it declares the last axis, and the op reverses the channels."""

        family = "rearrangement"
        ops = ("test::Reverse",)

        def lower(self, op: Op, build: base.OpBuilder) -> None:
            x = build.input(0)
            (result,) = build.op(op.op_type, [x], [build.output_type(0)])
            build.set_output(0, result)

    with pytest.raises(AssertionError, match=r"test\.Reverse .* differs"):
        testing.check_rule(reversing("Reverse"))


def test_an_op_without_a_rule_or_without_a_run() -> None:
    with pytest.raises(AssertionError, match="no layout rule for test::Unknown"):
        testing.check_rule(reversing("Unknown"))
    sample = testing.make_sample("y = Relu (x)", x=(2, 3))
    broken = testing.Sample("two by two", sample.model, ({"x": np.zeros((2, 2), np.float32)},))
    with pytest.raises(Exception, match="invalid dimensions"):
        testing.check_rule(broken)


@dataclass(frozen=True)
class Placed(DropRepeats):
    """A pass with a position in the pipeline."""

    before = "assign-formats"


class DropAll(Placed):
    """A wrong pass: it removes Neg and Relu."""

    def applies(self, op: Op) -> bool:
        return op.kind in ("Relu", "Neg")


@dataclass(frozen=True)
class Restless(Pass):
    """A wrong pass: it changes the graph at every run."""

    name = "restless"
    after = "assign-formats"

    def run(self, graph: Graph, context: PassContext) -> None:
        graph.touch()


def test_passes() -> None:
    assert testing.check_pass(Placed(), MODEL) == 1
    with pytest.raises(VerificationError):
        testing.check_pass(DropAll(), MODEL)
    with pytest.raises(AssertionError, match="a second run of restless"):
        testing.check_pass(Restless(), MODEL)
    with pytest.raises(AssertionError, match="drop-repeats changes none of the 0 models"):
        testing.check_pass(Placed())
