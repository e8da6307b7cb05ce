"""`check`, `bench` and `calibrate`: what runs on this machine, and how fast."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from layoutopt.bench import BenchReport
from layoutopt.bench import bench as run_benchmark
from layoutopt.calibrate import calibrate as run_calibration
from layoutopt.cli.exit_codes import IncompatibleError, UsageError
from layoutopt.cli.options import Given
from layoutopt.cli.output_files import OutputFiles
from layoutopt.cli.rendering.stderr import progress_line
from layoutopt.cli.rendering.terminal import Document
from layoutopt.files import FileKind, path_text
from layoutopt.report.compatibility import check_model
from layoutopt.runtime.custom_ops import kernel_libraries
from layoutopt.sample_inputs import read_inputs


def check(given: Given, model: Path) -> None:
    """Check whether a model runs on this machine: the verdict, and a row per operator and element types.

    Raises:
        IncompatibleError: it does not.
    """
    record = OutputFiles("check", given, model, reads=given.custom_ops)
    with kernel_libraries(given.custom_ops), progress_line() as progress:
        found = check_model(model, progress)
    verdict = "incompatible" if found.problems else "compatible"
    facts: dict[str, Any] = {"verdict": verdict, "problems": list(found.problems), "is_blocked": found.is_blocked}
    facts |= to_builtins(found)
    operators = [each | each.pop("support") for each in facts.pop("usages")]
    shown = [each for each in operators if given.show_all or each["domain"] or each["status"] != "kernel"]
    hidden = len(operators) - len(shown)
    note = f"{hidden} more, standard ONNX operators, have a kernel: --all lists them." if hidden else ""
    record.show(
        {"model": path_text(model), **facts, "operators": operators},
        Document(title=path_text(model), record={**facts, "operators": shown}, note=note),
    )
    if found.problems:
        problem, hint = next(iter(found.problems.items()))
        raise IncompatibleError(problem, where=str(model), hint=hint)


def bench(given: Given, models: Sequence[Path], runtime: Sequence[str] | None) -> None:
    """Time models against each other.

    Raises:
        UsageError: a dimension has a range.
        DimensionError, InputError: there is no such dimension, or an input is wrong.
    """
    settings = given.settings(models[0])
    dims = {name: low for name, (low, high) in settings.dim.items() if low == high}
    if wrong := dict(given.dim).keys() - dims.keys():
        raise UsageError("is a range", where=f"--dim {min(wrong)}", hint="give one size, as in batch=1")
    arrays = {name: array for path in given.inputs for name, array in read_inputs(path).items()}
    record = OutputFiles("bench", given, *models, reads=settings.reads)
    with kernel_libraries(given.custom_ops), progress_line(is_silent=given.quiet) as progress:
        report = run_benchmark(
            models,
            threads=settings.threads,
            seconds=given.seconds,
            seed=given.seed,
            dims=dims,
            inputs=arrays,
            runtimes=list(dict.fromkeys(runtime or ["onnxruntime"])),
            progress=progress,
        )
    record.show(report, _bench_document(report))


def _bench_document(report: BenchReport) -> Document:
    """Conditions, and a row per model: time, speed-up with its interval, session creation and data movement."""
    rows = []
    for each in report.models:
        ratio = {key: getattr(each.speed_up, key, None) for key in ("value", "low", "high", "verdict")}
        rows.append(
            {
                "model": each.label,
                "run_seconds": each.seconds,
                f"{report.models[0].label} / model": ratio.pop("value"),
                **ratio,
                "session_seconds": each.creation_seconds,
                "Transposes and reorders percent": 100 * each.reorder_share,
            }
        )
    record = {
        **{each.label: f"{each.model} in {each.runtime} {each.runtime_version}" for each in report.models},
        **report.model_dump(include={"machine", "seed", "rounds", "blocks", "warnings"}),
        "inputs": [each.model_dump() for each in report.models[0].inputs],
        "95 % confidence intervals": rows,
    }
    return Document(title="bench", record=record, note="Compare the outputs with: layoutopt verify A B")


def calibrate(given: Given, output: Path) -> None:
    """Measure this machine, and write a target file for it.

    Raises:
        UsageError: the file has another suffix.
    """
    if output.suffix != ".toml":
        hint = "use a name that ends in .toml, as --target requires"
        raise UsageError("not a target file", where=f"-o {output}", hint=hint)
    record = OutputFiles("calibrate", given)
    record.add("--output", output, FileKind.TARGET, lambda: report.profile)
    with progress_line(is_silent=given.quiet) as progress:
        report = run_calibration(threads=given.threads, progress=progress)
    shown = report.model_dump(exclude={"profile"})
    record.show(report, Document(title=str(output), record=shown, note=f"Plan with it: --target {output}"))
