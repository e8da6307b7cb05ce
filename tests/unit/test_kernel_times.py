"""Kernels timed alone: their store, keys and overheads, the speed of the machine, and calibration."""

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest
from kernel_samples import MACHINE, InventedTimes, calibrated_kernels, families

from layoutopt import calibrate
from layoutopt.calibrate import Sample, fit, fitted_tables, grouped, price, toml_text
from layoutopt.cli import main
from layoutopt.cost_models import load_target
from layoutopt.cost_models.registry import host_target
from layoutopt.errors import TargetError
from layoutopt.ir.types import DType, Op, TensorType, Value
from layoutopt.kernel_times import kernels as timer
from layoutopt.kernel_times.kernels import LoweredKernel, random_constant, time_kernels
from layoutopt.kernel_times.store import KernelStore, Machine, RequestedTimes


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
    path.write_text(path.read_text() + '[1]\n{"b": 1}\n[3, 1, 0]\n["b", NaN, 0]\n["b", -1, 0]\n["b", 1, null]\n["c"')
    store = KernelStore(MACHINE, tmp_path)
    assert store.get("Conv a") == (1e-3, 0.0) and store.get("b") is None


def test_a_folder_that_cannot_be_written_keeps_times_in_memory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    store = KernelStore(MACHINE, file / "folder")
    store.add({"Conv a": 1e-3})
    assert store.get("Conv a") == (1e-3, 0.0) and file.read_text() == ""


def test_the_kernels_of_all_families_are_timed_alone() -> None:
    kernels = families()
    found = time_kernels(kernels)
    assert len(found) == len(kernels) + 1 > 30
    assert [key for key, seconds in found.items() if seconds is None or seconds <= 0] == []


def test_times_count_as_if_the_machine_had_one_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    times, requested = InventedTimes(4.0), RequestedTimes(KernelStore(MACHINE), 60.0)
    monkeypatch.setattr("layoutopt.kernel_times.store.time_kernels", times)
    kernels = families()[:6]
    requested.request(kernels[:3])
    times.speed = 0.4
    requested.request(kernels[3:])
    assert [requested.get(each.key) for each in kernels] == pytest.approx([times.seconds(each) for each in kernels])


def test_a_budget_of_any_size_times_a_kernel() -> None:
    """The first batch ends when the processor time is spent; the wall time does not count."""
    kernels = families()[:6]
    requested = RequestedTimes(KernelStore(MACHINE), 1e-9)
    assert requested.request(kernels)
    assert requested.get(kernels[0].key) is not None and requested.skipped == {each.key for each in kernels[1:]}


def test_the_overhead_of_a_run_is_no_part_of_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    run, node, seconds = 1e-5, 5e-7, 3e-5  # a network has the overhead of a node, too
    monkeypatch.setattr(timer, "tiny_runs", lambda *arguments: (lambda: run + node, lambda: run + 33 * node))
    monkeypatch.setattr(timer, "kernel_run", lambda *arguments: lambda: run + node + seconds)
    kernel = families()[0]
    assert time_kernels([kernel])[kernel.key] == pytest.approx(node + seconds)


@pytest.mark.parametrize(("rows", "is_timed"), [(1 << 10, True), (1 << 15, False)])
def test_kernels_with_large_constants_have_no_times(rows: int, is_timed: bool) -> None:
    """The session of a filter of more than 128 MiB takes longer than those of all other kernels."""
    columns = 2048
    weights = Value("w", TensorType(DType.FLOAT32, (rows, columns)), data=random_constant((rows, columns)))
    x, y = (Value(name, TensorType(DType.FLOAT32, (1, extent))) for name, extent in (("x", rows), ("y", columns)))
    op = Op("MatMul", (x, weights), (y,), version=18)
    assert (LoweredKernel.of(op, {}, {"": 18}) is not None) is is_timed


needs_blocks = pytest.mark.skipif(
    host_target() not in ("cpu-avx2", "cpu-avx512"), reason="the blocks of this processor are not known"
)


@pytest.mark.parametrize("has_arithmetic", [True, False])
def test_a_fit_finds_the_numbers_that_made_the_times(has_arithmetic: bool) -> None:
    """Also if every sixth kernel took 20 times as long."""
    generator, truth = np.random.default_rng(0), (1e-6, 5e-12 if has_arithmetic else 0.0, 2.5e-11)
    samples = []
    for number in range(60):
        terms = 1.0, 10 ** generator.uniform(4, 9), 10 ** generator.uniform(3, 7)
        noise = np.exp(0.03 * generator.standard_normal()) * (20 if number % 6 == 0 else 1)
        samples.append(Sample(families()[0], *terms[1:], float(np.dot(truth, terms) * noise)))
    assert fit(samples, has_arithmetic=has_arithmetic) == pytest.approx(truth, rel=0.2)


@pytest.mark.parametrize("target", ["cpu-avx2", "cpu-avx512"])
def test_a_slower_machine_is_found_to_be_slower(target: str, tmp_path: Path) -> None:
    """The target file is fitted to half of the kernels, and predicts the others; each of its numbers has a source."""
    model, kernels = load_target(target), list(calibrated_kernels(target))
    Random(0).shuffle(kernels)
    groups = grouped(kernels, {each.key: 2 * price(each, model) for each in kernels[::2]}.get, model)
    tables = fitted_tables(groups, model.spec, "measured: here")
    path = tmp_path / "mine.toml"
    path.write_text(toml_text({"inherits": target, "description": 'of "here"', **tables}), encoding="utf-8")
    found = load_target(str(path))
    assert found.name == "mine" and found.spec.description == 'of "here"'
    assert all(number.source for _, number in found.spec.numbers())
    errors = [abs(price(each, found) / (2 * price(each, model)) - 1) for each in kernels[1::2]]
    assert np.median(errors) < 0.05 and np.quantile(errors, 0.9) < 0.4


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[LoweredKernel]:
    """A calibration of a few kernels, once each."""
    chosen = [each for each in calibrated_kernels() if each.op.op_type == "Relu"][:9]
    monkeypatch.setattr(calibrate, "probes", lambda model: chosen)
    return chosen


@needs_blocks
def test_the_command(small: list[LoweredKernel], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, data = tmp_path / "mine.toml", tmp_path / "out.json"
    assert main(["calibrate", "-o", str(out), "--json", str(data)]) == 0
    output = capsys.readouterr().out
    assert "Relu" in output and "--target" in output
    report = json.loads(data.read_text(encoding="utf-8"))
    assert [each["kernels"] for each in report["groups"]] == [len(small)] * 2
    assert load_target(str(out)).dialect == "onnxruntime"


@needs_blocks
def test_a_machine_that_times_no_kernel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(RequestedTimes, "request", lambda self, kernels: False)
    assert main(["calibrate", "-o", "mine.toml", "-q"]) == TargetError.exit_code and not Path("mine.toml").exists()
    error = capsys.readouterr().err
    assert "no kernel could be timed" in error and error.count("\n") == 1
