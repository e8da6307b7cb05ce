"""Random graphs, structural mutants and damaged files: a few examples of each part of `benchmarks/campaign.py`."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from tiers import tiered

from layoutopt.ops import rules

from . import files, oracle, structure
from .cases import OPSETS, Case, case_of, cases
from .choices import Seeded
from .graph_builder import GraphBuilder, Rejected, imports, info, since
from .isolation import Limits, Verdict, in_separate_process, outcomes
from .op_samples import add_sample
from .structure import Example

IS_QUICK = settings.default.max_examples < 500


def check_case(case: Case) -> None:
    """Runs in a separate process, which onnxruntime may crash."""
    verdict = in_separate_process(lambda: oracle.evaluate(case))
    if verdict.kind == "killed":
        verdict = oracle.explained(case)
    assert not verdict.is_failure, f"{verdict.kind}: {verdict.detail}"


@settings(
    max_examples=6 if IS_QUICK else 3000, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
@given(cases())
def test_a_random_graph_computes_the_same(case: Case) -> None:
    check_case(case)


def test_a_number_makes_one_example() -> None:
    first, second = case_of(8), case_of(8)
    assert first is not None
    assert second is not None
    assert first.model == second.model
    assert first.pins == second.pins


def test_a_mistake_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzzer detects a dialect that writes a wrong op."""
    case = next(case for seed in range(1000) if (case := case_of(seed)) is not None and _has(case, "Relu"))
    result = oracle.optimize(case, case.model)

    class Wrong:
        """The result with another op."""

        report = result.report

        @property
        def proto(self) -> onnx.ModelProto:
            proto = result.proto
            for node in proto.graph.node:
                node.op_type = "Neg" if node.op_type == "Relu" else node.op_type
            return proto

    monkeypatch.setattr(oracle, "optimize", lambda *_, **__: Wrong())
    assert oracle.evaluate(case).kind == "mismatch"


def test_what_rounding_decides_is_no_mistake_and_what_it_does_not_is() -> None:
    """In an integral output, an element near a rounding boundary may differ by 1; larger and other differences fail."""
    g = GraphBuilder(Seeded(0), 17, np.float16)
    x = g.input((2, 4))
    g.values[x][...] = [[0.5, 0.25, 1.5, 0.75], [0.5, 1.25, 2.75, 0.0]]
    y = g.add("Cast", [g.add("Add", [x, g.constant(np.full((1, 4), 0.5, np.float16))])], to=onnx.TensorProto.INT32)
    constants = [onnx.numpy_helper.from_array(value, name) for name, value in g.constants.items()]
    graph = onnx.helper.make_graph(g.nodes, "g", [info(x, g.values[x])], [info(y, g.values[y])], constants)
    model = onnx.helper.make_model(graph, opset_imports=imports(17, g.nodes, ()), ir_version=9)
    case = Case(model, [dict(g.inputs)], g.steps, g.constants, "gpu-hopper", None, "inference")
    expected = g.values[y]
    assert expected.tolist() == [[1, 0, 2, 1], [1, 1, 3, 0]]
    for place, by, excused in [((0, 0), -1, True), ((1, 0), -1, True), ((0, 0), 2, False), ((0, 1), 1, False)]:
        actual = expected.copy()
        actual[place] += by
        assert oracle.is_rounding(case, case.feeds[0], y, expected, actual) is excused, (place, by)
    assert not oracle.is_rounding(case, case.feeds[0], y, expected, expected - 1)


def _has(case: Case, kind: str) -> bool:
    """Whether an op of that kind computes an output, in inference mode without pins."""
    outputs = {each.name for each in case.model.graph.output}
    found = [node for node in case.model.graph.node if node.op_type == kind and set(node.output) & outputs]
    return bool(found) and case.mode == "inference" and not case.pins and case.dialect != "onnxruntime"


@pytest.mark.thorough
def test_every_rule_can_take_part() -> None:
    """A sample of every registered rule can be added to a graph at some opset that onnxruntime runs."""
    missing = []
    for kind in rules():
        if "::" not in kind and since(kind, max(OPSETS)) is None:
            continue  # onnx has no such op, or none at an opset that onnxruntime loads
        if not any(_can_add(g, kind) for g in _beginnings(kind) for _ in range(6)):
            missing.append(kind)
    assert missing == []


def _beginnings(kind: str) -> Iterator[GraphBuilder]:
    """Graphs with an input, at an opset at which most ops are there, and at all others."""
    for opset in dict.fromkeys((21, *OPSETS)):
        g = GraphBuilder(Seeded(kind), opset)
        g.input((2, 17, 3, 3))
        yield g


