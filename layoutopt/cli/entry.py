"""Entry point: runs one command and returns its exit code. Every error is printed as one line on stderr."""

import gc
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

import typer

from layoutopt.cli import exit_codes
from layoutopt.cli.app import app, command_names
from layoutopt.cli.arguments import prepare_arguments
from layoutopt.cli.error_line import TRACEBACK, print_error, report_error, silence_stdout


@dataclass(slots=True)
class Settings:
    """Options that precede the command.

    Attributes:
        traceback: print the traceback of an error.
    """

    traceback: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: the arguments after the program's name; by default those of this process.

    Returns:
        The exit code; see `layoutopt --help`.
    """
    settings = Settings(os.environ.get(TRACEBACK, "") not in ("", "0"))
    _prepare_process()
    command = typer.main.get_command(app)
    try:
        prepared = prepare_arguments(sys.argv[1:] if arguments is None else arguments, command_names())
        code = command.main(prepared, "layoutopt", standalone_mode=False, obj=settings)
        sys.stdout.flush()
    except SystemExit as leaving:
        if leaving.code in (0, exit_codes.TERMINATED):  # 0: typer has printed the words of a shell completion
            return int(leaving.code)
        silence_stdout()  # typer exits like this when the reader of its help has closed the pipe
        return exit_codes.CLOSED_PIPE
    except BaseException as error:
        return report_error(error, has_traceback=settings.traceback)
    if code == exit_codes.INTERRUPTED:  # typer has caught the KeyboardInterrupt
        print_error("interrupted")
    return code if isinstance(code, int) else 0


def run() -> NoReturn:
    """Run the command of this process, and exit with its code."""
    code = main()
    gc.freeze()  # else the interpreter searches the models for cycles before it exits, which takes up to half a second
    sys.exit(code)


def _prepare_process() -> None:
    """Suppress warnings of libraries, replace characters that stdout cannot encode, and turn SIGTERM into an exception."""
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        signal.signal(signal.SIGTERM, _terminate)
    except ValueError:  # not in the main thread, so not our process
        return


def _terminate(number: int, frame: FrameType | None) -> None:
    raise SystemExit(exit_codes.TERMINATED)
