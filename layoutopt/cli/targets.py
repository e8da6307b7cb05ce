"""`layoutopt targets`."""

from typing import Annotated

from typer import Argument, Option

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.options.force import Force
from layoutopt.cli.options.json_file import JsonFile
from layoutopt.cli.options.target_names import complete_target

_NAME = "A target; `cpu` is this machine; or a file T.toml."


def targets(
    name: Annotated[str | None, Argument(metavar="NAME", help=_NAME, autocompletion=complete_target)] = None,
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
    json: JsonFile = None,
    force: Force = False,
) -> None:
    """List hardware targets, or describe one.

    With NAME, prints every parameter of the cost model with its source, and the kernels.
    """
    from layoutopt.cli.files.json_record import JsonRecord
    from layoutopt.cli.files.read_files import read_files
    from layoutopt.cli.rendering.target_costs import print_estimates
    from layoutopt.cli.rendering.targets import print_target, print_targets

    record = JsonRecord("targets", json, reads=read_files({"target": name}), force=force)
    if name is None:
        if explain or op is not None:
            raise UsageError("no target named", hint="write layoutopt targets --explain NAME")
        print_targets(record)
    elif op is not None or (explain and record.is_printed):
        print_estimates(name, op, record)
    elif explain:
        print_target(name, JsonRecord("targets", None))
        print_estimates(name, op, record)
    else:
        print_target(name, record)