def _can_add(g: GraphBuilder, kind: str) -> bool:
    try:
        add_sample(g, kind)
    except Rejected:
        return False
    return True


# --- structural mutants ----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", tiered([12, 1000], 1))
def test_mutants_are_equal_or_refused(count: int) -> None:
    """Each runs in a separate process, so that crashes are detected as well."""
    found = list(outcomes(structure.examine, range(count), chunk=1000))
    assert [(seed, outcome) for seed, outcome in found if outcome.is_failure] == []
    assert {"rewritten, equal", "unchanged", "refused, does not run"} <= {outcome.kind for _, outcome in found}


def sound() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[2,3] x) => (float[2,3] y)
        { a = Relu (x) y = Softmax <axis = 1> (a) }"""
    )


def verdict_of(model: onnx.ModelProto, folder: Path, **options: object) -> str:
    given = Example(model.SerializeToString(), b"", (), {"target": "gpu-hopper", **options}, None)
    return structure.evaluate(given, folder).kind


def test_the_oracle_finds_each_kind_of_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle detects a manipulated result, source or error."""
    from layoutopt.driver.result import Result
    from layoutopt.errors import ModelError

    other = sound()
    other.graph.node[1].op_type = "LogSoftmax"

    def fresh(name: str) -> Path:
        (tmp_path / name).mkdir()
        return tmp_path / name

    def fails(error: Exception) -> object:
        def optimize(*arguments: object, **options: object) -> None:
            raise error

        return optimize

    assert verdict_of(sound(), fresh("good"), verify=False) == "unchanged"
    with monkeypatch.context() as patch:
        patch.setattr(Result, "save", lambda self, path, **rest: onnx.save(other, path))
        assert verdict_of(sound(), fresh("wrong"), verify=False) == "wrong"
    with monkeypatch.context() as patch:
        patch.setattr(Result, "save", lambda self, path, **rest: onnx.save(other, path.with_name("m.onnx")))
        assert verdict_of(sound(), fresh("lost"), verify=False) == "lost"
    for error, kind in [(ModelError("no"), "refused"), (IndexError("no"), "traceback")]:
        with monkeypatch.context() as patch:
            patch.setattr("layoutopt.optimize", fails(error))
            assert verdict_of(sound(), fresh(kind), verify=False) == kind
    broken = sound()
    broken.graph.node[1].op_type = "Nope"
    assert verdict_of(broken, fresh("broken"), verify=False) == "refused, does not run"


# --- damaged files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", tiered([30, 6000], 1))
def test_damaged_files_end_in_one_line(count: int) -> None:
    """Each runs in a separate process, so that crashes are detected as well."""
    found = list(outcomes(files.examine, range(count), chunk=1000))
    assert [(seed, outcome) for seed, outcome in found if outcome.is_failure] == []
    assert {"exit 0", "exit 3"} <= {outcome.kind for _, outcome in found}


def test_a_file_that_is_good_is_written(tmp_path: Path) -> None:
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        verdict = files.evaluate(Seeded(seed), sound().SerializeToString(), folder)
        assert verdict.kind == "exit 0", verdict


LONG = "float[9223372036854775807] x"


@pytest.mark.parametrize(
    "text",
    [
        f"g ({LONG}) => (float y) <int64 i = {{-1}}> {{ y = Gather (x, i) }}",
        f"g ({LONG}, float[1] z) => (y) {{ a = Add (x, z) y = Cast <to = 7> (a) }}",
    ],
)
def test_what_has_ended_a_process(text: str, tmp_path: Path) -> None:
    header = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
    content = onnx.parser.parse_model(header + text).SerializeToString()
    verdict = in_separate_process(lambda: files.evaluate(Seeded(0), content, tmp_path))
    assert verdict.kind == "exit 3", verdict
    assert "too many for any memory" in verdict.detail


def test_a_crash_or_a_hang_is_the_outcome_of_one_example() -> None:
    def examine(seed: int) -> Verdict:
        if seed == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        while seed == 3:
            pass
        return Verdict("equal")

    kinds = [found.kind for _, found in outcomes(examine, range(5), limits=Limits(cpu=0.2))]
    assert kinds == ["equal", "killed", "equal", "hangs", "equal"]
    assert in_separate_process(lambda: in_separate_process(lambda: examine(0))).kind == "equal"
