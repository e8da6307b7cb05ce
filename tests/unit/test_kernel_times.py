"""Kernels timed alone: their store, keys and overheads, the speed of the machine, and calibration."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from kernel_samples import MACHINE, InventedTimes, calibrated_kernels, families

from layoutopt.calibrate import calibration
from layoutopt.calibrate.fit import (
    KernelSample,
    Measurement,
    fit,
    fitted_tables,
    group_measurements,
    toml_text,
    with_rows,
    with_tables,
)
from layoutopt.calibrate.grid import KernelCase
from layoutopt.cli import main
from layoutopt.cost_models import RooflineModel, load_target
from layoutopt.cost_models.registry import host_target
from layoutopt.ir.types import DType, Op, TensorType, Value
from layoutopt.kernel_times import KernelStore, Machine, RequestedTimes, timed_batches, timer
from layoutopt.kernel_times.kernels import LoweredKernel, RandomConstant
from layoutopt.kernel_times.timer import ReferenceKernel, TinySessions, time_kernels


def test_the_store_keeps_times_per_machine(tmp_path: Path) -> None:
    KernelStore(MACHINE, tmp_path).add({"Conv a": 1e-3})
    KernelStore(MACHINE, tmp_path).add({"Conv b": 2e-3})
    store = KernelStore(MACHINE, tmp_path)
    assert [store.get(key) for key in ("Conv a", "Conv b", "Conv c")] == [(1e-3, 0.0), (2e-3, 0.0), None]
    assert KernelStore(Machine("a processor", "avx2", "32K 1M", "1.32.0", 2), tmp_path).get("Conv a") is None


def test_the_first_time_of_a_kernel_counts(tmp_path: Path) -> None:
    """Also for another process that timed the kernel as well, and for a kernel that does not run alone."""
    first, second = KernelStore(MACHINE, tmp_path), KernelStore(MACHINE, tmp_path)
    first.add({"Conv a": 1e-3, "Loop": None}, cost=0.5)
    second.add({"Conv a": 2e-3, "Loop": 1e-3}, cost=0.25)
    for store in (first, second, KernelStore(MACHINE, tmp_path)):
        assert (store.get("Conv a"), store.get("Loop")) == ((1e-3, 0.5), (None, 0.5))


def test_damaged_lines_of_a_store_are_ignored(tmp_path: Path) -> None:
    KernelStore(MACHINE, tmp_path).add({"Conv a": 1e-3})
    (path,) = tmp_path.iterdir()
    path.write_text(
        path.read_text()
        + '[1]\n{"kernel": 3, "seconds": 1, "cost": 0}\n{"kernel": "b", "seconds": NaN, "cost": 0}\n{"kernel": "c"'
    )
    store = KernelStore(MACHINE, tmp_path)
    assert store.get("Conv a") == (1e-3, 0.0) and store.get("b") is None


def test_a_folder_that_cannot_be_written_keeps_times_in_memory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    store = KernelStore(MACHINE, file / "folder")
    store.add({"Conv a": 1e-3})
    assert store.get("Conv a") == (1e-3, 0.0) and file.read_text() == ""


def test_the_kernels_of_all_families_are_timed_alone() -> None:
    kernels = [case.kernel for case in families()]
    found = time_kernels(kernels)
    assert len(found) == len(kernels) > 30
    assert [key for key, seconds in found.items() if seconds is None or seconds <= 0] == []


def test_times_count_as_if_the_machine_had_one_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    times, requested = InventedTimes(4.0), RequestedTimes(KernelStore(MACHINE), 60.0)
    monkeypatch.setattr(timed_batches, "time_kernels", times)
    kernels = [each.kernel for each in families()[:6]]
    requested.request(kernels[:3])
    times.speed = 0.4
    requested.request(kernels[3:])
    assert [requested.get(each.key) for each in kernels] == pytest.approx([times.seconds(each) for each in kernels])


def test_a_budget_of_any_size_times_a_kernel() -> None:
    """The first batch ends when the processor time is spent; the wall time does not count."""
    kernels = [each.kernel for each in families()[:6]]
    requested = RequestedTimes(KernelStore(MACHINE), 1e-9)
    assert requested.request(kernels)
    assert requested.get(kernels[0].key) is not None and requested.skipped == {each.key for each in kernels[1:]}


class Run:
    """A session whose run takes a given time."""

    def __init__(self, seconds: float, num_inputs: int = 1) -> None:
        self.seconds, self.num_inputs = seconds, num_inputs

    def run(self) -> float:
        return self.seconds


@pytest.mark.parametrize("num_inputs", [1, 2, 4])
def test_the_overhead_of_a_run_is_no_part_of_a_kernel(num_inputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run, node, operand, kernel = 1e-5, 5e-7, 2e-6, 3e-5  # seconds; a network has the overhead of a node, too
    one, chain, two_inputs = Run(run + node), Run(run + 33 * node), Run(run + node + operand, 2)
    sessions = SimpleNamespace(of=lambda number, threads: TinySessions(one, chain, two_inputs))
    monkeypatch.setattr(timer, "TinySessions", sessions)
    session = Run(run + node + operand * (num_inputs - 1) + kernel, num_inputs)
    monkeypatch.setattr(timer, "_session_of", lambda *arguments: session)
    (seconds,) = time_kernels([ReferenceKernel()]).values()
    assert seconds == pytest.approx(node + kernel)


@pytest.mark.parametrize(("rows", "is_timed"), [(1 << 10, True), (1 << 15, False)])
def test_kernels_with_large_constants_have_no_times(rows: int, is_timed: bool) -> None:
    """The session of a filter of more than 128 MiB takes longer than those of all other kernels."""
    columns = 2048
    weights = Value("w", TensorType(DType.FLOAT32, (rows, columns)), data=RandomConstant((rows, columns)))
    x, y = (Value(name, TensorType(DType.FLOAT32, (1, extent))) for name, extent in (("x", rows), ("y", columns)))
    op = Op("MatMul", (x, weights), (y,), version=18)
    assert (LoweredKernel.of(op, {}, {"": 18}) is not None) is is_timed


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


def invented(target: str = "cpu-avx512", factor: float = 2.0) -> tuple[list[Measurement], RooflineModel]:
    """Measurements of a machine that is slower than the target's prediction by given factors."""
    spec = with_rows(load_target(target).spec)
    model = RooflineModel(spec)
    grid = calibrated_kernels(target)[::2]
    return group_measurements(grid, {case.key: factor * case.price(model) for case in grid}, spec), model


