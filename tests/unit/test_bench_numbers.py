"""The arithmetic of `bench`: spreads, ratios, profiles, caveats."""

from math import exp, log

import pytest

from layoutopt.bench.bench_report import MachineReport, ModelReport, PeakMemory, Profile
from layoutopt.bench.benchmark import machine_caveats, ratio_caveats
from layoutopt.bench.op_profile import read_profile
from layoutopt.timing.statistics import estimate, is_quiet, null_ratio, ratio

# A profile of onnxruntime 1.31, shortened: two runs of Transpose and If, whose branch has a Conv and a Reshape.
RECORDED = [
    {"cat": "Session", "tid": 7, "dur": 20776, "ts": 11, "name": "model_loading_uri", "args": {}},
    {"cat": "Session", "tid": 7, "dur": 25486, "ts": 20886, "name": "session_initialization", "args": {}},
    {"cat": "Node", "tid": 7, "dur": 442, "ts": 48721, "name": "t_kernel_time", "args": {"op_name": "Transpose"}},
    {"cat": "Node", "tid": 7, "dur": 26, "ts": 49200, "name": "c_kernel_time", "args": {"op_name": "Conv"}},
    {"cat": "Session", "tid": 7, "dur": 600, "ts": 48719, "name": "SequentialExecutor::Execute", "args": {}},
    {"cat": "Session", "tid": 7, "dur": 900, "ts": 48699, "name": "model_run", "args": {}},
    {"cat": "Node", "tid": 7, "dur": 0, "ts": 60100, "name": "t_fence_before", "args": {"op_name": "Transpose"}},
    {"cat": "Node", "tid": 7, "dur": 100, "ts": 60100, "name": "t_kernel_time", "args": {"op_name": "Transpose"}},
    {"cat": "Node", "tid": 7, "dur": 60, "ts": 60210, "name": "c_kernel_time", "args": {"op_name": "Conv"}},
    {"cat": "Node", "tid": 7, "dur": 20, "ts": 60270, "name": "r_kernel_time", "args": {"op_name": "Reshape"}},
    {"cat": "Node", "tid": 7, "dur": 100, "ts": 60200, "name": "if_kernel_time", "args": {"op_name": "If"}},
    {"cat": "Node", "tid": 7, "dur": 200, "ts": 60300, "name": "t2_kernel_time", "args": {"op_name": "Transpose"}},
    {"cat": "Session", "tid": 7, "dur": 600, "ts": 60050, "name": "model_run", "args": {}},
]


def test_a_recorded_profile() -> None:
    profile = read_profile(RECORDED, skipped=1)
    assert profile.runs == 1
    assert [(each.op, each.nodes, round(each.seconds * 1e6)) for each in profile.ops] == [
        ("Transpose", 2, 300),
        ("Conv", 1, 60),
        ("If", 1, 20),
        ("Reshape", 1, 20),
    ]
    assert profile.seconds == pytest.approx(400e-6)
    assert profile.movement_share == pytest.approx(0.8)
    assert profile.reorder_share == pytest.approx(0.75)


def test_times_are_per_run() -> None:
    profile = read_profile(RECORDED, skipped=0)
    assert profile.runs == 2
    assert next(each for each in profile.ops if each.op == "Transpose").nodes == 1.5
    assert profile.seconds == pytest.approx((442 + 26 + 400) / 2 * 1e-6)


def test_the_interval_is_that_of_the_medians_of_the_blocks() -> None:
    """Four blocks have t = 3.182."""
    found = estimate([[each / 2, each, each * 4] for each in (1.0, 2.0, 4.0, 8.0)])
    assert (found.value, found.count) == (pytest.approx(8**0.5), 12)
    deviation = log(2) * (5 / 3) ** 0.5
    assert found.high / found.value == pytest.approx(exp(3.182 * deviation / 2))
    assert found.low * found.high == pytest.approx(found.value**2)


