"""Measured speed-ups: the arithmetic on a fake clock, the decision, and one real measurement."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx
import pytest

import layoutopt
from layoutopt.driver.measuring import reason_to_keep
from layoutopt.driver.prices import VARIABLE
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
        max_seconds=1e6,
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_the_speed_up_is_the_ratio_of_the_times(threads: int) -> None:
    first, second = speed_ups(3.0, 2.0, creation=2.0, threads=threads)
    assert (first.sizes, second.sizes) == ({"n": 1}, {"n": 3})
    assert (first.before, first.after) == (3.0, 2.0)
    assert (second.before, second.after) == (9.0, 6.0)
    assert [each.runs.value for each in (first, second)] == [pytest.approx(1.5)] * 2
    assert (first.null.low, first.null.high) == (1.0, 1.0)
    assert (first.creation, first.blocks) == (2.0, 12)


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        ((2.0, 1.0), ""),
        ((2.0, 2.0), ""),  # no gain is shown, and no loss
        ((2.0, 2.2), "measured, the result is slower: 0.91 to 0.91 times as fast at n = 1"),
    ],
)
@pytest.mark.parametrize("creation", [0.5, 3.0])
def test_the_original_is_kept_only_if_a_loss_is_shown(times: tuple[float, float], reason: str, creation: float) -> None:
    """The time of session creation is not a reason."""
    assert reason_to_keep(speed_ups(*times, creation=creation)) == reason


def test_a_loss_at_one_size_is_enough() -> None:
    faster, slower = speed_ups(3.0, 2.0)[0], speed_ups(2.0, 3.0)[1]
    assert reason_to_keep([faster, slower]) == "measured, the result is slower: 0.67 to 0.67 times as fast at n = 3"
    assert reason_to_keep([]) == ""


@pytest.mark.parametrize(("seconds", "blocks"), [(0.05, 12), (0.4, 9), (2.0, 3), (5.0, 3)])
def test_slow_models_have_fewer_blocks(seconds: float, blocks: int) -> None:
    """No block begins after 30 s, but there are three."""
    clock = FakeClock()
    feeds = [SizedFeed({}, {"x": np.zeros(1)})]
    found = measure_speed_up(
        lambda: FakeSession(clock, 0.2, seconds), lambda: FakeSession(clock, 0.2, seconds), feeds, clock=clock
    )
    assert found[0].blocks == blocks


MODEL = """<ir_version: 10, opset_import: ["" : 18]>
g (float[batch,16,24,24] x) => (float[batch,24,24,16] y)
{ a = Relu(x) b = Transpose<perm=[0,2,3,1]>(a) c = Transpose<perm=[0,3,1,2]>(b) y = Transpose<perm=[0,2,3,1]>(c) }"""


def test_every_size_of_the_plan_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shared machine may find the result slower, so the test asserts what was measured, not how fast it is."""
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr("layoutopt.timing.speed_up.SpeedUp.disturbance", "")
    report = layoutopt.optimize(onnx.parser.parse_model(MODEL), "cpu", dims={"batch": (1, 4)}).report
    assert report.measurement is not None and not report.measurement.reason
    assert [each.sizes for each in report.measurement.sizes] == [{"batch": 1}, {"batch": 2}, {"batch": 4}]
    assert all(0 < each.low <= each.speed_up <= each.high for each in report.measurement.sizes)
    assert report.changed or report.reason.startswith("measured, the result is ")


@pytest.mark.parametrize(
    ("field", "update", "cause"),
    [
        ("null", {"low": 0.9, "high": 1.2}, "the original is 0.90 to 1.20 times as fast as itself"),
        (
            "runs",
            {"low": 0.4, "high": 0.6, "disturbed": 7},
            "the speed-up may be 0.40 to 0.60, and 7 of 12 blocks disagree with the fastest runs",
        ),
    ],
)
def test_a_busy_machine_takes_no_gain_away(
    monkeypatch: pytest.MonkeyPatch, field: str, update: dict[str, float], cause: str
) -> None:
    """The estimate decides, and the summary has the reason."""
    monkeypatch.delenv(VARIABLE)
    (slower, _) = speed_ups(1.0, 2.0)
    busy = replace(slower, **{field: getattr(slower, field).model_copy(update=update)})
    monkeypatch.setattr("layoutopt.driver.measuring.measure_speed_up", lambda *_: [busy])
    report = layoutopt.optimize(onnx.parser.parse_model(MODEL), "cpu").report
    assert report.changed and report.measurement is not None and not report.measurement.sizes
    what = f"not measured: this machine is busy: {cause} at n = 1; run it again without other programs"
    assert what in next(each.text for each in report.facts if each.label == "speed")


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"measure": False}, "off"), ({"runtime": "any"}, "any is not the onnxruntime of this machine")],
)
def test_the_reason_for_no_measurement(monkeypatch: pytest.MonkeyPatch, options: dict[str, str], reason: str) -> None:
    monkeypatch.delenv(VARIABLE)
    report = layoutopt.optimize(onnx.parser.parse_model(MODEL), "cpu", **options).report  # type: ignore[arg-type]
    assert report.changed and report.measurement is not None
    assert report.measurement.reason == reason and not report.measurement.sizes