@pytest.mark.parametrize("target", ["cpu-avx2", "cpu-avx512"])
def test_a_slower_machine_is_found_to_be_slower(target: str) -> None:
    measured, model = invented(target)
    fitted, others = measured[::2], measured[1::2]
    after = RooflineModel(with_tables(model.spec, fitted_tables(fitted, model.spec, "measured: here")))
    errors = [abs(each.case.price(after) / each.sample.seconds - 1) for each in others]
    assert np.median(errors) < 0.05 and np.quantile(errors, 0.9) < 0.3


def test_the_profile_is_a_target(tmp_path: Path) -> None:
    measured, model = invented()
    base = load_target("cpu-avx512").spec
    tables = fitted_tables(measured, model.spec, "measured: here")
    path = tmp_path / "mine.toml"
    path.write_text(toml_text({"inherits": base.name, "description": 'of "here"', **tables}), encoding="utf-8")
    loaded = load_target(str(path))
    assert loaded.name == "mine" and loaded.spec.description == 'of "here"'
    assert all(number.source for _, number in loaded.spec.numbers())
    written = RooflineModel(with_tables(base, tables))
    assert all(each.case.price(loaded) == pytest.approx(each.case.price(written)) for each in measured)


def test_nothing_measured_changes_no_price() -> None:
    base = with_rows(load_target("cpu-avx512").spec)
    before = RooflineModel(base)
    after = RooflineModel(with_tables(base, fitted_tables([], base, "measured: here")))
    assert all(
        case.price(after) == pytest.approx(case.price(before), rel=0.01) for case in calibrated_kernels("cpu-avx512")
    )


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[KernelCase]:
    """A calibration of a few kernels, once each."""
    chosen = [case for case in calibrated_kernels() if case.op.op_type == "Relu"][:9]
    monkeypatch.setattr(calibration, "kernel_cases", lambda model: chosen)
    return chosen


@needs_blocks
def test_the_command(small: list[KernelCase], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, data = tmp_path / "mine.toml", tmp_path / "out.json"
    assert main(["calibrate", "-o", str(out), "--json", str(data)]) == 0
    output = capsys.readouterr().out
    assert "ops without a row" in output and "--target" in output
    report = json.loads(data.read_text(encoding="utf-8"))
    assert report["groups"][-1]["kernels"] == len(small) == len(report["kernels"])
    assert load_target(str(out)).dialect == "onnxruntime"
