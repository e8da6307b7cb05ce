"""Registration of the commands, and the text of `layoutopt --help`."""

from typing import Annotated

import typer

from layoutopt.cli.bench import bench
from layoutopt.cli.cache import cache
from layoutopt.cli.calibrate import calibrate
from layoutopt.cli.certify import certify
from layoutopt.cli.check import check
from layoutopt.cli.ci import ci
from layoutopt.cli.command_group import CommandGroup
from layoutopt.cli.dialects import dialects
from layoutopt.cli.exit_codes import exit_codes
from layoutopt.cli.explain import explain
from layoutopt.cli.formats import formats
from layoutopt.cli.inspect import inspect
from layoutopt.cli.ops import ops
from layoutopt.cli.optimize import optimize
from layoutopt.cli.passes import passes
from layoutopt.cli.runtimes import runtimes
from layoutopt.cli.targets import targets
from layoutopt.cli.verify import verify
from layoutopt.version import VERSION

_EXAMPLES = """\b
Start with:
  layoutopt model.onnx               writes model.opt.onnx, for this CPU
  layoutopt models/ -o out/ -t cpu   optimises all models of a folder
  layoutopt inspect model.onnx       prints the plan, writes no model"""
_CODES = "\n".join(["\b\nExit codes:", *(f"  {code:>3}  {meaning}" for code, meaning in exit_codes().items())])
_ERRORS = """\b
On an error no model is written, and stderr has one line: the place, the fault
and the remedy. Output has colours on terminals; NO_COLOR=1 disables them."""

app = typer.Typer(
    cls=CommandGroup,
    help="Choose the memory format of every tensor of an ONNX model, and rewrite the model to move less data.",
    epilog="\n\n".join((_EXAMPLES, _CODES, _ERRORS)),
    rich_markup_mode=None,  # importing rich would take longer than everything else
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
_COMMANDS = (
    optimize,
    inspect,
    explain,
    verify,
    certify,
    check,
    bench,
    ci,
    calibrate,
    cache,
    formats,
    ops,
    targets,
    runtimes,
    passes,
    dialects,
)
for _command in _COMMANDS:
    app.command()(_command)


def command_names() -> list[str]:
    """The names of all commands, in the order of `layoutopt --help`."""
    return [each.__name__.replace("_", "-") for each in _COMMANDS]


def _show_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"layoutopt {VERSION}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Print the traceback of an error; also LAYOUTOPT_TRACEBACK=1.")
    ] = False,
) -> None:
    if traceback:
        context.obj.traceback = True
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
