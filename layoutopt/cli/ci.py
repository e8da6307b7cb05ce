"""`layoutopt ci`."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Context, Option

from layoutopt.cli.exit_codes import OverBudgetError, RegressionError, UsageError
from layoutopt.cli.optimization.settings import ModelSettings
from layoutopt.cli.options.config_file import NAMES_OUTPUT, ConfigFile, NoConfig, configured, requested_config
from layoutopt.cli.options.custom_ops import CustomOps
from layoutopt.cli.options.force import Force
from layoutopt.cli.options.json_file import JsonFile
from layoutopt.cli.options.plan import Dialect, Dims, Runtime
from layoutopt.cli.options.quiet import Quiet
from layoutopt.cli.options.strict import Strict
from layoutopt.cli.options.target_names import complete_target

if TYPE_CHECKING:  # --help imports this module, and no large library
    from layoutopt.cli.files.gate_outputs import GateOutputs
    from layoutopt.gates import GateReport

_TARGET = "The hardware; by default this machine's, which may vary in CI."
_MODELS = "ONNX files, folders with .onnx files, and patterns such as 'models/**/*.onnx'."
_BYTES = "The most bytes that Transposes and layout conversions may move in one run, as in 512kB or 12MB."
_GROWTH = "The largest size of all constants, relative to MODEL, beyond a growth of 1 MiB."
_BASELINE = "Compare with the numbers in this file."


def ci(
    context: Context,
    models: Annotated[list[Path], Argument(metavar="MODEL", help=_MODELS)],
    target: Annotated[
        str,
        Option("--target", "-t", metavar="T", help=_TARGET, autocompletion=complete_target),
    ] = "cpu",
    runtime: Runtime = None,
    dialect: Dialect = None,
    dim: Dims = None,
    max_transposes: Annotated[
        int | None, Option("--max-transposes", metavar="N", min=0, help="The most Transposes that may move bytes.")
    ] = None,
    max_casts: Annotated[
        int | None, Option("--max-casts", metavar="N", min=0, help="The most layout conversions that may move bytes.")
    ] = None,
    max_bytes_moved: Annotated[str | None, Option("--max-bytes-moved", metavar="BYTES", help=_BYTES)] = None,
    min_speedup: Annotated[
        float | None, Option("--min-speedup", metavar="X", help="The least speed-up over MODEL, by the estimate.")
    ] = None,
    max_size_growth: Annotated[float | None, Option("--max-size-growth", metavar="X", help=_GROWTH)] = None,
    measured: Annotated[
        bool, Option("--measured", help="Run the models, and compare the measured speed-up with --min-speedup.")
    ] = False,
    threads: Annotated[int, Option("--threads", metavar="N", min=1, help="Threads of the sessions of --measured.")] = 1,
    baseline: Annotated[Path | None, Option("--baseline", metavar="FILE.json", help=_BASELINE), NAMES_OUTPUT] = None,
    update_baseline: Annotated[
        bool, Option("--update-baseline", help="Write the numbers to the baseline file instead of comparing.")
    ] = False,
    write: Annotated[
        Path | None,
        Option("--write", metavar="FOLDER", help="Write the optimised models, verified, to this folder."),
        NAMES_OUTPUT,
    ] = None,
    junit: Annotated[
        Path | None, Option("--junit", metavar="FILE.xml", help="Write a JUnit report."), NAMES_OUTPUT
    ] = None,
    sarif: Annotated[
        Path | None, Option("--sarif", metavar="FILE.sarif", help="Write a SARIF 2.1.0 report."), NAMES_OUTPUT
    ] = None,
    json: JsonFile = None,
    github: Annotated[
        bool, Option("--github", help="Print annotations for GitHub, and append to the step summary.")
    ] = False,
    time_limit: Annotated[
        float | None, Option("--time-limit", metavar="S", help="Seconds for planning one model.")
    ] = None,
    strict: Strict = False,
    custom_ops: CustomOps = None,
    force: Force = False,
    config: ConfigFile = None,
    no_config: NoConfig = False,
    quiet: Quiet = False,
) -> None:
    """Check models against budgets and a baseline.

    Every model is planned for the target, without timing kernels, so that the numbers are the same on every
    machine. The exit code is 13 if a model is over a budget, 14 if one is worse than the baseline, and that of
    the error if a model could not be planned; the other models are checked all the same. No model is written
    without --write.
    """
    if update_baseline and baseline is None:
        raise UsageError("there is no baseline file", where="--update-baseline", hint="add --baseline FILE.json")
    if github and json == Path("-"):
        raise UsageError("the annotations are on stdout", where="--json -", hint="write the JSON to a file")
    limits = {
        "max-transposes": max_transposes,
        "max-casts": max_casts,
        "max-bytes-moved": max_bytes_moved,
        "min-speedup": min_speedup,
        "max-size-growth": max_size_growth,
    }
    given = ModelSettings(
        target,
        runtime,
        dialect,
        dim=dim or (),
        threads=threads,
        time_limit=time_limit,
        strict=strict,
        custom_ops=custom_ops or (),
    )
    given.check()

    from layoutopt.cli.files.gate_outputs import GateOutputs, result_paths
    from layoutopt.cli.files.read_files import read_files
    from layoutopt.cli.gating import Gate
    from layoutopt.cli.optimization.model_files import find_models
    from layoutopt.cli.rendering.progress import ProgressLine
    from layoutopt.cli.rendering.warnings import warn_of_repairs
    from layoutopt.gates import budgets_of, read_baseline, read_old_baseline

    paths = [each.path for each in find_models(models, write)]
    requested = {key: value for key, value in limits.items() if value is not None}
    found = requested_config(config, no_config)
    budgets = {path: budgets_of(path, requested, found.budgets_for(path) if found else {}) for path in paths}
    settings = {
        path: replace(
            given.updated(configured(context, found, path, given.values())),
            verify=measured or write is not None,
            measure=measured,
            calibrate=False,
        )
        for path in paths
    }
    _require_one_target(settings)
    reads = [each for values in settings.values() for each in read_files(values.values(), found)]
    results = result_paths(paths, models, write, reads, force=force) if write is not None else {}
    summary = os.environ.get("GITHUB_STEP_SUMMARY") if github else None
    outputs = GateOutputs(
        paths,
        models,
        {"--json": json, "--junit": junit, "--sarif": sarif},
        baseline,
        results=results.values(),
        is_updated=update_baseline,
        summary=Path(summary) if summary else None,
        reads=reads,
        force=force,
    )
    old = (read_old_baseline if update_baseline else read_baseline)(baseline) if baseline is not None else None
    gate = Gate(
        settings,
        Path((os.environ.get("GITHUB_WORKSPACE") if github else None) or "."),
        budgets,
        None if update_baseline else old,
        baseline,
        results,
        force,
    )
    with ProgressLine(is_silent=quiet) as progress:
        gate.check_all(paths, progress)
    for path, repairs in gate.repairs.items():
        warn_of_repairs(repairs, str(path))
    report = gate.report(old)
    outputs.write_reports(report, gate.updated_baseline(old, paths) if update_baseline else None)
    _print_report(report, outputs, github=github, is_quiet=quiet)
    if gate.errors:
        raise gate.errors[0]
    _raise_for_status(report)


def _require_one_target(settings: Mapping[Path, ModelSettings]) -> None:
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


def _print_report(report: "GateReport", outputs: "GateOutputs", *, github: bool, is_quiet: bool) -> None:
    """Print the results on stdout, and the annotations and the step summary of GitHub if requested.

    With `is_quiet`, only the annotations and the summary.
    """
    from secrets import token_hex

    from layoutopt.cli.files.reporting_written_files import reporting_written_files
    from layoutopt.cli.rendering.ci import HEADER, cells, gates_text
    from layoutopt.cli.rendering.terminal import show_text
    from layoutopt.gates.exporters.github import annotations, summary, without_commands

    with reporting_written_files(outputs.files):
        if github:
            table = "" if is_quiet else without_commands(gates_text(report), token_hex(16))
            show_text("".join([table, *(f"{line}\n" for line in annotations(report))]))
        elif not outputs.prints_json and not is_quiet:
            show_text(gates_text(report))
    if github:
        outputs.append_summary(summary(report, HEADER, [cells(each) for each in report.models]))


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
