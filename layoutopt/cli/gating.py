"""`ci`: plans models, checks each against budgets and a baseline, and writes the reports; a failure stops no other model."""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from secrets import token_hex
from time import perf_counter

from layoutopt import inference
from layoutopt.batch import Failure
from layoutopt.batch.run import default_jobs, map_tasks
from layoutopt.batch.task import picklable
from layoutopt.cli.exit_codes import OverBudgetError, RegressionError, UsageError
from layoutopt.cli.model_files import find_models, is_file_name
from layoutopt.cli.options import Given, Settings
from layoutopt.cli.output_files import STDIO, TextFiles, reporting_written_files
from layoutopt.cli.rendering.ci import HEADER, cells, gates_text
from layoutopt.cli.rendering.json_text import json_text
from layoutopt.cli.rendering.progress import ProgressLine
from layoutopt.cli.rendering.terminal import show_text
from layoutopt.cli.rendering.warnings import warn_of_repairs
from layoutopt.driver.arguments import cost_model_of, runtime_and_dialect
from layoutopt.driver.result import Result
from layoutopt.errors import ArgumentError, ExtensionError, LayoutoptError, TargetError
from layoutopt.files import FileKind, Overwrite, external_files, output_errors, path_text
from layoutopt.gates import (
    Baseline,
    BaselineEntry,
    Budgets,
    GateReport,
    ModelResult,
    SpeedUp,
    budget_values,
    budgets_of,
    check_baseline,
    check_budgets,
    failed_model,
    measured_speed_up,
    model_key,
    numbers_of,
    read_baseline,
    read_old_baseline,
    reason_not_measured,
    remaining_findings,
    status_of,
)
from layoutopt.gates.exporters.github import annotations, summary, without_commands
from layoutopt.gates.exporters.location import model_uri
from layoutopt.gates.exporters.sarif import sarif
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import NO_SIZES, Sizes
from layoutopt.passes.base import Pass
from layoutopt.report.builder import remaining_moves
from layoutopt.report.facts import repairs_of
from layoutopt.report.schema import RemainingMove
from layoutopt.version import VERSION

_JUNIT = "layoutopt.gates.exporters.junit"  # its library is optional


