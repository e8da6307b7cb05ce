"""`layoutopt check`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from layoutopt.cli.options.custom_ops import CustomOps
from layoutopt.cli.options.force import Force


def check(
    model: Annotated[
        Path | None, Argument(metavar="FILE", help="An ONNX file; without one, layoutopt's table of kernels.")
    ] = None,
    everything: Annotated[bool, Option("--all", help="Show ONNX's own operators too; without FILE, limits.")] = False,
    json: Annotated[
        Path | None, Option("--json", metavar="FILE", help="All that is known, as JSON; `-` for stdout.")
    ] = None,
    custom_ops: CustomOps = None,
    force: Force = False,
) -> None:
    """Tell whether a model fits this machine and its onnxruntime.

    For FILE: the blocks that its weights are packed for and those of this machine, whether onnxruntime has a
    kernel for every operator on the element types that it gets, and whether it can load the file. Without
    FILE: whether onnxruntime has the kernels that layoutopt writes. onnxruntime itself is asked. The exit
    code is 10 if something does not fit.
    """
    from layoutopt.cli.rendering.check import report_kernels, report_model
    from layoutopt.runtime.custom_ops import kernel_libraries

    with kernel_libraries(custom_ops or ()):
        if model is None:
            report_kernels(everything, json, force=force)
        else:
            report_model(model, everything, json, force=force)
