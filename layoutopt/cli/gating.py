"""The work of `ci`: plans models one after the other, and checks each; a model that fails does not stop the others."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter

from layoutopt import inference
from layoutopt.cli.optimization.settings import ModelSettings
from layoutopt.driver.arguments import cost_model_of, runtime_and_dialect
from layoutopt.driver.result import Result
from layoutopt.errors import ArgumentError, ExtensionError, LayoutoptError, TargetError
from layoutopt.files import external_files, path_text
from layoutopt.gates import (
    Baseline,
    BaselineEntry,
    Budgets,
    GateReport,
    ModelResult,
    SpeedUp,
    budget_values,
    check_baseline,
    check_budgets,
    failed_model,
    measured_speed_up,
    model_key,
    numbers_of,
    reason_not_measured,
    remaining_findings,
    status_of,
)
from layoutopt.gates.exporters.location import model_uri
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import NO_SIZES, Sizes
from layoutopt.passes.base import Pass
from layoutopt.report.remaining_moves import RemainingMove, remaining_moves
from layoutopt.report.warnings import repairs_of
from layoutopt.version import VERSION

Progress = Callable[[str], None]


@dataclass(slots=True)
class _OriginalMoves:
    """A pass callback that records the ops that move bytes before the first pass."""

    sizes: Sizes = NO_SIZES
    moves: list[RemainingMove] | None = None

    def set_sizes(self, sizes: Sizes) -> None:
        """Store the sizes that the model is planned for."""
        self.sizes = sizes

    def __call__(self, moment: str, current: Pass, graph: Graph) -> None:
        if self.moves is None:
            self.sizes = inference.evaluate_extents(graph, self.sizes)
            self.moves = remaining_moves(graph, self.sizes)

    def of_result(self, result: Result) -> list[RemainingMove]:
        """The ops of the result that move bytes."""
        if result.report.changed or self.moves is None:
            return remaining_moves(result.graph, self.sizes)
        return self.moves


@dataclass(slots=True)
class Gate:
    """The checks of one run.

    Args:
        settings: the options of every model, all with one target, runtime and dialect.
        root: the root of the repository.
        budgets: the budgets of every model.
        baseline: the baseline to compare with; None for no comparison.
        baseline_path: the baseline file; None without one.
        outputs: the path of each result; empty if none is written.
        force: whether files are replaced that are no results of these models.

    Attributes:
        target: the name of the target.
        runtime: the name of the runtime.
        results: the results so far.
        errors: the errors of the models that failed.
        repairs: the faults that the reader repaired, as (name, repair), by model.

    Raises:
        ArgumentError, TargetError: an argument is wrong, for all models.
    """

    settings: Mapping[Path, ModelSettings]
    root: Path
    budgets: Mapping[Path, Budgets]
    baseline: Baseline | None = None
    baseline_path: Path | None = None
    outputs: Mapping[Path, Path] = field(default_factory=dict)
    force: bool = False
    target: str = field(init=False)
    runtime: str = field(init=False)
    results: list[ModelResult] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    repairs: dict[Path, list[tuple[str, str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        first = next(iter(self.settings.values()))
        model = cost_model_of(first.target)
        spec, _ = runtime_and_dialect(first.runtime, first.dialect, model)
        self.target, self.runtime = model.name, spec.name
        if self.baseline is not None and self.baseline_path is not None:
            self.baseline.check_target(self.target, self.runtime, self.baseline_path)

    def check_all(self, models: Sequence[Path], progress: Progress) -> None:
        """Plan models and check them; a failure is a result, too.

        Raises:
            ArgumentError, ExtensionError, TargetError: an argument is wrong, for all models.
        """
        for number, model in enumerate(models, 1):
            self._check(model, partial(_show_stage, progress, f"{number} of {len(models)}, {path_text(model)}"))

    def _check(self, model: Path, progress: Progress) -> None:
        begin = perf_counter()
        try:
            found = self._checked(model, progress)
        except (ArgumentError, ExtensionError, TargetError):
            raise
        except Exception as error:
            self.errors.append(error)
            _name_model(error, model)
            message = _error_text(error, model)
            found = failed_model(path_text(model), model_uri(model, self.root), self.target, self.runtime, message)
        self.results.append(found.model_copy(update={"seconds": round(perf_counter() - begin, 3)}))

    def report(self, baseline: Baseline | None) -> GateReport:
        """The results of all models so far; `baseline` is the one that was read, if any."""
        return GateReport(
            layoutopt_version=VERSION,
            target=self.target,
            runtime=self.runtime,
            baseline=path_text(self.baseline_path) if self.baseline_path is not None else "",
            baseline_version=baseline.written_by if baseline is not None else "",
            is_updated=self.baseline is None and self.baseline_path is not None,
            models=self.results,
        )

    def updated_baseline(self, old: Baseline | None, models: Sequence[Path]) -> Baseline:
        """The baseline with the numbers of the models that were planned, of which `models` are the files."""
        assert self.baseline_path is not None
        entries = baseline_entries(self.results, models, self.baseline_path)
        return (old or Baseline()).updated(entries, self.baseline_path.parent)

    def _checked(self, model: Path, progress: Progress) -> ModelResult:
        before = _OriginalMoves()
        result = self.settings[model].run(model, watch=before, progress=progress, sizes_found=before.set_sizes)
        self.repairs[model] = repairs_of(result.report.notes)
        return self._result(model, result, before.of_result(result), self._written(model, result))

    def _result(self, model: Path, result: Result, moves: Sequence[RemainingMove], written: str) -> ModelResult:
        report, budgets = result.report, self.budgets[model]
        numbers, sha256 = numbers_of(report, moves), file_hash(model)
        is_measured = self.settings[model].measure
        measured = measured_speed_up(report) if is_measured else None
        sizes = {each.name: (each.low, each.high) for each in report.dims}
        findings = check_budgets(
            numbers, _speed_up(result, numbers.speed_up, measured, is_requested=is_measured), budgets
        )
        entry = None
        if self.baseline is not None and self.baseline_path is not None:
            entry = self.baseline.entry(model_key(model, self.baseline_path), self.target, self.runtime)
            findings += check_baseline(numbers, sha256, sizes, entry)
        return ModelResult(
            model=path_text(model),
            uri=model_uri(model, self.root),
            sha256=sha256,
            status=status_of(findings),
            target=report.target,
            runtime=report.runtime,
            sizes=sizes,
            budgets=budget_values(budgets),
            numbers=numbers,
            measured_speed_up=measured,
            baseline=entry.numbers if entry is not None else None,
            is_compared=self.baseline is not None,
            is_rewritten=report.changed,
            reason=report.reason,
            written=written,
            findings=[*findings, *remaining_findings(moves)],
        )

    def _written(self, model: Path, result: Result) -> str:
        """Write the result, if requested, and return its path."""
        path = self.outputs.get(model)
        if path is None:
            return ""
        path.parent.mkdir(parents=True, exist_ok=True)
        return path_text(result.save(path, force=self.force).model)


def _speed_up(result: Result, estimated: float | None, measured: float | None, *, is_requested: bool) -> SpeedUp:
    """The speed-up that the budget limits: the measured one if it was requested and possible."""
    if measured is not None and result.report.plan is not None:
        found = result.report.measurement if result.report.changed else None
        return SpeedUp(value=measured, high=measured if found is None else found.sizes[0].high)
    if estimated is None:
        return SpeedUp(value=None, reason=result.report.reason or "the plan has no estimated time")
    reason = reason_not_measured(result.report.measurement) if is_requested else ""
    return SpeedUp(value=estimated, reason=reason)


def _show_stage(progress: Progress, model: str, stage: str) -> None:
    progress(f"{model}: {stage}")


def baseline_entries(results: Sequence[ModelResult], models: Sequence[Path], path: Path) -> list[BaselineEntry]:
    """The entries for a baseline file, one per model that was planned."""
    return [
        BaselineEntry(
            model=model_key(model, path),
            target=each.target,
            runtime=each.runtime,
            sha256=each.sha256,
            sizes=each.sizes,
            numbers=each.numbers,
        )
        for model, each in zip(models, results, strict=True)
        if each.numbers is not None
    ]


def file_hash(model: Path) -> str:
    """The SHA-256 of a model file, followed by its external data, as hex digits."""
    found = hashlib.sha256()
    for path in [model, *{os.path.realpath(each): each for each in external_files(model)}.values()]:
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: found)
    return found.hexdigest()


def _name_model(error: Exception, model: Path) -> None:
    """Add the path of the model to an error that does not name it."""
    name = LayoutoptError(path_text(model)).what
    if not isinstance(error, LayoutoptError):
        error.add_note(name)
    elif not error.where.startswith(name):
        error.where = f"{name}: {error.where}" if error.where else name


def _error_text(error: Exception, model: Path) -> str:
    """One line about an error, without the path of the model."""
    if isinstance(error, LayoutoptError):
        return str(error).removeprefix(f"{LayoutoptError(path_text(model)).what}: ")
    if isinstance(error, MemoryError):
        return "not enough memory"
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return f"internal error: {type(error).__name__}: {error}"
