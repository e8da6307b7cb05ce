"""The run of `optimize`: one model with its summary, or several with a table."""

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.files.reporting_written_files import reporting_written_files
from layoutopt.cli.optimization.batch_settings import BatchSettings
from layoutopt.cli.optimization.one_model import Request, optimize_model
from layoutopt.cli.optimization.placements import Placement, is_several, place
from layoutopt.cli.optimization.settings import FOR_ONE_MODEL, ModelSettings
from layoutopt.cli.rendering.optimize import print_summary


def run_optimize(
    models: Sequence[Path],
    output: str | None,
    given: ModelSettings,
    settings: Callable[[Path], ModelSettings],
    request: Request,
    batch: BatchSettings,
    *,
    has_traceback: bool,
) -> int:
    """Optimise the models that the arguments name.

    Args:
        models: files, folders, patterns, or `-` for stdin.
        output: the value of -o.
        given: the options of the command line.
        settings: the options of a model, those of the configuration included.
        request: the other options.
        batch: the options that only several models have.
        has_traceback: whether tracebacks of the errors of several models are printed.

    Returns:
        The exit code: that of the first failure of several models.

    Raises:
        LayoutoptError: the arguments are wrong, or the only model failed.
    """
    has_one_model = len(models) == 1 and not is_several(models[0])
    if not has_one_model:
        _refuse_options_for_one_model(given, request)
    elif batch.cluster or batch.cache:
        option = "--cluster" if batch.cluster else "--cache"
        raise UsageError("is for several models", where=option, hint="name several models, or a folder")
    placements = place(models, output)
    if not has_one_model:
        from layoutopt.cli.optimization.several_models import Batch  # imports joblib

        return Batch(placements, settings, request, batch, has_traceback=has_traceback).run()
    _optimize_one(placements[0], settings(placements[0].model), request)
    return 0


def _optimize_one(placement: Placement, settings: ModelSettings, request: Request) -> None:
    """Optimise one model and print its summary, on stderr if the model goes to stdout."""
    result, outputs = optimize_model(placement, settings, request)
    if request.is_quiet or outputs.prints_report:
        return
    with redirect_stdout(sys.stderr) if outputs.prints_model else nullcontext(), reporting_written_files(outputs.files):
        print_summary(result.report, outputs, is_verbose=request.is_verbose)


def _refuse_options_for_one_model(settings: ModelSettings, request: Request) -> None:
    values = {name: getattr(settings, name) for name in FOR_ONE_MODEL}
    values |= {name: getattr(request, name) for name in ("dump_ir", "html", "certificate")}
    for name, value in values.items():
        if value:
            option = f"--{name.replace('_', '-')}"
            raise UsageError("is for one model", where=option, hint="name one model file")
