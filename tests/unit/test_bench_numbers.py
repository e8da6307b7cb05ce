"""The arithmetic of `bench`: spreads, ratios, profiles, caveats."""

import random
from statistics import median

import pytest

from layoutopt.bench.bench_report import MachineReport, ModelReport, PeakMemory, Profile
from layoutopt.bench.caveats import machine_caveats, ratio_caveats
from layoutopt.bench.op_profile import read_profile
from layoutopt.timing.statistics import median_estimate, ratio

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


def test_a_profile_without_runs() -> None:
    profile = read_profile(RECORDED[:2], skipped=1)
    assert (profile.runs, profile.ops, profile.movement_share) == (0, [], 0.0)


def test_the_interval_is_that_of_the_blocks() -> None:
    found = median_estimate([[1, 1, 9], [2, 2, 2], [3], [4], [5], [6]])
    assert (found.low, found.high, found.confidence) == (1, 6, 0.96875)
    assert (found.median, found.lower_quartile, found.upper_quartile, found.count) == (2.5, 2, 4.75, 10)


@pytest.mark.parametrize(
    ("count", "low", "confidence"),
    [(1, 0, 0.0), (2, 0, 0.5), (5, 0, 0.9375), (6, 0, 0.96875), (9, 1, 0.9609375), (20, 5, 0.9586)],
)
def test_ranks_are_those_of_the_tables(count: int, low: int, confidence: float) -> None:
    found = median_estimate([[float(value)] for value in range(count)])
    assert (found.low, found.high) == (low, count - 1 - low)
    assert found.confidence == pytest.approx(confidence, abs=1e-4)


def test_the_interval_covers_the_median_as_often_as_it_says() -> None:
    generator = random.Random(0)
    found = (median_estimate([[generator.expovariate(1)] for _ in range(6)]) for _ in range(2000))
    covered = sum(each.low <= 0.6931 <= each.high for each in found)
    assert covered / 2000 == pytest.approx(0.96875, abs=0.015)


def test_ratios_are_within_rounds() -> None:
    found = ratio([[2.0, 4.0]] * 6, [[1.0, 4.0]] * 6)
    assert (found.median, found.low, found.high, found.verdict) == (1.5, 1.5, 1.5, "faster")
    assert ratio([[1.0]] * 6, [[2.0]] * 6).verdict == "slower"
    assert ratio([[1.0]] * 6, [[2.0]] * 5 + [[0.5]]).verdict == "no difference shown"


def model(label: str, samples: list[list[float]], baseline: list[list[float]] | None = None) -> ModelReport:
    return ModelReport(
        label=label,
        model="m.onnx",
        runtime="onnxruntime",
        runtime_version="1",
        inputs=[],
        time=median_estimate(samples),
        speed_up=ratio(baseline, samples) if baseline else None,
        creation=median_estimate(samples),
        creation_speed_up=None,
        memory=PeakMemory(peak_bytes=2, bytes_before=1),
        profile=Profile(runs=1, seconds=0, movement_share=0, reorder_share=0, ops=[]),
        samples=samples,
    )


def test_a_clear_effect_raises_no_doubt() -> None:
    first = [[2.0, 2.02]] * 6
    assert list(ratio_caveats([model("A", first), model("B", [[1.0, 1.0]] * 6, first)])) == []


def test_a_spread_that_is_wider_than_the_effect() -> None:
    first = [[0.8, 1.1, 1.1, 1.4]] * 6
    (caveat,) = ratio_caveats([model("A", first), model("B", [[1.0] * 4] * 6, first)])
    assert caveat.startswith("B against A: the spread of the rounds, 0.")


def test_an_interval_that_includes_one() -> None:
    first = [[0.9], [1.0], [1.1], [1.0], [1.0], [1.0]]
    (caveat,) = ratio_caveats([model("A", first), model("B", [[1.0]] * 6, first)])
    assert caveat == "B against A: no difference is shown, the confidence interval includes 1"


def test_a_machine_that_is_not_quiet() -> None:
    slower = model("A", [[1.0]] * 3 + [[1.2]] * 3)
    machine = MachineReport(cpu="", cpus=2, threads=1, pinned_to=None, cpu_share=0.5)
    assert list(machine_caveats(machine, [slower])) == [
        "this system cannot pin the process to one CPU",
        "the machine is busy: the process had its CPU for 50% of the time",
        "the machine is not steady: second half of the rounds against the first, A +20%",
    ]
    crowded = MachineReport(cpu="", cpus=2, threads=4, pinned_to=None, cpu_share=2)
    assert list(machine_caveats(crowded, [model("A", [[1.0]] * 6)])) == ["4 threads share 2 CPUs"]


def test_the_median_lies_in_its_interval() -> None:
    generator = random.Random(1)
    for _ in range(200):
        blocks = [[generator.random() for _ in range(generator.randint(1, 5))] for _ in range(6)]
        found = median_estimate(blocks)
        assert found.low <= found.median <= found.high
        assert found.median == pytest.approx(median(value for block in blocks for value in block))
