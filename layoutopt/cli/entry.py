"""Entry point: runs one command and returns its exit code. Every error is printed as one line on stderr."""

import errno
import gc
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType, SimpleNamespace
from typing import NoReturn

import typer

from layoutopt.cli import exit_codes
from layoutopt.cli.app import app, prepare_arguments, present_spelling
from layoutopt.errors import LayoutoptError, OutputError

TRACEBACK = "LAYOUTOPT_TRACEBACK"
"""The environment variable that requests tracebacks."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: the arguments after the program's name; by default those of this process.

    Returns:
        The exit code; see `layoutopt --help`.
    """
    settings = SimpleNamespace(traceback=os.environ.get(TRACEBACK, "") not in ("", "0"))
    _prepare_process()
    command = typer.main.get_command(app)
    try:
        prepared = prepare_arguments(sys.argv[1:] if arguments is None else arguments)
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
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # pydantic would search all installed packages for them
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


# --- errors ------------------------------------------------------------------------------------------------


def report_error(error: BaseException, *, has_traceback: bool, where: str = "") -> int:
    """Print an error as one line on stderr.

    Args:
        error: the error.
        has_traceback: whether the traceback is printed first.
        where: the file that the error concerns; it is printed in front of a line that does not contain it.

    Returns:
        The exit code of the error.
    """
    if isinstance(error, exit_codes.StdoutError) or (isinstance(error, OSError) and not where):
        silence_stdout()
    if isinstance(error, BrokenPipeError) or isinstance(error.__cause__, BrokenPipeError):
        return exit_codes.CLOSED_PIPE
    if has_traceback:
        traceback.print_exception(error)
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        print_error("interrupted")
        return exit_codes.INTERRUPTED
    code, kind, line = described(error)
    print_error(line if not where or where in line else f"{where}: {line}", kind)
    return code


def described(error: BaseException) -> tuple[int, str, str]:
    """The exit code of an error, its kind, and one line about it."""
    code, kind = LayoutoptError.exit_code, "error"
    if isinstance(error, LayoutoptError):
        code, line = error.exit_code, str(error)
    elif hasattr(error, "format_message"):  # typer's own error class; its module depends on typer's version
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "layoutopt"
        present = present_spelling(getattr(error, "option_name", ""))
        hint = f"write {present}" if present else f"see {path} --help"
        code, line = exit_codes.UsageError.exit_code, f"{error.format_message().rstrip('.')}; {hint}"
    elif isinstance(error, MemoryError):
        line = "not enough memory; close other programs or use a machine with more"
    elif isinstance(error, OSError):
        line = (error.strerror or str(error)).lower()
        line = f"{error.filename}: {line}" if error.filename else line
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):  # stdout of --help, or a temporary folder
            code = OutputError.exit_code
    else:
        what = ", ".join(
            [": ".join(filter(None, (type(error).__name__, str(error)))), *getattr(error, "__notes__", [])]
        )
        code, kind = exit_codes.INTERNAL, "internal error"
        line = f"{what}; rerun with {TRACEBACK}=1 or layoutopt --traceback for a traceback"
    return code, kind, line


def silence_stdout() -> None:
    """Redirect stdout to the null device: Python flushes stdout at exit, and would report the error again."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return


def print_error(text: str, kind: str = "error") -> None:
    """Print one line on stderr; a failure to write stderr is ignored, since the exit code reports the error too."""
    line = str(LayoutoptError(text))
    has_colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    colour = "\033[1;33m" if kind == "warning" else "\033[1;31m"
    with suppress(OSError):
        print(f"{colour}{kind}:\033[0m {line}" if has_colours else f"{kind}: {line}", file=sys.stderr, flush=True)
