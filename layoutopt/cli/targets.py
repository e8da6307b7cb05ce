"""`layoutopt targets`."""

from typing import Annotated

from typer import Argument, Option


def targets(
    name: Annotated[
        str | None, Argument(metavar="NAME", help="A target, `cpu` for this machine, or a file T.toml.")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """List hardware targets, or explain one.

    With NAME it shows every number with its source, and the kernels.
    """
    from layoutopt.cli.hardware import print_target, print_targets

    if name is None:
        print_targets(as_json)
    else:
        print_target(name, as_json)
