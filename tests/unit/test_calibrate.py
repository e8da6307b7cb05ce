"""Calibration: fits that have a known answer, the profile, and the command."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from layoutopt.calibrate import calibration
from layoutopt.calibrate.agreement import median_error, rank_correlation
from layoutopt.calibrate.grid import KernelCase, kernel_cases
from layoutopt.calibrate.roofline_fit import KernelSample, fit
from layoutopt.calibrate.target_file import target_file_text
from layoutopt.calibrate.target_fit import Measurement, fit_target, group_measurements, held_out, with_rows
from layoutopt.cli import main
from layoutopt.cost_models import RooflineModel, load_target
from layoutopt.cost_models.registry import host_target

needs_blocks = pytest.mark.skipif(
    host_target() not in ("cpu-avx2", "cpu-avx512"), reason="the blocks of this processor are not known"
)


def samples(overhead: float, rate: float, bandwidth: float, overlaps: bool, noise: float = 0.0) -> list[KernelSample]:
    """Measurements whose times are those of a roofline, exactly or with noise."""
    generator = np.random.default_rng(0)
    found = []
    for _ in range(30):
        operations, nbytes = 10 ** generator.uniform(4, 9), 10 ** generator.uniform(3, 7)
        parts = operations / rate, nbytes / bandwidth
        seconds = overhead + (max(parts) if overlaps else sum(parts))
        found.append(KernelSample(operations, nbytes, seconds * float(np.exp(noise * generator.standard_normal()))))
    return found


@pytest.mark.parametrize("overlaps", [True, False])
def test_a_fit_finds_the_roofline_that_made_the_times(overlaps: bool) -> None:
    found = fit(samples(1e-6, 2e11, 4e10, overlaps), least_overhead=1e-7)
    assert found.overlaps is overlaps
    assert found.overhead == pytest.approx(1e-6, rel=0.2)
    assert found.rate == pytest.approx(2e11, rel=0.05)
    assert found.bandwidth == pytest.approx(4e10, rel=0.05)


def test_outliers_do_not_matter() -> None:
    clean = samples(1e-6, 2e11, 4e10, True, noise=0.03)
    broken = [
        KernelSample(each.operations, each.nbytes, each.seconds * (20 if number % 6 == 0 else 1))
        for number, each in enumerate(clean)
    ]
    found = fit(broken, least_overhead=1e-7)
    assert np.median([abs(found.seconds(each) / each.seconds - 1) for each in clean]) < 0.1


def test_what_streams_is_bound_by_memory() -> None:
    found = fit([KernelSample(1e6, size, 1e-6 + size / 5e10) for size in (1e4, 1e5, 1e6, 1e7)], is_memory_bound=True)
    assert found.rate == np.inf and found.bandwidth == pytest.approx(5e10, rel=0.1)


def test_rank_correlation() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 20, 30, 1000]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 2, 2, 4], [1, 3, 3, 4]) == pytest.approx(1)  # ties share their rank
    assert rank_correlation([1, 2, 3], [1, 2, 3]) is None
    assert rank_correlation([1, 1, 1, 1], [1, 2, 3, 4]) is None
    assert median_error([1.0, 3.0, 4.0], [1.0, 2.0, 4.0]) == 0
    assert median_error([], []) is None


def invented(target: str = "cpu-avx512", factor: float = 2.0) -> tuple[list[Measurement], RooflineModel]:
    """Measurements of a machine that is slower than the target's prediction by given factors."""
    spec = with_rows(load_target(target).spec)
    model = RooflineModel(spec)
    grid = kernel_cases(8 if target == "cpu-avx2" else 16)[::2]
    return group_measurements(grid, {case.key: factor * case.price(model) for case in grid}, spec), model


@pytest.mark.parametrize("target", ["cpu-avx2", "cpu-avx512"])
def test_a_slower_machine_is_found_to_be_slower(target: str) -> None:
    measured, model = invented(target)
    left_out = held_out(measured)
    assert 0.25 < len(left_out) / len(measured) < 0.35
    spec = fit_target([each for each in measured if each.case.key not in left_out], model.spec, "measured: here")
    after = RooflineModel(spec)
    errors = [abs(each.case.price(after) / each.sample.seconds - 1) for each in measured if each.case.key in left_out]
    assert np.median(errors) < 0.05 and np.quantile(errors, 0.9) < 0.3


def test_the_same_kernels_are_held_out_everywhere() -> None:
    measured, _ = invented()
    assert held_out(measured) == held_out(measured[::-1])
    assert all(count >= 1 for count in Counter(each.group for each in measured).values())


def test_the_profile_is_a_target(tmp_path: Path) -> None:
    measured, model = invented()
    base = load_target("cpu-avx512").spec
    spec = fit_target(measured, model.spec, "measured: here")
    path = tmp_path / "mine.toml"
    path.write_text(target_file_text(spec, base, 'of "here"'), encoding="utf-8")
    loaded = load_target(str(path))
    assert loaded.name == "mine" and loaded.spec.description == 'of "here"'
    assert all(number.source for _, number in loaded.spec.numbers())
    written = RooflineModel(spec)
    assert all(each.case.price(loaded) == pytest.approx(each.case.price(written)) for each in measured)


def test_nothing_measured_changes_no_price() -> None:
    base = with_rows(load_target("cpu-avx512").spec)
    before, after = RooflineModel(base), RooflineModel(fit_target([], base, "measured: here"))
    assert all(case.price(after) == pytest.approx(case.price(before), rel=0.01) for case in kernel_cases(16))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[KernelCase]:
    """A calibration of a few kernels, once each."""
    chosen = [
        case
        for case in kernel_cases(16 if host_target() == "cpu-avx512" else 8)
        if case.family == "element-wise, light"
    ][:9]
    monkeypatch.setattr(calibration, "kernel_cases", lambda block: chosen)
    return chosen


@needs_blocks
def test_the_command(small: list[KernelCase], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, data = tmp_path / "mine.toml", tmp_path / "out.json"
    assert main(["calibrate", "-o", str(out), "--json", str(data)]) == 0
    output = capsys.readouterr().out
    assert "element-wise, light" in output and "--target" in output
    report = json.loads(data.read_text(encoding="utf-8"))
    assert report["total"]["fitted"] + report["total"]["held_out"] == len(small) == len(report["kernels"])
    assert load_target(str(out)).dialect == "onnxruntime"


def test_a_target_file_ends_in_toml(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "-o", str(tmp_path / "mine.txt")]) == 2
    assert ".toml" in capsys.readouterr().err
