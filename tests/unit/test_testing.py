"""The functions of `layoutopt.testing` accept extensions that meet the laws, and name the case that breaks one."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import onnx
import pytest

from layoutopt import testing
from layoutopt.cost_models import load_target
from layoutopt.errors import VerificationError
from layoutopt.extend import (
    CostModel,
    Format,
    FusionPattern,
    Graph,
    Match,
    OneAxis,
    Op,
    Pass,
    PassContext,
    format_system,
    register,
)
from layoutopt.ops import base

MODEL = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 18]>
net (float[1, 16, 8, 8] x) => (float[1, 16, 8, 8] y) { a = Relu (x) b = Relu (a) c = Neg (b) y = Relu (c) }""")


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the rules that a test has registered."""
    monkeypatch.setattr(base, "_RULES", dict(base._RULES))


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


@pytest.mark.usefixtures("registry")
def test_a_rule_that_is_wrong() -> None:
    @register
    class Reverse(OneAxis):
        """A wrong rule: it declares the last axis, and the op reverses the channels."""

        family = "rearrangement"
        ops = ("test::Reverse",)

        def lower(self, op: Op, build: base.Builder) -> None:
            x = build.input(0)
            assert x is not None
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


def test_formats() -> None:
    rows = (("A4", "NCHW4c", "NCHW", ""), ("F", "OIHW4i4o", "OIHW", ""), ("D", "NC{C0}c", "NC", ""))
    testing.check_format_system(format_system("Test", "Test manual", *rows))
    with pytest.raises(AssertionError, match="two formats have one name"):
        testing.check_format_system(format_system("Test", "Test manual", *rows, rows[0]))
    with pytest.raises(AssertionError, match="needs a system and a source"):
        testing.check_format_system(format_system("Test", "", *rows))
    testing.check_conversion(Format.parse("NCHW"), Format.parse("NCHW4c"), (2, 3, 4, 5))


def changed(**members: object) -> CostModel:
    """A built-in cost model with other members."""
    model = load_target("gpu-hopper")
    own = {
        name: getattr(model, name)
        for name in ("name", "dialect", "preferred_formats", "kernel_seconds", "conversion_seconds")
    }
    return SimpleNamespace(**(own | members))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"conversion_seconds": lambda value, src, dst: 0.0}, "from NCHW to NHWC in 0.0 s"),
        ({"conversion_seconds": lambda value, src, dst: 1.0}, "from NCHW to NCHW in 1.0 s"),
        ({"kernel_seconds": lambda op, signature: float("inf")}, "Conv with .*: inf s"),
        ({"name": ""}, "needs a name"),
    ],
)
def test_cost_models(members: dict[str, object], expected: str) -> None:
    with pytest.raises(AssertionError, match=expected):
        testing.check_cost_model(changed(**members))


@dataclass(frozen=True)
class DropRepeats(Pass):
    """before: Relu -> Relu    after: Relu."""

    name = "drop-repeats"
    before = "assign-formats"

    def run(self, graph: Graph, context: PassContext) -> None:
        for op in graph.ops:
            x, y = op.inputs[0], op.outputs[0]
            assert x is not None and y is not None
            first = graph.producer(x)
            if self.applies(op) and first is not None and self.applies(first) and not graph.is_output(y):
                graph.replace_uses(y, x)
                graph.remove_if_dead(op)

    def applies(self, op: Op) -> bool:
        return op.kind == "Relu"


class DropAll(DropRepeats):
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


class Thawed(Pass):
    """A wrong pass: it is no dataclass."""

    name = "thawed"

    def run(self, graph: Graph, context: PassContext) -> None:
        return


def test_passes() -> None:
    assert testing.check_pass(DropRepeats(), MODEL) == 1
    with pytest.raises(VerificationError):
        testing.check_pass(DropAll(), MODEL)
    with pytest.raises(AssertionError, match="a second run of restless"):
        testing.check_pass(Restless(), MODEL)
    with pytest.raises(AssertionError, match="Thawed is no frozen dataclass"):
        testing.check_pass(Thawed(), MODEL)


class Doubled(FusionPattern):
    """Neg of Relu; the class variable is the fault of its matches."""

    name, fused_op, root_ops = "doubled", "test::Doubled", ("Neg",)
    fault: ClassVar[str] = ""

    def match(self, graph: Graph, op: Op) -> Match | None:
        x, y = op.inputs[0], op.outputs[0]
        relu = graph.producer(x) if x is not None else None
        if relu is None or x is None or y is None:
            return None
        return {
            "": Match(y, (op, relu), relu.inputs),
            "root op": Match(x, (relu,), relu.inputs),
            "cycle": Match(y, (op, relu), op.inputs),
            "result": Match(graph.inputs[0], (op, relu), relu.inputs),
        }[self.fault]


@pytest.mark.parametrize(
    ("fault", "expected"),
    [("root op", "the root op is not"), ("cycle", "read a value that it replaces"), ("result", "no op of")],
)
def test_patterns(fault: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert testing.check_pattern(Doubled(), MODEL, MODEL) == 2
    monkeypatch.setattr(Doubled, "fault", fault)
    with pytest.raises(AssertionError, match=expected):
        testing.check_pattern(Doubled(), MODEL)
