"""Structural mutants, with ONNX Runtime as the reference. The fuzzer is `python benchmarks/campaign.py --parts mutants`."""

from pathlib import Path

import onnx
import pytest
from tiers import tiered

from .isolation import outcomes
from .structure import Example, evaluate, examine


@pytest.mark.parametrize("count", tiered([12, 1000], 1))
def test_mutants_are_equal_or_refused(count: int) -> None:
    """Each runs in a separate process, so that crashes are detected as well."""
    found = list(outcomes(examine, range(count), chunk=1000))
    assert [(seed, outcome) for seed, outcome in found if outcome.is_failure] == []
    assert {"rewritten, equal", "unchanged", "refused, does not run"} <= {outcome.kind for _, outcome in found}


def sound() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[2,3] x) => (float[2,3] y)
        { a = Relu (x) y = Softmax <axis = 1> (a) }"""
    )


def verdict_of(model: onnx.ModelProto, folder: Path, **options: object) -> str:
    given = Example(model.SerializeToString(), b"", (), {"target": "gpu-hopper", **options}, None)
    return evaluate(given, folder).kind


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
