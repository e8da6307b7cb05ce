"""Kernels timed alone: all families, their keys, copies of small ones, overheads, the speed of the machine."""

import numpy as np
import onnx
import pytest
from kernel_samples import MACHINE, InventedTimes, families, kernel_of

from layoutopt.calibrate.grid import kernel_cases
from layoutopt.kernel_times import KernelStore, timed_batches
from layoutopt.kernel_times.copies import prefix, replicated
from layoutopt.kernel_times.timed_batches import time_batches
from layoutopt.kernel_times.timed_kernels import QUICK, Overhead, time_kernels
from layoutopt.verification import Runnable


def test_the_kernels_of_all_families_are_timed_alone() -> None:
    kernels = [kernel_of(case) for case in families()]
    assert all(each is not None for each in kernels)
    found = dict(time_kernels([each for each in kernels if each is not None], 1, QUICK))
    assert len(kernels) > 30
    assert [each.key for each, seconds in found.items() if seconds is None or seconds <= 0] == []


def test_equal_kernels_have_equal_keys_and_others_have_other_keys() -> None:
    cases = kernel_cases(8)
    keys = [found.key for case in cases if (found := kernel_of(case)) is not None]
    again = [found.key for case in cases if (found := kernel_of(case)) is not None]
    assert keys == again
    assert len(set(keys)) == len({case.key for case in cases}) == len(cases)


def test_times_count_as_if_the_machine_had_one_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    times, store = InventedTimes(4.0), KernelStore(MACHINE)
    monkeypatch.setattr(timed_batches, "time_kernels", times)
    kernels = [found for each in families()[:6] if (found := kernel_of(each)) is not None]
    time_batches(kernels[:3], store, 0.0)
    times.speed = 0.4
    time_batches(kernels[3:], store, 0.0)
    assert [store.get(each.key) for each in kernels] == pytest.approx([times.seconds(each) for each in kernels])


def test_copies_compute_what_the_model_does() -> None:
    generator = np.random.default_rng(0)
    kernel = next(found for each in families() if each.family == "matrix product" and (found := kernel_of(each)))
    model, feed = kernel.serialized(generator), kernel.feed(generator)
    many = onnx.load_from_string(replicated(model, 3))
    assert len(many.graph.initializer) == len(onnx.load_from_string(model).graph.initializer)
    (expected,) = Runnable.of(model).session().run(None, feed)
    inputs = {f"{prefix(number)}{name}": each * (number + 1) for number in range(3) for name, each in feed.items()}
    found = Runnable.of(many.SerializeToString()).session().run(None, inputs)
    for number, each in enumerate(found):
        np.testing.assert_allclose(each, expected * (number + 1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("copies", [1, 3, 8])
def test_the_overhead_of_runs_and_copies_is_no_part_of_a_kernel(copies: int) -> None:
    run, copy, node, kernel = 1e-5, 1e-6, 5e-7, 3e-5  # seconds; a network has the node's overhead, too
    overhead = Overhead.of(run + copy + node, run + 8 * (copy + node), run + copy + 33 * node)
    assert overhead.without(run + copies * (copy + node + kernel), copies) == pytest.approx(node + kernel)
