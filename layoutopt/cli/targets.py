"""`layoutopt targets`."""

from typing import Annotated

import typer


def targets(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A target, `cpu` for this machine, or a file that ends in .toml.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the hardware that is described; with NAME, show every number with its source."""
    from layoutopt.cli.hardware import print_target, print_targets

    if name is None:
        print_targets(as_json)
    else:
        print_target(name, as_json)
