"""Kernel times: executed kernels, models of single kernels, the store, estimates and their explanation."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from layoutopt.bench.explanation import explanation
from layoutopt.kernel_times import ExecutedKernel, KernelStore, Machine, RunEstimate, estimate_run, executed_kernels
from layoutopt.kernel_times.run_estimate import TimedKernel
from layoutopt.kernel_times.timed_kernels import time_kernels
from layoutopt.verification import Runnable

MODEL = """<ir_version: 10, opset_import: ["" : 18]>
g (float[1,16,8,8] x, bool flag) => (float[1,8,8,16] y, float[1,16] z, float[1] w)
<float[16,16,1,1] filter, int64[1] rows = {2}, int64[1] columns = {3}>
{
    a = Conv(x, filter)
    y = Transpose<perm=[0,2,3,1]>(a)
    b = ReduceSum<keepdims=0>(a, columns)
    z = ReduceSum<keepdims=0>(b, rows)
    w = If(flag)<then_branch = t () => (float[1] p) { p = Constant<value_floats=[1.0]>() },
                 else_branch = e () => (float[1] q) { q = Constant<value_floats=[2.0]>() }>
}"""
FEED = {"x": np.ones((1, 16, 8, 8), np.float32), "flag": np.array(True)}


def model() -> Runnable:
    found = onnx.parser.parse_model(MODEL)
    weights = np.random.default_rng(0).normal(size=(16, 16, 1, 1)).astype(np.float32)
    found.graph.initializer.append(onnx.numpy_helper.from_array(weights, "filter"))
    return Runnable.of(found.SerializeToString())


def test_executed_kernels_are_those_of_the_optimised_form() -> None:
    kernels = executed_kernels(model(), FEED)
    ops = [each.op for each in kernels]
    assert not {"Transpose", "ReorderOutput"}.isdisjoint(op.rpartition("::")[2] for op in ops)
    assert sum(op.endswith("Conv") for op in ops) == 1
    assert {"ReduceSum", "If"} <= set(ops)
    (conv,) = [each for each in kernels if each.op.endswith("Conv")]
    assert conv.shapes == "float 1x16x8x8, float 16x16x1x1"
    assert [(each.text, each.nbytes) for each in conv.results] == [("float 1x16x8x8", 4096)]
    assert next(each.result for each in kernels if each.op == "If") == "w"
    assert [each.op for each in kernels if each.model is None] == ["If"]
    assert all(each.traced >= 0 for each in kernels)


def test_kernels_with_other_axes_have_other_keys() -> None:
    first, second = (each.model for each in executed_kernels(model(), FEED) if each.op == "ReduceSum")
    assert first is not None and second is not None and first.key != second.key
    again = [each.model for each in executed_kernels(model(), FEED) if each.op == "ReduceSum"]
    assert [each.key for each in again if each is not None] == [first.key, second.key]


def test_every_kernel_is_timed_alone() -> None:
    kernels = [each.model for each in executed_kernels(model(), FEED) if each.model is not None]
    times = {each.key: seconds for each, seconds in time_kernels(kernels)}
    assert len(times) == len(kernels)
    assert all(seconds is not None and seconds > 0 for seconds in times.values())


def test_an_estimate_times_no_kernel_twice(tmp_path: Path) -> None:
    steps: list[str] = []
    first = estimate_run(model(), FEED, KernelStore(Machine.current(), tmp_path), steps.append)
    assert len(steps) == 1 and steps[0].startswith("timing ")
    second = estimate_run(model(), FEED, KernelStore(Machine.current(), tmp_path), steps.append)
    assert len(steps) == 1
    alone = [[each.seconds for each in found.kernels if each.is_alone] for found in (first, second)]
    assert alone[0] == alone[1] and len(alone[0]) == len(first.kernels) - 1
    assert first.seconds == pytest.approx(sum(each.seconds for each in first.kernels))


MACHINE = Machine("a processor", "avx2", "32K 1M", "1.32.0", 1)


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


def test_an_explanation_sums_by_kind_and_sorts_by_difference() -> None:
    rows = [("Conv", "a", 5.0, 4.0), ("Conv", "a", 5.0, 5.0), ("Conv", "b", 1.0, 4.0), ("Relu", "a", 2.0, 2.0)]
    kernels = [
        TimedKernel(ExecutedKernel("", op, shapes, traced, None, "", ()), seconds, is_alone=op == "Conv")
        for op, shapes, seconds, traced in rows
    ]
    found = explanation(RunEstimate(kernels))
    assert (found.estimated, found.traced, found.not_alone) == (13.0, 15.0, 2.0)
    assert [(each.op, each.nodes, each.estimated, each.traced) for each in found.kinds] == [
        ("Conv", 3, 11.0, 13.0),
        ("Relu", 1, 2.0, 2.0),
    ]
    assert [(each.op, each.shapes) for each in found.differences] == [("Conv", "b"), ("Conv", "a"), ("Relu", "a")]