def run_ci(
    arguments: Sequence[Path],
    given: Given,
    limits: Mapping[str, float | str | None],
    *,
    measured: bool,
    is_updated: bool,
    github: bool,
) -> None:
    """Check the models that the arguments name.

    Args:
        arguments: files, folders and patterns.
        given: the options.
        limits: the budgets of the command line; None for none.
        measured: whether models are run.
        is_updated: whether the baseline is written instead of compared with.
        github: whether annotations and the step summary of GitHub are written.

    Raises:
        OverBudgetError, RegressionError: a check has failed.
        LayoutoptError: an option is wrong, or a model failed; the others are checked.
    """
    models = [each.path for each in find_models(arguments, given.write)]
    requested = {key: value for key, value in limits.items() if value is not None}
    budgets = {model: budgets_of(model, requested, given.configuration.budgets_for(model)) for model in models}
    settings = {
        model: given.settings(model).updated(
            verify=measured or given.write is not None, measure=measured, calibrate=False
        )
        for model in models
    }
    _require_one_target(settings)
    reads = [each for one in settings.values() for each in one.reads]
    results = result_paths(models, arguments, given.write, reads, force=given.force) if given.write is not None else {}
    read = [given.baseline] if given.baseline is not None and not is_updated else []
    taken = [*(("a model", each) for each in models), *(("the baseline", each) for each in read)]
    overwrite = Overwrite(tuple(arguments), None, given.force, (*models, *read, *reads), "ci")
    texts = TextFiles(overwrite, [*taken, *(("a result of --write", each) for each in results.values())])
    texts.add("--json", None if given.json == STDIO else given.json, FileKind.REPORT)
    texts.add("--junit", given.junit, FileKind.JUNIT)
    texts.add("--sarif", given.sarif, FileKind.SARIF)
    texts.add("--update-baseline", given.baseline if is_updated else None, FileKind.BASELINE)
    texts.check()
    if given.junit is not None:
        import_module(_JUNIT)
    step_summary = os.environ.get("GITHUB_STEP_SUMMARY") if github else None

    first = settings[models[0]]
    cost_model = cost_model_of(first.target)
    runtime, _ = runtime_and_dialect(first.runtime, first.dialect, cost_model)
    path, old = given.baseline, None
    if path is not None:
        old = (read_old_baseline if is_updated else read_baseline)(path)
        if old is not None and not is_updated:
            old.check_target(cost_model.name, runtime.name, path)
    compared = None if is_updated else old
    root = Path((os.environ.get("GITHUB_WORKSPACE") if github else None) or ".")
    tasks = [
        GateTask(
            model,
            settings[model],
            budgets[model],
            root,
            cost_model.name,
            runtime.name,
            compared.entry(model_key(model, path), cost_model.name, runtime.name) if compared and path else None,
            compared is not None,
            results.get(model),
        )
        for model in models
    ]
    checked = check_all(tasks, given.settings().jobs, is_quiet=given.quiet)
    for task, each in zip(tasks, checked, strict=True):
        warn_of_repairs(each.repairs, str(task.model))
    report = GateReport(
        layoutopt_version=VERSION,
        target=cost_model.name,
        runtime=runtime.name,
        baseline=path_text(path) if path is not None else "",
        baseline_version=old.written_by if old is not None else "",
        is_updated=is_updated,
        models=[each.result for each in checked],
    )
    with texts.staged(lambda option: _text(option, report, old, models, path)):
        pass
    with reporting_written_files(texts.files):
        _print(report, given, github=github)
    if step_summary:
        content = summary(report, HEADER, [cells(each) for each in report.models])
        with output_errors(Path(step_summary)), open(step_summary, "a", encoding="utf-8") as file:
            file.write(content)
    for each in checked:
        if each.error is not None:
            raise each.error
    _raise_for_status(report)


def _text(option: str, report: GateReport, old: Baseline | None, models: Sequence[Path], path: Path | None) -> str:
    """The content of the file of an option."""
    if option == "--junit":
        text: str = import_module(_JUNIT).junit(report)
        return text
    if option == "--sarif":
        return json_text(sarif(report))
    if option == "--json" or path is None:
        return json_text(report)
    return json_text((old or Baseline()).updated(baseline_entries(report.models, models, path), path.parent))


def _print(report: GateReport, given: Given, *, github: bool) -> None:
    """Print the results: JSON, annotations for GitHub behind a table, or the table."""
    if given.json == STDIO:
        show_text(json_text(report))
    elif github:
        table = "" if given.quiet else without_commands(gates_text(report), token_hex(16))
        show_text("".join([table, *(f"{line}\n" for line in annotations(report))]))
    elif not given.quiet:
        show_text(gates_text(report))


def _require_one_target(settings: Mapping[Path, Settings]) -> None:
    """Refuse models for which the configuration sets different targets, since a baseline is for one.

    Raises:
        UsageError: two models have different targets, runtimes or dialects.
    """
    chosen = {(each.target, each.runtime, each.dialect): path for path, each in settings.items()}
    if len(chosen) > 1:
        ((first, *_), one), ((second, *_), other) = list(chosen.items())[:2]
        what = f"is configured for another target, runtime or dialect than {one}"
        hint = f"check the models for {first} and those for {second} in calls of their own"
        raise UsageError(what, where=str(other), hint=hint)


