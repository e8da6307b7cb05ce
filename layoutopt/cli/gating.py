"""`ci`: plans models, checks each against budgets and a baseline, and writes the reports; a failure stops no other model."""

import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from secrets import token_hex
from typing import Any

from layoutopt.batch.cache import model_digest
from layoutopt.batch.task import Outcome
from layoutopt.cli.batches import run_batch
from layoutopt.cli.entry import described
from layoutopt.cli.exit_codes import OverBudgetError, RegressionError, UsageError
from layoutopt.cli.model_files import find_models
from layoutopt.cli.options import Given, Settings
from layoutopt.cli.output_files import STDIO, OutputFiles
from layoutopt.cli.rendering.results import gates_document
from layoutopt.cli.rendering.terminal import documents_text, json_text, show_text
from layoutopt.files import FileKind, output_errors, path_text
from layoutopt.gates.baseline import Baseline, BaselineEntry, model_key, read_baseline
from layoutopt.gates.budgets import Budgets
from layoutopt.gates.checks import check_baseline, check_budgets
from layoutopt.gates.github import annotations
from layoutopt.gates.junit import junit
from layoutopt.gates.report import PLAN, Finding, GateReport, ModelResult, Numbers, status_of
from layoutopt.version import VERSION


def ci(given: Given, models: Sequence[Path]) -> int:
    """Check models against budgets and a baseline.

    Args:
        given: the options.
        models: files, folders and patterns.

    Returns:
        The exit code of the first model that failed; the others are checked.

    Raises:
        OverBudgetError, RegressionError: a check has failed.
        LayoutoptError: an option is wrong.
    """
    path, is_updated = given.baseline, given.update_baseline
    if is_updated and path is None:
        raise UsageError("there is no baseline file", where="--update-baseline", hint="add --baseline FILE.json")
    if given.github and given.json == STDIO:
        raise UsageError("the annotations are on stdout", where="--json -", hint="write the JSON to a file")
    files = list(find_models(models, None))
    unmeasured = {"verify": False, "measure": False, "calibrate": False}
    settings = {file: given.settings(file).updated(**unmeasured) for file in files}
    _require_one_target(settings)
    budgets = [given.budgets(file) for file in files]
    read = [*files, *([path] if path is not None and not is_updated else [])]
    reads = [each for one in settings.values() for each in one.reads]
    record = OutputFiles("ci", given, *models, results=read, reads=[*read, *reads])
    record.add("--junit", given.junit, FileKind.JUNIT, lambda: junit(report))
    if is_updated:
        record.add("--update-baseline", path, FileKind.BASELINE, lambda: _updated(old, path, files, checked))

    cost_model, runtime = settings[files[0]].hardware()
    is_new = path is None or (is_updated and not (path.is_file() and path.stat().st_size))
    old = Baseline() if path is None or is_new else read_baseline(path)
    compared = None if is_updated else path
    if compared is not None:
        old.check_target(cost_model.name, runtime.name, compared)
    outcomes, code = run_batch([each.task(file, None) for file, each in settings.items()], given)
    checked = [
        _checked(each, cost_model.name, runtime.name, limits, old, compared)
        for each, limits in zip(outcomes, budgets, strict=True)
    ]
    report = GateReport(
        layoutopt_version=VERSION,
        target=cost_model.name,
        runtime=runtime.name,
        baseline=path_text(path) if path is not None else "",
        baseline_version=old.written_by if path is not None else "",
        is_updated=is_updated,
        models=checked,
    )

    token = token_hex(16)  # a text that nobody can guess: a file name may look like a command
    if given.github:
        show_text(f"::stop-commands::{token}\n")
    record.show(report, gates_document(report))
    if given.github:
        root = Path(os.environ.get("GITHUB_WORKSPACE") or ".")
        show_text("".join(f"{line}\n" for line in (f"::{token}::", *annotations(report, root))))
    if given.github and (step_summary := os.environ.get("GITHUB_STEP_SUMMARY")):
        with output_errors(Path(step_summary)), open(step_summary, "a", encoding="utf-8") as text:
            text.write(f"<pre>{escape(documents_text(gates_document(report)))}</pre>\n")
    if not code:
        _raise_for_status(report)
    return code


def _updated(old: Baseline, path: Path, files: Sequence[Path], checked: Sequence[ModelResult]) -> str:
    """The baseline with the numbers of this run."""
    entries = [
        BaselineEntry.model_validate(each.model_dump() | {"model": model_key(file, path)})
        for file, each in zip(files, checked, strict=True)
        if each.numbers is not None
    ]
    return json_text(old.updated(entries, path.parent))


def _checked(
    outcome: Outcome, target: str, runtime: str, budgets: Budgets, baseline: Baseline, compared: Path | None
) -> ModelResult:
    """The result of a model, which is compared with the baseline if that is read from the file `compared`."""
    fields: dict[str, Any] = {}
    if outcome.report is None:
        _, kind, line = described(outcome.error or RuntimeError("failed"))
        line = line.removeprefix(f"{path_text(outcome.model)}: ")
        findings = [Finding(check=PLAN, level="error", message=line if kind == "error" else f"{kind}: {line}")]
    else:
        numbers, sha256 = Numbers.of(outcome.report), model_digest(outcome.model)
        sizes = {each.name: (each.low, each.high) for each in outcome.report.dims}
        fields = {"sha256": sha256, "sizes": sizes, "numbers": numbers}
        findings = [*check_budgets(numbers, budgets)]
        if compared is not None:
            entry = baseline.entry(model_key(outcome.model, compared), target, runtime)
            findings += check_baseline(numbers, sha256, sizes, entry)
            fields["baseline"] = entry.numbers if entry is not None else None
    return ModelResult(
        model=path_text(outcome.model),
        status=status_of(findings),
        target=target,
        runtime=runtime,
        budgets=budgets.limits,
        is_compared=compared is not None,
        seconds=round(outcome.seconds, 3),
        findings=findings,
        **fields,
    )


def _require_one_target(settings: Mapping[Path, Settings]) -> None:
    """Refuse models for which the configuration sets different targets, since a baseline is for one.

    Raises:
        UsageError: two models have different targets, runtimes or dialects.
    """
    chosen = {(each.target, each.runtime, each.dialect): path for path, each in settings.items()}
    if len(chosen) > 1:
        one, other, *_ = chosen.values()
        what = f"is configured for another target, runtime or dialect than {one}"
        raise UsageError(what, where=str(other), hint="check the models of each target in a call of their own")


def _raise_for_status(report: GateReport) -> None:
    """Raise an error if a check has failed.

    Raises:
        OverBudgetError: a model is over a budget.
        RegressionError: a model is worse than its baseline.
    """
    failed = [(each.model, message) for each in report.models for message in each.messages("error")]
    if not failed:
        return
    (model, what), *others = failed
    what += f"; further failures: {len(others)}" if others else ""
    if any(each.status == "over budget" for each in report.models):
        raise OverBudgetError(what, where=model, hint="change the model, or the budget")
    raise RegressionError(what, where=model, hint="change the model, or accept it with --update-baseline")
