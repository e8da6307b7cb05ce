"""Writing a pass, putting it into a pipeline, watching it, reading its notes."""

from dataclasses import dataclass

import onnx
import onnx.parser
import onnx_ir
import pytest

import layoutopt
from layoutopt import inference
from layoutopt.cost_models import load_target
from layoutopt.dialects import DIALECTS, Lower
from layoutopt.driver.job import with_lowering
from layoutopt.errors import PinError
from layoutopt.ir import Graph, Op
from layoutopt.passes import DEFAULT_PIPELINE
from layoutopt.passes.base import Note, Pass, PassContext, Pipeline

MODEL = """
<ir_version: 9, opset_import: ["" : 18]>
net (float[1,8,4,4] x) => (float[1,8,4,4] y) {
  a = Relu(x)
  b = Relu(a)
  c = Neg(b)
  y = Relu(c)
}
"""


@dataclass(frozen=True)
class DropRepeats(Pass):
    """before: Relu -> Relu    after: Relu"""

    kind: str = "Relu"

    name = "drop-repeats"

    def run(self, graph: Graph, context: PassContext) -> None:
        for op in graph.ops:
            x, y = op.inputs[0], op.outputs[0]
            if op.op_type != self.kind or x is None or y is None:
                continue
            if not self._repeats(graph.producer(x)):
                context.note(self, op.name or y.name, "what is before it is another op")
            elif not graph.is_output(y):
                graph.replace_uses(y, x)
                graph.remove_op(op)

    def _repeats(self, before: Op | None) -> bool:
        return before is not None and before.op_type == self.kind


@pytest.fixture
def graph() -> Graph:
    return inference.lift(onnx_ir.serde.deserialize_model(onnx.parser.parse_model(MODEL)))


@pytest.fixture
def context() -> PassContext:
    return PassContext(load_target("cpu-avx2"))


def test_a_pass_runs_and_is_known_to_have_changed_something(graph: Graph, context: PassContext) -> None:
    results = Pipeline((DropRepeats(), DropRepeats())).run(graph, context)
    assert [(each.name, each.changed) for each in results] == [("drop-repeats", True), ("drop-repeats", False)]
    assert [op.op_type for op in graph.ops] == ["Relu", "Neg", "Relu"]
    assert all(each.seconds >= 0 for each in results)


def test_notes_say_what_did_not_apply(graph: Graph, context: PassContext) -> None:
    Pipeline((DropRepeats(),)).run(graph, context)
    assert context.notes == [
        Note("drop-repeats", "a", "what is before it is another op"),
        Note("drop-repeats", "y", "what is before it is another op"),
    ]


def test_a_pass_of_ones_own_in_the_one_call() -> None:
    pipeline = Pipeline((DropRepeats(), *DEFAULT_PIPELINE.passes))
    result = layoutopt.optimize(onnx.parser.parse_model(MODEL), "cpu-avx2", pipeline=pipeline)
    assert result.report.changed
    assert [note.where for note in result.report.notes if note.source == "drop-repeats"] == ["a", "y"]
    assert result.report.passes[0].name == "drop-repeats"


@pytest.mark.parametrize("name", DIALECTS)
def test_lowering_and_the_passes_of_a_dialect_are_reported_and_watched(name: str) -> None:
    seen: list[tuple[str, str, Graph]] = []
    result = layoutopt.optimize(
        onnx.parser.parse_model(MODEL),
        "gpu-hopper",
        dialect=name,
        pins={"x": "NHWC"},
        watch=lambda moment, step, graph: seen.append((moment, step.name, graph)),
    )
    names = [step.name for step in with_lowering(DEFAULT_PIPELINE, DIALECTS[name]).passes]
    assert names[names.index("lower") + 1 :] == [step.name for step in DIALECTS[name].passes]
    assert [each.name for each in result.report.passes] == names
    assert next(graph for *moment, graph in seen if moment == ["after", "lower"]) is seen[-1][2]
    assert result.graph is seen[0][2] is not seen[-1][2]
    assert (result.graph.stage, seen[-1][2].stage) == ("cast", "lowered")


def test_a_pass_behind_lowering() -> None:
    """A pipeline that contains `Lower` runs unchanged, with a further pass behind the passes of the dialect."""

    @dataclass(frozen=True)
    class Rename(Pass):
        """before: a lowered graph    after: the same under another name"""

        name = "rename"

        def run(self, graph: Graph, context: PassContext) -> None:
            graph.name = "renamed"

    ops = DIALECTS["ops"]
    pipeline = Pipeline((*DEFAULT_PIPELINE.passes, Lower(ops), *ops.passes, Rename()))
    result = layoutopt.optimize(
        onnx.parser.parse_model(MODEL), "gpu-hopper", dialect="ops", pins={"x": "NHWC"}, pipeline=pipeline
    )
    assert [each.name for each in result.report.passes][-1] == "rename"
    assert result.proto.graph.name == "renamed"


def test_an_exception_names_the_pass(graph: Graph, context: PassContext) -> None:
    @dataclass(frozen=True)
    class Broken(Pass):
        name = "broken"

        def run(self, graph: Graph, context: PassContext) -> None:
            raise KeyError("nothing")

    with pytest.raises(KeyError) as caught:
        Pipeline((Broken(),)).run(graph, context)
    assert caught.value.__notes__ == ["in pass broken, graph 'net'"]


@pytest.mark.parametrize(("name", "expected"), [("b", "part of another op"), ("q", "no such tensor")])
def test_a_tensor_that_is_gone_cannot_be_pinned(name: str, expected: str) -> None:
    """The message states whether the model contains the tensor."""
    pipeline = Pipeline((DropRepeats(), *DEFAULT_PIPELINE.passes))
    with pytest.raises(PinError, match=f"{name}: .*{expected}"):
        layoutopt.optimize(onnx.parser.parse_model(MODEL), "gpu-hopper", pins={name: "NHWC"}, pipeline=pipeline)
