"""The run of `optimize`: one model with its summary, or several as a batch.

Libraries of batches and pages are imported for these only.
"""

import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path

from msgspec.structs import replace

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.model_files import Placement, is_several, place, with_output
from layoutopt.cli.options import Given
from layoutopt.cli.output_files import STDIO, OutputFiles, print_model, read_stdin
from layoutopt.cli.rendering.results import summary
from layoutopt.cli.rendering.stderr import progress_line, warn_of_report
from layoutopt.files import FileKind, create_folder, is_same_file, output_folders, path_text
from layoutopt.onnx_io.writer import check_output

FOR_ONE_MODEL = ("pin", "inputs", "external_data", "html", "certificate", "split")
"""The options that name tensors or files of one model, so that they are refused for several."""

FOR_SEVERAL = ("cluster", "cache")


def optimize(given: Given, models: Sequence[Path]) -> int:
    """Optimise the models that the arguments name.

    Args:
        given: the options.
        models: files, folders, patterns, or `-` for stdin.

    Returns:
        The exit code: that of the first failure of several models.

    Raises:
        LayoutoptError: the arguments are wrong, or the only model failed.
    """
    arguments, output = with_output(models, given.output)
    is_alone = len(arguments) == 1 and not is_several(arguments[0])
    for name in FOR_SEVERAL if is_alone else FOR_ONE_MODEL:
        if getattr(given, name):
            what, hint = "is for one model", "name one model file"
            if is_alone:
                what, hint = "is for several models", "name several models, or a folder"
            raise UsageError(what, where=f"--{name.replace('_', '-')}", hint=hint)
    placements = place(arguments, output)
    if not is_alone:
        from layoutopt.cli.batches import optimize_several

        return optimize_several(placements, given)
    _optimize_one(placements[0], given)
    return 0


def _optimize_one(placed: Placement, given: Given) -> None:
    """Optimise one model, write its files and print the verdict; warnings go to stderr.

    Raises:
        UsageError: two of the files are the same, or the options contradict each other.
        OutputError: a file cannot be written, or must not be replaced; none is written then.
        StdoutError: stdout cannot be written; the files are written.
    """
    settings = given.settings(placed.model)
    is_stdin, is_printed = placed.model == STDIO, placed.output == STDIO and not settings.dry_run
    if is_printed and settings.json == STDIO:
        raise UsageError("the model goes to stdout", where="--json -", hint="name a file: --json=report.json")
    if is_printed and sys.stdout.isatty():
        raise UsageError("stdout is a terminal", where="-o -", hint="redirect it, or name a file with -o")
    sources = [] if is_stdin else [placed.model]
    results = [] if is_printed or settings.dry_run else [placed.output]
    output = next(iter(results), None)
    external_data = settings.external_data if output is not None else None
    page = None
    if settings.html is not None:
        from layoutopt.cli.inspection import page_text
        from layoutopt.page import OriginalGraph

        page = OriginalGraph(*settings.hardware())
    folders = [each.parent for each in results if placed.is_in_folder]
    written = None
    with output_folders(folders):
        for folder in folders:
            create_folder(folder)
        record = OutputFiles("optimize", given, *sources, output=output, results=results, reads=settings.reads)
        if output is not None:
            check_output(output, external_data, record.overwrite)
        others = (output, settings.json, settings.html, settings.certificate)
        files = [each for each in others if each not in (None, STDIO)]
        if settings.split is not None and any(is_same_file(each.parent, settings.split) for each in files):
            hint = "name another folder"
            raise UsageError("another file of this command is in it", where=f"--split {settings.split}", hint=hint)
        if output is not None and external_data is not None:
            where = f"--external-data {external_data}"
            record.take(where, output.with_name(external_data), "the external data")
        tested = {"allow_tested": settings.allow_tested}
        record.add("--html", settings.html, FileKind.PAGE, lambda: page_text(result, page, model, settings))
        record.add(
            "--certificate", settings.certificate, FileKind.CERTIFICATE, lambda: result.certificate(model, **tested)
        )
        model = read_stdin() if is_stdin else placed.model
        with progress_line(is_silent=given.is_quiet) as progress:
            callbacks = {} if page is None else {"watch": page, "sizes_found": page.set_sizes}
            result = settings.run(model, progress=progress, **callbacks)
            if is_stdin:
                result = replace(result, report=result.report.model_copy(update={"model": "stdin"}))
            progress("writing")
            with record.staged(result.report):
                if settings.split is not None and not settings.dry_run:
                    result.split(settings.split, force=settings.force)
                if is_printed:
                    print_model(result)
                if output is not None:
                    written = result.save(output, external_data=external_data, force=settings.force)
    warn_of_report(result.report)
    names = "to stdout" if is_printed else ", ".join(map(path_text, written.files if written is not None else []))
    with redirect_stdout(sys.stderr) if is_printed else nullcontext():  # where the model goes to stdout
        record.print(summary(result.report, written, names, is_verbose=bool(given.verbose)))
