"""Calibration of this machine's target, from the grid of kernels to the target file and the agreement of held-out kernels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from time import perf_counter, process_time
from typing import TypeAlias

import onnxruntime

from layoutopt.calibrate.agreement import median_error, rank_correlation
from layoutopt.calibrate.calibration_report import Agreement, CalibrationReport, KernelTime
from layoutopt.calibrate.grid import kernel_cases
from layoutopt.calibrate.kernel_case import KernelCase
from layoutopt.calibrate.kernel_rows import with_rows
from layoutopt.calibrate.state_file import Conditions, StateFile
from layoutopt.calibrate.target_file import target_file_text
from layoutopt.calibrate.target_fit import Measurement, fit_target, group_measurements, held_out
from layoutopt.calibrate.timing import measure, measure_overhead
from layoutopt.cost_models import RooflineModel, TargetSpec, load_target
from layoutopt.cost_models.registry import host_target
from layoutopt.errors import TargetError
from layoutopt.ir.types import DType
from layoutopt.runtime.processor import processor_name
from layoutopt.timing.interleaved import pinned
from layoutopt.version import VERSION

Progress: TypeAlias = Callable[[str], None]

_BLOCKED = ("cpu-avx2", "cpu-avx512")  # targets with blocked kernels in the dialect onnxruntime
_ROUNDS = {False: 50, True: 25}  # runs of every kernel in a repetition, by `quick`
_SCATTERED = 1.25  # ratio of the two smallest times of a kernel from which it is timed again
_EXTRA_REPETITIONS = 2  # of kernels whose times scatter
_REPETITIONS = {
    False: 3,
    True: 1,
}  # by `quick`; minutes apart, so that other load does not affect a kernel in all of them


@dataclass(frozen=True, slots=True)
class Calibration:
    """The result of a calibration.

    Attributes:
        spec: the calibrated target.
        report: its report, with the text of the target file.
    """

    spec: TargetSpec
    report: CalibrationReport


def calibrate(
    state: Path, *, quick: bool = False, threads: int = 1, progress: Progress = lambda step: None
) -> Calibration:
    """Time the kernels that have not been timed yet, and fit the target of this machine to all measurements.

    Args:
        state: the state file of the measurements, which is read if it exists.
        quick: whether to time a third of the kernels in a single pass.
        threads: threads of onnxruntime; with one, the process is pinned to one CPU.
        progress: called with the name of each step.

    Raises:
        TargetError: no target has the kernels of this machine's processor.
        LayoutoptError: the state file is that of another machine, or cannot be used; or a kernel cannot be run.
    """
    begin, begin_cpu = perf_counter(), process_time()
    name = host_target()
    if name not in _BLOCKED:
        raise TargetError("has no blocked kernels to calibrate", where=name, hint=f"it works on {', '.join(_BLOCKED)}")
    base = load_target("cpu").spec
    conditions = Conditions(processor_name(), str(onnxruntime.__version__), threads, name)
    grid = kernel_cases(base.block(DType.FLOAT32), quick)
    with StateFile(state, conditions) as kept:
        known = len([case for case in grid if case.key in kept.seconds])
        with pinned(threads):
            _measure(grid, kept, quick, progress)
            cpu_share = (process_time() - begin_cpu) / (perf_counter() - begin)
        assert kept.overhead is not None
        progress("fitting")
        measured = group_measurements(grid, kept.seconds, with_rows(base))
    today = date.today().isoformat()
    where = f"{conditions.cpu} with {name.removeprefix('cpu-').upper()}"
    plural = "s" if threads > 1 else ""
    source = f"measured: onnxruntime {conditions.onnxruntime}, {where}, {threads} thread{plural}, {today}, layoutopt calibrate"
    left_out = held_out(measured)
    spec = fit_target(
        [each for each in measured if each.case.key not in left_out], with_rows(base), source, kept.overhead.node
    )
    times = _times(measured, left_out, spec, base)
    families = [_agreement(family, list(group)) for family, group in groupby(times, key=lambda each: each.family)]
    about = f"{where}, {threads} thread{plural}, calibrated {today}: blocks of {base.block(DType.FLOAT32)} channels"
    report = CalibrationReport(
        layoutopt_version=VERSION,
        cpu=conditions.cpu,
        onnxruntime_version=conditions.onnxruntime,
        threads=threads,
        date=today,
        target=name,
        quick=quick,
        seconds=perf_counter() - begin,
        cpu_share=cpu_share,
        measured_before=known,
        families=families,
        total=_agreement("all", times),
        kernels=times,
        profile=target_file_text(spec, base, about),
    )
    return Calibration(spec, report)


def _measure(grid: Sequence[KernelCase], kept: StateFile, quick: bool, progress: Progress) -> None:
    """Measure the missing kernels in the order of a hash, because neighbours in the grid are similar and would share caches."""
    if kept.overhead is None:
        progress("measuring the overhead of a run")
        kept.begin(measure_overhead(kept.threads))
    assert kept.overhead is not None
    for number in range(_REPETITIONS[quick]):
        ordered = sorted(grid, key=lambda case: sha256(f"{number} {case.key}".encode()).digest())
        missing = [case for case in ordered if kept.counts.get(case.key, 0) <= number]
        done = len(ordered) - len(missing)
        for case, seconds in measure(missing, kept.overhead, kept.threads, _ROUNDS[quick]):
            kept.add(case.key, seconds)
            done += 1
            progress(f"timing kernels, repetition {number + 1} of {_REPETITIONS[quick]}: {done} of {len(ordered)}")
    for _ in range(_EXTRA_REPETITIONS):
        scattered = [case for case in grid if kept.is_scattered(case.key, _SCATTERED)]
        for done, (case, seconds) in enumerate(measure(scattered, kept.overhead, kept.threads, _ROUNDS[quick]), 1):
            kept.add(case.key, seconds)
            progress(f"timing kernels whose times scatter: {done} of {len(scattered)}")


def _times(measured: Sequence[Measurement], left_out: set[str], spec: TargetSpec, base: TargetSpec) -> list[KernelTime]:
    """The measured and predicted times of every kernel, sorted by family."""
    after, before = RooflineModel(spec), RooflineModel(base)
    return [
        KernelTime(
            kernel=each.case.key,
            family=each.case.family,
            held_out=each.case.key in left_out,
            measured=each.sample.seconds,
            predicted=each.case.price(after),
            predicted_before=each.case.price(before),
        )
        for each in sorted(measured, key=lambda each: each.case.family)
    ]


def _agreement(family: str, times: Sequence[KernelTime]) -> Agreement:
    fitted, others = ([each for each in times if each.held_out is held] for held in (False, True))
    truth = [each.measured for each in others]
    after, before = [each.predicted for each in others], [each.predicted_before for each in others]
    return Agreement(
        family=family,
        fitted=len(fitted),
        held_out=len(others),
        fitted_error=median_error([each.predicted for each in fitted], [each.measured for each in fitted]),
        error=median_error(after, truth),
        rank_correlation=rank_correlation(after, truth),
        error_before=median_error(before, truth),
        rank_correlation_before=rank_correlation(before, truth),
    )