def _raise_for_status(report: "GateReport") -> None:
    """Raise an error if a check has failed.

    Raises:
        OverBudgetError: a model is over a budget.
        RegressionError: a model is worse than its baseline.
    """
    failed = [(each.model, found.message) for each in report.models for found in each.errors]
    if not failed:
        return
    model, message = failed[0]
    more = len(failed) - 1
    what = f"{message}; {more} more {'check' if more == 1 else 'checks'} failed" if more else message
    if report.count("over budget"):
        raise OverBudgetError(what, where=model, hint="change the model, or the budget")
    raise RegressionError(what, where=model, hint="change the model, or accept it with --update-baseline")


# --- one model ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GateTask:
    """A model that is to be checked.

    Attributes:
        model: the file.
        settings: its options.
        budgets: its budgets.
        root: the root of the repository.
        target: the name of the target.
        runtime: the name of the runtime.
        entry: its entry in the baseline; None without one.
        is_compared: whether there is a baseline to compare with.
        output: the file of the result; None if it is not written.
    """

    model: Path
    settings: Settings
    budgets: Budgets
    root: Path
    target: str
    runtime: str
    entry: BaselineEntry | None = None
    is_compared: bool = False
    output: Path | None = None


@dataclass(frozen=True)
class Checked:
    """The outcome of a task.

    Attributes:
        result: the result, also of a model that failed.
        repairs: the faults that the reader repaired, as (name, repair).
        error: the error of a model that failed.
    """

    result: ModelResult
    repairs: Sequence[tuple[str, str]] = ()
    error: Exception | None = None


def check_all(tasks: Sequence[GateTask], jobs: int | None, *, is_quiet: bool = True) -> list[Checked]:
    """The outcomes of all tasks, in their order, in worker processes unless `jobs` is 0.

    Raises:
        ArgumentError, ExtensionError, TargetError: an argument is wrong, for all models.
    """
    if jobs is None:
        jobs = default_jobs([each.model for each in tasks], is_timed=tasks[0].settings.measure)
    found: dict[int, Checked] = {}
    with ProgressLine(is_silent=is_quiet) as progress:

        def show_stage(index: int, stage: str) -> None:
            progress(f"{index + 1} of {len(tasks)}, {path_text(tasks[index].model)}: {stage}")

        with closing(map_tasks(check_model, tasks, jobs, progress=show_stage)) as outcomes:
            for index, outcome in outcomes:
                task = tasks[index]
                if isinstance(outcome, Failure):
                    outcome = _failed(task, LayoutoptError(outcome.reason, where=path_text(task.model)))
                if isinstance(outcome.error, ArgumentError | ExtensionError | TargetError):
                    raise outcome.error
                found[index] = outcome
                progress(f"{len(found)} of {len(tasks)} models are checked")
    return [found[index] for index in range(len(tasks))]


def check_model(task: GateTask, progress: Callable[[str], None] | None = None) -> Checked:
    """The outcome of a task; an error is one, too."""
    begin = perf_counter()
    try:
        before = _OriginalMoves()
        result = task.settings.run(task.model, watch=before, progress=progress, sizes_found=before.set_sizes)
        written = ""
        if task.output is not None:
            task.output.parent.mkdir(parents=True, exist_ok=True)
            written = path_text(result.save(task.output, force=task.settings.force).model)
        found = Checked(_result(task, result, before.of_result(result), written), repairs_of(result.report.notes))
    except Exception as error:
        found = _failed(task, error)
    seconds = round(perf_counter() - begin, 3)
    return Checked(found.result.model_copy(update={"seconds": seconds}), found.repairs, found.error)


def _failed(task: GateTask, error: Exception) -> Checked:
    name = path_text(task.model)
    if not isinstance(error, LayoutoptError):
        error.add_note(LayoutoptError(name).what)
    elif not isinstance(error, ArgumentError | ExtensionError | TargetError) and not error.where.startswith(name):
        error.where = f"{name}: {error.where}" if error.where else name
    message = _error_text(error, name)
    uri = model_uri(task.model, task.root)
    return Checked(failed_model(name, uri, task.target, task.runtime, message), error=picklable(error))


