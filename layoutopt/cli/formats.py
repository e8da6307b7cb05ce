"""`layoutopt formats`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.options.force import Force
from layoutopt.cli.options.shapes import extents_of


def formats(
    name: Annotated[
        str | None, Argument(metavar="NAME", help="A name like NC1HWC0, or a notation like NCHW16c.")
    ] = None,
    shape: Annotated[
        str | None, Option("--shape", metavar="1,17,5,4", help="The logical shape of a tensor in it.")
    ] = None,
    dtype: Annotated[
        str | None, Option("--dtype", metavar="float16", help="Its element type; some blocks depend on it.")
    ] = None,
    system: Annotated[
        str | None, Option("--system", metavar="S", help="List the names of one system only, like ascend.")
    ] = None,
    plot: Annotated[
        Path | None, Option("--plot", metavar="OUT.svg", help="Draw the memory of that tensor, as SVG.")
    ] = None,
    force: Force = False,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
    markdown: Annotated[bool, Option("--markdown", help="Print the names of all systems side by side.")] = False,
) -> None:
    """List memory formats, or explain one.

    With NAME and --shape it shows strides, lanes, capacity, and which element lies at which offset; --plot
    draws it.
    """
    extents = extents_of("--shape", shape) if shape is not None else None
    if name is None and (shape or dtype):
        raise UsageError("no format", where="--shape" if shape else "--dtype", hint="name a format too")
    if plot is not None and (name is None or extents is None):
        raise UsageError("nothing to draw", where=f"--plot {plot}", hint="name a format and give its --shape")

    if markdown:
        from layoutopt.cli.rendering.formats_by_system import crosstable
        from layoutopt.cli.rendering.terminal import show_text

        show_text(crosstable())
    elif name is None:
        from layoutopt.cli.rendering.formats import print_catalogue

        print_catalogue(system, as_json)
    else:
        from layoutopt.cli.rendering.format_memory import print_format

        print_format(name, extents, dtype, as_json, plot, force=force)
