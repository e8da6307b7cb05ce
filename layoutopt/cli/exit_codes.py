"""Exit codes: those of the error classes, and those that only the command line has."""

from collections.abc import Iterator
from typing import ClassVar

from layoutopt.errors import InvariantError, LayoutoptError, OutputError

INTERNAL = InvariantError.exit_code  # EX_SOFTWARE of sysexits.h
INTERRUPTED = 130  # 128 + SIGINT, as shells count
CLOSED_PIPE = 141  # 128 + SIGPIPE
TERMINATED = 143  # 128 + SIGTERM


class UsageError(LayoutoptError):
    """The command line is wrong."""

    exit_code: ClassVar[int] = 2


class NotVerifiedError(LayoutoptError):
    """`verify` could not run the original, so the models were not compared."""

    exit_code: ClassVar[int] = 9


class IncompatibleError(LayoutoptError):
    """`check` found that the model is incompatible with this machine."""

    exit_code: ClassVar[int] = 10


class OverBudgetError(LayoutoptError):
    """`ci`: a model is over a budget."""

    exit_code: ClassVar[int] = 13


class RegressionError(LayoutoptError):
    """`ci`: a model is worse than its entry in the baseline."""

    exit_code: ClassVar[int] = 14


class StdoutError(LayoutoptError):
    """Stdout cannot be written."""

    exit_code: ClassVar[int] = OutputError.exit_code


def exit_codes() -> dict[int, str]:
    """Meanings by exit code, in ascending order."""
    errors = [each for each in _errors() if "exit_code" in vars(each)]
    codes = {error.exit_code: (error.__doc__ or "").split("\n")[0].rstrip(".") for error in errors}
    codes |= {
        OutputError.exit_code: (OutputError.__doc__ or "").rstrip("."),
        0: "Success",
        LayoutoptError.exit_code: "Any other error, such as too little memory",
        INTERNAL: "A bug in layoutopt or in a pass; --traceback prints its position",
        INTERRUPTED: "Interrupted with Ctrl-C",
        CLOSED_PIPE: "The reader of stdout closed the pipe",
        TERMINATED: "Terminated by SIGTERM",
    }
    return dict(sorted(codes.items()))


def _errors() -> Iterator[type[LayoutoptError]]:
    queue = [LayoutoptError]
    while queue:
        error = queue.pop(0)
        yield error
        queue += error.__subclasses__()