def _error_text(error: Exception, name: str) -> str:
    """One line about an error, without the path of the model."""
    if isinstance(error, LayoutoptError):
        return str(error).removeprefix(f"{LayoutoptError(name).what}: ")
    if isinstance(error, MemoryError):
        return "not enough memory"
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return f"internal error: {type(error).__name__}: {error}"


def _result(task: GateTask, result: Result, moves: Sequence[RemainingMove], written: str) -> ModelResult:
    report, budgets, entry = result.report, task.budgets, task.entry
    numbers, sha256 = numbers_of(report), file_hash(task.model)
    is_measured = task.settings.measure
    measured = measured_speed_up(report) if is_measured else None
    sizes = {each.name: (each.low, each.high) for each in report.dims}
    findings = check_budgets(numbers, _speed_up(result, numbers.speed_up, measured, is_requested=is_measured), budgets)
    if task.is_compared:
        findings += check_baseline(numbers, sha256, sizes, entry)
    return ModelResult(
        model=path_text(task.model),
        uri=model_uri(task.model, task.root),
        sha256=sha256,
        status=status_of(findings),
        target=report.target,
        runtime=report.runtime,
        sizes=sizes,
        budgets=budget_values(budgets),
        numbers=numbers,
        measured_speed_up=measured,
        baseline=entry.numbers if entry is not None else None,
        is_compared=task.is_compared,
        is_rewritten=report.changed,
        reason=report.reason,
        written=written,
        findings=[*findings, *remaining_findings(moves)],
    )


def _speed_up(result: Result, estimated: float | None, measured: float | None, *, is_requested: bool) -> SpeedUp:
    """The speed-up that the budget limits: the measured one if it was requested and possible."""
    if measured is not None and result.report.plan is not None:
        found = result.report.measurement if result.report.changed else None
        return SpeedUp(value=measured, high=measured if found is None else found.sizes[0].high)
    if estimated is None:
        return SpeedUp(value=None, reason=result.report.reason or "the plan has no estimated time")
    reason = reason_not_measured(result.report.measurement) if is_requested else ""
    return SpeedUp(value=estimated, reason=reason)


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


def result_paths(
    models: Sequence[Path], arguments: Sequence[Path], folder: Path, reads: Sequence[Path], *, force: bool
) -> dict[Path, Path]:
    """The path of each result in a folder: the path of its model from the deepest folder that contains all models.

    Args:
        models: the models.
        arguments: the files, folders and patterns that name them.
        folder: the folder of the results.
        reads: other files that the command reads.
        force: whether files are replaced that are no results of these models.

    Raises:
        UsageError: the folder is a file, contains one of the models, or is in a folder whose models are read.
        OutputError: a file must not be replaced.
    """
    where = f"--write {path_text(folder)}"
    if is_file_name(folder):
        raise UsageError("is not a folder", where=where, hint="name a folder")
    inside = next((each for each in models if _is_inside(each, folder)), None)
    if inside is not None:
        what = f"contains {path_text(inside)}, which is one of the models"
        raise UsageError(what, where=where, hint="name a folder outside")
    outer = next((each for each in arguments if each.is_dir() and _is_inside(folder, each)), None)
    if outer is not None:
        raise UsageError(f"is in {path_text(outer)}, whose models are read", where=where, hint="name a folder outside")
    paths = dict(_result_paths(models, folder))
    for model, path in paths.items():
        if path.parent.exists():
            Overwrite((model,), None, force, tuple(reads)).check(path, FileKind.MODEL)
    return paths


def _is_inside(model: Path, folder: Path) -> bool:
    return Path(os.path.realpath(model)).is_relative_to(os.path.realpath(folder))


def _result_paths(models: Sequence[Path], folder: Path) -> Iterator[tuple[Path, Path]]:
    root = os.path.commonpath([os.path.dirname(os.path.abspath(each)) for each in models])
    for each in models:
        yield each, folder / os.path.relpath(os.path.abspath(each), root)
