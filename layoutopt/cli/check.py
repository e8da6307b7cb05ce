"""`layoutopt check`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from layoutopt.cli.exit_codes import IncompatibleError
from layoutopt.cli.options.custom_ops import CustomOps
from layoutopt.cli.options.force import Force
from layoutopt.cli.options.json_file import JsonFile
from layoutopt.cli.options.quiet import Quiet

if TYPE_CHECKING:  # --help imports this module, and no large library
    from layoutopt.cli.files.json_record import JsonRecord


def check(
    model: Annotated[
        Path | None,
        Argument(
            metavar="FILE", help="An ONNX file; without FILE, the onnxruntime kernels that layoutopt emits are checked."
        ),
    ] = None,
    show_all: Annotated[
        bool,
        Option(
            "--all",
            help="List standard ONNX operators too; without FILE, list the restrictions of each kernel.",
        ),
    ] = False,
    json: JsonFile = None,
    custom_ops: CustomOps = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Check whether a model runs on this machine and its onnxruntime.

    For FILE: compares the block size that its weights are packed for with the block size of this machine,
    queries onnxruntime for a kernel for every operator and its element types, and loads the file. Without FILE:
    queries onnxruntime for every kernel that layoutopt emits. The exit code is 10 if the file
    is incompatible with this machine or a kernel is missing.
    """
    from layoutopt.cli.files.json_record import JsonRecord
    from layoutopt.cli.files.read_files import read_files
    from layoutopt.runtime.custom_ops import kernel_libraries

    reads = read_files({"custom_ops": custom_ops})
    with kernel_libraries(custom_ops or ()):
        if model is None:
            _check_kernels(show_all, JsonRecord("check", json, reads=reads, force=force), is_quiet=quiet)
        else:
            _check_model(model, show_all, JsonRecord("check", json, model, reads=reads, force=force), is_quiet=quiet)


def _check_model(model: Path, show_all: bool, record: "JsonRecord", *, is_quiet: bool) -> None:
    from layoutopt.cli.files.reporting_written_files import reporting_written_files
    from layoutopt.cli.rendering.check import model_record, print_model
    from layoutopt.cli.rendering.progress import ProgressLine
    from layoutopt.report.compatibility import check_model

    with ProgressLine() as progress:
        compatibility = check_model(model, progress)
    record.write(model_record(model, compatibility))
    if not record.is_printed and not is_quiet:
        with reporting_written_files(record.files):
            print_model(model, compatibility, show_all)
    if compatibility.problems:
        problem, hint = next(iter(compatibility.problems.items()))
        raise IncompatibleError(problem, where=str(model), hint=hint)


def _check_kernels(show_all: bool, record: "JsonRecord", *, is_quiet: bool) -> None:
    from layoutopt.cli.files.reporting_written_files import reporting_written_files
    from layoutopt.cli.rendering.check import kernels_record, print_kernels
    from layoutopt.report.compatibility import check_kernels, this_machine

    machine, found = this_machine(), check_kernels()
    record.write(kernels_record(machine, found))
    if not record.is_printed and not is_quiet:
        with reporting_written_files(record.files):
            print_kernels(machine, found, show_all)
    missing = dict.fromkeys(f"{each.kernel.domain}::{each.kernel.op}" for each in found if not each.is_present)
    if missing:
        problem = f"onnxruntime {machine.onnxruntime} has no kernel for {', '.join(missing)}"
        raise IncompatibleError(problem, hint="install a version that has them")
