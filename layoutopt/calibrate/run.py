"""A calibration as one call: from the grid to the profile and the agreement with kernels that were not fitted to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from time import perf_counter
from typing import TypeAlias

import onnxruntime

from layoutopt.bench.interleaved import pinned
from layoutopt.calibrate.agreement import median_error, rank_correlation
from layoutopt.calibrate.case import Case
from layoutopt.calibrate.fitting import Measured, fit_target, held_out, sort_out
from layoutopt.calibrate.grid import cases
from layoutopt.calibrate.profile import profile_text
from layoutopt.calibrate.report import Agreement, CalibrationReport, KernelTime
from layoutopt.calibrate.rows import with_rows
from layoutopt.calibrate.state import Conditions, State
from layoutopt.calibrate.timing import measure, measure_idle
from layoutopt.cost_models import RooflineModel, TargetSpec, load_target
from layoutopt.cost_models.registry import host_name, host_target
from layoutopt.errors import TargetError
from layoutopt.ir.types import DType
from layoutopt.version import VERSION

Progress: TypeAlias = Callable[[str], None]

_BLOCKED = ("cpu-avx2", "cpu-avx512")  # whose kernels the dialect onnxruntime knows
_ROUNDS = {False: 50, True: 25}  # turns of every kernel in a pass, by whether it is quick
_PASSES = {False: 3, True: 1}  # minutes apart, so that a disturbance does not meet a kernel in all of them


@dataclass(frozen=True, slots=True)
class Calibration:
    """What came out.

    Attributes:
        spec: the calibrated target.
        report: everything else; the text of the profile too.
    """

    spec: TargetSpec
    report: CalibrationReport


def calibrate(
    state: Path, *, quick: bool = False, threads: int = 1, progress: Progress = lambda step: None
) -> Calibration:
    """Time kernels on this machine, as far as that has not been done, and fit the target of this machine to them.

    Args:
        state: where measurements are kept, and taken from if it exists.
        quick: a third of the kernels, in a single pass.
        threads: of onnxruntime; with one, the process stays on one CPU meanwhile.
        progress: called with the name of each step.

    Raises:
        TargetError: the kernels of this machine's processor are not known.
        LayoutoptError: the state file is of another machine, or cannot be used; a kernel cannot be run.
    """
    begin = perf_counter()
    name = host_target()
    if name not in _BLOCKED:
        raise TargetError("has no blocked kernels to calibrate", where=name, hint=f"it works on {', '.join(_BLOCKED)}")
    base = load_target("cpu").spec
    conditions = Conditions(host_name(), str(onnxruntime.__version__), threads, name)
    grid = cases(base.block(DType.FLOAT32), quick)
    with State(state, conditions) as kept:
        known = len([case for case in grid if case.key in kept.seconds])
        with pinned(threads):
            _measure(grid, kept, quick, progress)
        assert kept.idle is not None
        progress("fitting")
        measured = sort_out(grid, kept.seconds, with_rows(base))
    today = date.today().isoformat()
    where = f"{conditions.cpu} with {name.removeprefix('cpu-').upper()}"
    plural = "s" if threads > 1 else ""
    source = f"measured: onnxruntime {conditions.onnxruntime}, {where}, {threads} thread{plural}, {today}, layoutopt calibrate"
    left_out = held_out(measured)
    spec = fit_target(
        [each for each in measured if each.case.key not in left_out], with_rows(base), source, kept.idle.node
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
        measured_before=known,
        families=families,
        total=_agreement("all", times),
        kernels=times,
        profile=profile_text(spec, base, about),
    )
    return Calibration(spec, report)


def _measure(grid: Sequence[Case], kept: State, quick: bool, progress: Progress) -> None:
    """All that is missing, in the order of a hash: neighbours in the grid are alike, and would share caches."""
    if kept.idle is None:
        progress("measuring what a run takes that does nothing")
        kept.begin(measure_idle(kept.threads))
    assert kept.idle is not None
    for number in range(_PASSES[quick]):
        ordered = sorted(grid, key=lambda case: sha256(f"{number} {case.key}".encode()).digest())
        missing = [case for case in ordered if kept.counts.get(case.key, 0) <= number]
        done = len(ordered) - len(missing)
        for case, seconds in measure(missing, kept.idle, kept.threads, _ROUNDS[quick]):
            kept.add(case.key, seconds)
            done += 1
            progress(f"timing kernels, pass {number + 1} of {_PASSES[quick]}: {done} of {len(ordered)}")


def _times(measured: Sequence[Measured], left_out: set[str], spec: TargetSpec, base: TargetSpec) -> list[KernelTime]:
    """Every kernel with its prices, families together."""
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
