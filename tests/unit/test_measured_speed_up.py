"""Measured speed-ups: the arithmetic on a fake clock, the decision, and one real measurement."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path

import numpy as np
import onnx
import pytest

import layoutopt
from layoutopt.driver.calibration import VARIABLE
from layoutopt.driver.measuring import reason_to_keep
from layoutopt.errors import ArgumentError
from layoutopt.timing.speed_up import Feed, SizedFeed, SpeedUp, measure_speed_up


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeSession:
    """A session whose runs take `seconds` times the extent of x."""

    def __init__(self, clock: FakeClock, creation: float, seconds: float) -> None:
        self.clock, self.seconds = clock, seconds
        clock.now += creation

    def run(self, names: Sequence[str] | None, feeds: Feed) -> list[object]:
        self.clock.now += self.seconds * len(feeds["x"])
        return []


def speed_ups(before: float, after: float, *, creation: float = 1.0, threads: int = 1) -> list[SpeedUp]:
    """The speed-ups at two sizes, of sessions that are created `creation` times as fast."""
    clock = FakeClock()
    feeds = [SizedFeed({"n": size}, {"x": np.zeros(size)}) for size in (1, 3)]
    return measure_speed_up(
        lambda: FakeSession(clock, 6.0, before),
        lambda: FakeSession(clock, 6.0 / creation, after),
        feeds,
        threads,
        seconds=0.01,
        clock=clock,
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_the_speed_up_is_the_ratio_of_the_times(threads: int) -> None:
    first, second = speed_ups(3.0, 2.0, creation=2.0, threads=threads)
    assert (first.sizes, second.sizes) == ({"n": 1}, {"n": 3})
    assert (first.before.median, first.after.median) == (3.0, 2.0)
    assert (second.before.median, second.after.median) == (9.0, 6.0)
    assert [each.runs.median for each in (first, second)] == [1.5, 1.5]
    assert first.creation.median == 2.0
    assert first.blocks == 6
    assert reason_to_keep([first, second]) == ""


def test_a_slower_result_is_not_kept() -> None:
    assert reason_to_keep(speed_ups(2.0, 2.2, creation=3.0)) == (
        "measured, the result is slower: 0.91 times as fast at n = 1"
    )


def test_a_result_of_equal_speed_is_kept_only_if_sessions_are_created_faster() -> None:
    assert reason_to_keep(speed_ups(2.0, 2.0)) == "measured, the result is not faster: 1.00 to 1.00 times as fast"
    assert reason_to_keep(speed_ups(2.0, 2.0, creation=1.5)) == ""


@pytest.mark.parametrize(
    ("seconds", "times", "blocks"),
    [
        (0.4, [2.0], 3),  # three blocks are enough after 1.5 s
        (0.05, [2.0], 6),  # a small model has had six blocks by then
        (0.7, [2.0, 2.0, 0.98], 4),  # not clear in one block: until 3 s have passed
        (1.2, [0.5], 4),
        (2.0, [2.0], 2),
    ],
)
def test_a_clear_result_ends_the_measurement_of_a_slow_model(
    monkeypatch: pytest.MonkeyPatch, seconds: float, times: list[float], blocks: int
) -> None:
    """The rewritten model takes a quarter of `seconds`; the original longer by the given factors, block by block."""
    clock, created = FakeClock(), count()
    monkeypatch.setattr("layoutopt.timing.speed_up.perf_counter", clock)
    monkeypatch.setattr("layoutopt.timing.interleaved.perf_counter", clock)

    def original() -> FakeSession:
        return FakeSession(clock, 0.001, seconds / 4 * times[next(created) % len(times)])

    found = measure_speed_up(
        original,
        lambda: FakeSession(clock, 0.001, seconds / 4),
        [SizedFeed({}, {"x": np.zeros(1)})],
        seconds=0.01,
        clock=clock,
        ends_when_clear=True,
    )
    assert found[0].blocks == blocks


def test_without_a_measurement_the_result_is_kept() -> None:
    assert reason_to_keep([]) == ""


def test_a_slower_size_is_enough() -> None:
    faster, slower = speed_ups(3.0, 2.0)[0], speed_ups(2.0, 3.0)[1]
    assert reason_to_keep([faster, slower]) == "measured, the result is slower: 0.67 times as fast at n = 3"


MODEL = """<ir_version: 10, opset_import: ["" : 18]>
g (float[batch,16,24,24] x) => (float[batch,24,24,16] y)
{ a = Relu(x) b = Transpose<perm=[0,2,3,1]>(a) c = Transpose<perm=[0,3,1,2]>(b) y = Transpose<perm=[0,2,3,1]>(c) }"""


def test_every_size_of_the_plan_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shared machine may find the result slower, so the test asserts what was measured, not how fast it is."""
    monkeypatch.delenv(VARIABLE)
    report = layoutopt.optimize(onnx.parser.parse_model(MODEL), "cpu", dims={"batch": (1, 4)}).report
    assert report.measurement is not None and not report.measurement.reason
    assert [each.sizes for each in report.measurement.sizes] == [{"batch": 1}, {"batch": 2}, {"batch": 4}]
    assert all(0 < each.low <= each.speed_up <= each.high for each in report.measurement.sizes)
    assert report.changed or report.reason.startswith("measured, the result is ")


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"measure": False}, "off"), ({"runtime": "any"}, "any is not the onnxruntime of this machine")],
)
def test_the_reason_for_no_measurement(monkeypatch: pytest.MonkeyPatch, options: dict[str, str], reason: str) -> None:
    monkeypatch.delenv(VARIABLE)
    report = layoutopt.optimize(onnx.parser.parse_model(MODEL), "cpu", **options).report  # type: ignore[arg-type]
    assert report.changed and report.measurement is not None
    assert report.measurement.reason == reason and not report.measurement.sizes


def test_threads_are_at_least_one(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="threads=0: no number of threads"):
        layoutopt.optimize(onnx.parser.parse_model(MODEL), "cpu", threads=0)
