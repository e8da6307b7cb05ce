"""`layoutopt formats`."""

from typing import Annotated

import typer


def formats(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A name like NC1HWC0, or a spelling like NCHW16c.")
    ] = None,
    shape: Annotated[
        str | None, typer.Option("--shape", metavar="1,17,5,4", help="Bind NAME to a logical shape.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", metavar="float16", help="The element type, on which some blocks depend.")
    ] = None,
    system: Annotated[
        str | None, typer.Option("--system", metavar="S", help="Only the names of one system, like ascend.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the memory formats that have names; with NAME, show where every element lies."""
    extents = _extents(shape) if shape is not None else None
    if name is None and (shape or dtype):
        raise typer.BadParameter("--shape and --dtype need the NAME of a format")

    if name is None:
        from layoutopt.cli.catalogue import print_catalogue

        print_catalogue(system, as_json)
    else:
        from layoutopt.cli.memory import print_format

        print_format(name, extents, dtype, as_json)


def _extents(shape: str) -> tuple[int, ...]:
    """The numbers of `1,17,5,4`, also `1x17x5x4` or `[1, 17, 5, 4]`; nothing is a scalar."""
    numbers = shape.strip("[]() ").replace("x", ",").split(",")
    try:
        extents = tuple(int(number) for number in numbers if number.strip())
    except ValueError:
        raise typer.BadParameter(f"--shape {shape}: write numbers, like 1,17,5,4") from None
    if any(extent < 0 for extent in extents):
        raise typer.BadParameter(f"--shape {shape}: an extent is below 0")
    return extents
