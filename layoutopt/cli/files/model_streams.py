"""Models in pipes: a model from stdin, and a model to stdout."""

import sys
from pathlib import Path

from layoutopt import onnx_io
from layoutopt.cli.exit_codes import StdoutError, UsageError
from layoutopt.driver.result import Result
from layoutopt.errors import ModelError


def read_stdin() -> bytes:
    """The bytes of the model on stdin.

    Raises:
        UsageError: stdin is a terminal.
        ModelError: stdin cannot be read.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("stdin is a terminal", where="-", hint="pipe a model into it: layoutopt - < model.onnx")
    try:
        return sys.stdin.buffer.read()
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        raise ModelError(what, where="stdin", hint="name a file instead") from error


def check_stdout() -> None:
    """Check that stdout can take a model.

    Raises:
        UsageError: stdout is a terminal.
    """
    if sys.stdout.isatty():
        raise UsageError("stdout is a terminal", where="-o -", hint="redirect it, or name a file with -o")


def print_model(result: Result) -> int:
    """Write the model to stdout, with all weights; an unchanged model of one file is copied byte for byte.

    Returns:
        The number of bytes.

    Raises:
        StdoutError: stdout cannot be written.
        OutputError: the model is larger than one message can be.
    """
    is_copy = isinstance(result.source, str) and not onnx_io.has_external_data(result.model)
    content = Path(str(result.source)).read_bytes() if is_copy else result.proto.SerializeToString(deterministic=True)
    try:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        raise StdoutError(what, where="stdout", hint="redirect it elsewhere") from error
    return len(content)
