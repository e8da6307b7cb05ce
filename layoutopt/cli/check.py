"""`layoutopt check`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from layoutopt.cli.options.custom_ops import CustomOps
from layoutopt.cli.options.force import Force


def check(
    model: Annotated[
        Path | None,
        Argument(metavar="FILE", help="An ONNX file; without FILE, layoutopt's own kernel table is checked."),
    ] = None,
    show_all: Annotated[
        bool, Option("--all", help="List standard ONNX operators too; without FILE, list the limits of each kernel.")
    ] = False,
    json: Annotated[
        Path | None, Option("--json", metavar="FILE", help="Write all results as JSON; `-` for stdout.")
    ] = None,
    custom_ops: CustomOps = None,
    force: Force = False,
) -> None:
    """Check whether a model runs on this machine and its onnxruntime.

    For FILE: compares the block size that its weights are packed for with the block size of this machine,
    asks onnxruntime for a kernel for every operator and its element types, and loads the file. Without FILE:
    asks onnxruntime for every kernel that layoutopt emits. The exit code is 10 if something does not fit.
    """
    from layoutopt.cli.rendering.check import report_kernels, report_model
    from layoutopt.runtime.custom_ops import kernel_libraries

    with kernel_libraries(custom_ops or ()):
        if model is None:
            report_kernels(show_all, json, force=force)
        else:
            report_model(model, show_all, json, force=force)
