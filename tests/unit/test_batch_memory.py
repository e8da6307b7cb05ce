"""The number of worker processes: the models that need most memory fit at the same time."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.batch import run
from layoutopt.batch.keys import is_timed
from layoutopt.batch.run import default_jobs, estimated_bytes


@given(st.lists(st.integers(1, 100), min_size=2, max_size=20), st.integers(0, 2000), st.integers(1, 8))
def test_the_largest_needs_of_all_workers_are_available(needs: list[int], available: int, cpus: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "available_bytes", lambda: available)
        patch.setattr(run, "estimated_bytes", lambda model: int(model.name))
        patch.setattr("joblib.cpu_count", lambda **_: cpus)
        workers = run.default_jobs([Path(str(each)) for each in needs], is_timed=False)
    largest = sorted(needs, reverse=True)
    assert 1 <= workers <= max(1, min(cpus, len(needs)))
    assert workers == 1 or sum(largest[:workers]) <= available
    assert workers == min(cpus, len(needs)) or sum(largest[: workers + 1]) > available


def test_the_need_of_a_model_grows_with_its_weights(tmp_path: Path) -> None:
    small, large = tmp_path / "small.onnx", tmp_path / "large.onnx"
    small.write_bytes(b"x")
    large.write_bytes(b"x" * 1_000_000)
    assert estimated_bytes(large) >= estimated_bytes(small) + 1_000_000
    assert estimated_bytes(tmp_path / "missing.onnx") <= estimated_bytes(small)


def jobs(count: int, **options: object) -> int:
    timed = is_timed({"target": "gpu-hopper", "measure": True, "calibrate": True} | options)
    return default_jobs([Path("a.onnx")] * count, is_timed=timed)


def test_times_are_measured_by_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joblib.cpu_count", lambda **_: 4)
    monkeypatch.setattr("layoutopt.batch.run.available_bytes", lambda: 1 << 40)
    assert jobs(1) == 0
    assert jobs(8) == 4  # nothing runs on this machine
    assert jobs(3) == 3
    assert jobs(8, target="cpu-avx2") == 4  # LAYOUTOPT_NO_MEASURE is set
    monkeypatch.delenv("LAYOUTOPT_NO_MEASURE")
    assert jobs(8, target="cpu-avx2") == 1
    assert jobs(8, target="cpu-avx2", measure=False, calibrate=False) == 4
    monkeypatch.setattr("layoutopt.batch.run.available_bytes", lambda: 0)
    assert jobs(8) == 1
