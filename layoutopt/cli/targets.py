"""`layoutopt targets`."""

from typing import Annotated

from typer import Argument, Option

from layoutopt.cli.exit_codes import UsageError


def targets(
    name: Annotated[
        str | None, Argument(metavar="NAME", help="A target; `cpu` is this machine; or a file T.toml.")
    ] = None,
    explain: Annotated[
        bool, Option("--explain", help="Print the estimated time of each kernel for an op, and its parts, too.")
    ] = False,
    op: Annotated[
        str | None,
        Option(
            "--op",
            metavar="TEXT",
            help="The op, in ONNX's text syntax: 'Conv <pads=[1,1,1,1]> (float16[1,64,56,56] x, float16[64,64,3,3] w)'.",
        ),
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """List hardware targets, or describe one.

    With NAME, prints every parameter of the cost model with its source, and the kernels.
    """
    from layoutopt.cli.rendering.target_costs import print_estimates
    from layoutopt.cli.rendering.targets import print_target, print_targets

    if name is None:
        if explain or op is not None:
            raise UsageError("no target named", hint="write layoutopt targets --explain NAME")
        print_targets(as_json)
    elif op is not None or (explain and as_json):
        print_estimates(name, op, as_json)
    else:
        print_target(name, as_json)
        if explain:
            print_estimates(name, op, as_json)
