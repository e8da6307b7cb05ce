"""The run of `optimize` for one model: read, optimise, write, warn."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from layoutopt.cli.files.dump import parse_dumps
from layoutopt.cli.files.model_streams import read_stdin
from layoutopt.cli.files.outputs import Outputs, TextOutput
from layoutopt.cli.files.pages import PageOptions
from layoutopt.cli.files.read_files import read_files
from layoutopt.cli.optimization.model_files import STDIO
from layoutopt.cli.optimization.placements import Placement, output_folder
from layoutopt.cli.optimization.settings import ModelSettings
from layoutopt.cli.rendering.progress import ProgressLine
from layoutopt.cli.rendering.warnings import warn, warn_of_repairs
from layoutopt.driver.pipeline import pipeline_for
from layoutopt.driver.result import Result
from layoutopt.files import FileKind, Overwrite, path_text
from layoutopt.report.schema import Report
from layoutopt.report.warnings import repairs_of, warnings_of


@dataclass(frozen=True, slots=True)
class Request:
    """The options of `optimize` that do not change the result.

    Attributes:
        json: the file of the report; `-` for stdout.
        html: the file of the page.
        certificate: the file of the certificate.
        allow_tested: whether the certificate may have claims that are only tested.
        dump_ir: the values of `--dump-ir`.
        dry_run: whether no model is written.
        force: whether files are replaced that are no result of the model.
        is_quiet: whether only warnings and errors are printed.
        is_verbose: whether stages and notes are printed too.
        reads: files that the command reads for all models: the configuration.
    """

    json: Path | None
    html: Path | None
    certificate: Path | None
    allow_tested: bool
    dump_ir: Sequence[str]
    dry_run: bool
    force: bool
    is_quiet: bool
    is_verbose: bool
    reads: Sequence[Path] = ()


def optimize_model(placement: Placement, settings: ModelSettings, request: Request) -> tuple[Result, Outputs]:
    """Optimise one model and write its files; warnings go to stderr.

    Args:
        placement: the model and its output.
        settings: the options of the model.
        request: the other options.

    Returns:
        The result, and the files that were written.
    """
    with nullcontext() if request.dry_run else output_folder(placement):
        is_stdin = placement.model == STDIO
        source = None if is_stdin else placement.model
        pages = PageOptions(request.html, settings.target, settings.runtime, settings.dialect)
        originals: list[bytes | Path] = []
        reads = (*request.reads, *read_files(settings.values()))
        outputs = Outputs(
            source,
            None if request.dry_run else placement.output,
            request.json,
            settings.external_data,
            [*pages.outputs, *_certificates(request, originals)],
            reads=reads,
            force=request.force,
        )
        outputs.check()
        pipeline = pipeline_for(settings.mode, settings.target, settings.runtime, settings.dialect)
        output = None if placement.output == STDIO else placement.output
        watch = parse_dumps(
            request.dump_ir, pipeline, Overwrite((source,) if source else (), output, request.force, reads)
        )
        model = read_stdin() if is_stdin else placement.model
        originals.append(model)
        outputs.source_size = len(model) if isinstance(model, bytes) else outputs.source_size
        with ProgressLine(is_silent=request.is_quiet or watch.uses_stderr) as progress:
            result = settings.run(
                model,
                watch=pages.watching(watch),
                progress=progress,
                sizes_found=pages.sizes_found,
            )
            if is_stdin:
                result = replace(result, report=result.report.model_copy(update={"model": "stdin"}))
            progress("writing")
            outputs.write(result)
    warn_about(result.report)
    return result, outputs


def _certificates(request: Request, originals: list[bytes | Path]) -> list[TextOutput]:
    """The file of the certificate, if one is requested; the original is appended to the list before it is written."""

    def text(result: Result) -> str:
        return result.certificate(originals[0], allow_tested=request.allow_tested)

    if request.certificate is None:
        return []
    return [TextOutput("--certificate", request.certificate, FileKind.CERTIFICATE, text)]


def warn_about(report: Report, model: Path | None = None) -> None:
    """Print warnings about a result; those about repairs name the model if there are several."""
    warn_of_repairs(repairs_of(report.notes), path_text(model) if model is not None else "")
    for text in warnings_of(report):
        warn(text)
