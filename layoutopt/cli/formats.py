"""`layoutopt formats`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.options.config_file import NAMES_OUTPUT
from layoutopt.cli.options.force import Force
from layoutopt.cli.options.json_file import JsonFile
from layoutopt.cli.options.shapes import parse_shape


def formats(
    name: Annotated[
        str | None, Argument(metavar="NAME", help="A name like NC1HWC0, or a notation like NCHW16c.")
    ] = None,
    shape: Annotated[
        str | None, Option("--shape", metavar="1,17,5,4", help="The logical shape of a tensor in the format.")
    ] = None,
    dtype: Annotated[
        str | None, Option("--dtype", metavar="float16", help="The element type; some block sizes depend on it.")
    ] = None,
    system: Annotated[
        str | None, Option("--system", metavar="S", help="List the formats of one system only, such as ascend.")
    ] = None,
    plot: Annotated[
        Path | None, Option("--plot", metavar="OUT.svg", help="Draw the memory of the tensor as SVG."), NAMES_OUTPUT
    ] = None,
    force: Force = False,
    json: JsonFile = None,
) -> None:
    """List memory formats, or describe one.

    With NAME and --shape, prints strides, padding, size in memory, and the element at each offset; --plot draws
    them.
    """
    extents = parse_shape("--shape", shape) if shape is not None else None
    if name is None and (shape or dtype):
        raise UsageError("no format", where="--shape" if shape else "--dtype", hint="name a format too")
    if plot is not None and (name is None or extents is None):
        raise UsageError("nothing to draw", where=f"--plot {plot}", hint="name a format and give its --shape")

    from layoutopt.cli.files.json_record import JsonRecord

    record = JsonRecord("formats", json, others=[plot] if plot is not None else [], kind="the figure", force=force)
    if name is None:
        from layoutopt.cli.rendering.formats import print_formats

        print_formats(system, record)
    else:
        from layoutopt.cli.rendering.one_format import print_format

        print_format(name, extents, dtype, record, plot, force=force)
