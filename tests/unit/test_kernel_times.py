"""Kernels timed alone: their store, their keys, the overhead of a run, the speed of the machine."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from kernel_samples import MACHINE, InventedTimes, families

from layoutopt.calibrate.grid import kernel_cases
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


def test_equal_kernels_have_equal_keys_and_others_have_other_keys() -> None:
    keys, again = ([case.key for case in kernel_cases(8)] for _ in range(2))
    assert keys == again and len(set(keys)) == len(keys)


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
