"""The error of a command that has written its files and cannot print its output."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from layoutopt.cli.exit_codes import StdoutError
from layoutopt.files import path_text


@contextmanager
def reporting_written_files(files: Sequence[Path]) -> Iterator[None]:
    """Context in which a command prints its results; if printing fails, the error names the files already written.

    Raises:
        StdoutError: stdout cannot be written.
    """
    try:
        yield
    except StdoutError as error:
        if not files:
            raise
        names = ", ".join(map(path_text, files))
        verb = "is" if len(files) == 1 else "are"
        what = f"{error.what}; {names} {verb} written, but the output could not be printed"
        raise StdoutError(what, where=error.where, hint=error.hint) from error.__cause__