def test_disturbed_blocks_do_not_count_unless_they_are_the_half() -> None:
    """A block is disturbed if the ratio of its fastest runs is not that of the fastest runs of all blocks."""
    quiet, disturbed = [[2.0, 9.0], [1.0, 1.0]], [[3.0, 3.0], [1.0, 5.0]]
    for count, value, is_precise in ((5, 2.0, True), (6, 6**0.5, False)):
        blocks = [quiet] * (12 - count) + [disturbed] * count
        found = ratio([a for a, _ in blocks], [b for _, b in blocks])
        assert (found.value, found.disturbed, found.is_precise) == (pytest.approx(value), count, is_precise)
    assert not ratio([[1.0], [1.09], [1.0]], [[1.0]] * 3).is_precise, "the blocks agree, but the interval is wide"


def test_ratios_are_within_rounds() -> None:
    found = ratio([[2.0, 4.0]] * 6, [[1.0, 4.0]] * 6)
    assert (found.value, found.verdict, found.upper_quartile) == (2.0, "faster", 2.0)
    assert ratio([[1.0]] * 6, [[2.0]] * 6).verdict == "slower"
    assert ratio([[1.0]] * 4, [[2.0]] * 3 + [[0.5]]).verdict == "no difference shown"


def test_drift_cancels_in_the_null_ratio() -> None:
    """The rounds are A B, B A, A B, ... and those of the next block B A, A B, ...; the clock slows down steadily."""
    places = [[0, 3, 4, 7], [9, 10, 13, 14], [16, 19, 20, 23], [25, 26, 29, 30]]
    found = null_ratio([[1.01**place for place in block] for block in places])
    assert found is not None and found.value == pytest.approx(1.0)
    assert null_ratio([[1.0, 1.0], [1.0]]) is None


@pytest.mark.parametrize(
    ("factor", "is_quiet_machine"), [(1.0, True), (1.005, True), (1.05, False)], ids=["still", "quiet", "busy"]
)
def test_a_busy_machine_has_a_wide_null_interval(factor: float, is_quiet_machine: bool) -> None:
    null = null_ratio([[1.0, factor], [1.0, factor], [1.0, factor], [factor, 1.0]] * 3)
    assert null is not None and is_quiet(null) == is_quiet_machine


QUIET = MachineReport(cpu="", cpus=2, threads=1, pinned_to=0)


def model(label: str, samples: list[list[float]], baseline: list[list[float]] | None = None) -> ModelReport:
    return ModelReport(
        label=label,
        model="m.onnx",
        runtime="onnxruntime",
        runtime_version="1",
        inputs=[],
        time=estimate(samples),
        speed_up=ratio(baseline, samples) if baseline else None,
        creation=estimate(samples),
        creation_speed_up=None,
        memory=PeakMemory(peak_bytes=2, bytes_before=1),
        profile=Profile(runs=1, seconds=0, movement_share=0, reorder_share=0, ops=[]),
        samples=samples,
    )


def test_a_clear_effect_raises_no_doubt() -> None:
    first = [[2.0, 2.02]] * 6
    assert list(ratio_caveats([model("A", first), model("B", [[1.0, 1.0]] * 6, first)])) == []


def test_an_interval_that_includes_one() -> None:
    first = [[0.97], [1.0], [1.03], [1.0], [1.0]]
    (caveat,) = ratio_caveats([model("A", first), model("B", [[1.0]] * 5, first)])
    assert caveat == "B against A: no difference is shown, the confidence interval includes 1"


def test_a_machine_that_is_not_quiet() -> None:
    noisy = null_ratio([[1.0, 1.2]] * 4)
    assert noisy is not None
    (busy,) = machine_caveats(QUIET, [model("A", [[1.0, 1.2]] * 4)], noisy)
    assert busy.startswith("the machine is busy: A is 0.") and busy.endswith(" times as fast as itself")
    even, quiet = model("A", [[1.0]] * 6), null_ratio([[1.0, 1.0]] * 6)
    assert quiet is not None
    machine = MachineReport(cpu="", cpus=2, threads=1, pinned_to=None)
    assert list(machine_caveats(machine, [even], quiet)) == ["this system cannot pin the process to one CPU"]
    crowded = MachineReport(cpu="", cpus=2, threads=4, pinned_to=None)
    assert list(machine_caveats(crowded, [even], quiet)) == ["4 threads share 2 CPUs"]
