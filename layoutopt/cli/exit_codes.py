"""Exit codes: those of the errors, and the few that only a command line has."""

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
    """`verify` could not run the original, so nothing is known."""

    exit_code: ClassVar[int] = 9


class UnfitError(LayoutoptError):
    """`check` found that the model does not fit this machine."""

    exit_code: ClassVar[int] = 10


class StdoutError(LayoutoptError):
    """What was to be printed cannot be written."""

    exit_code: ClassVar[int] = OutputError.exit_code


def exit_codes() -> dict[int, str]:
    """Every exit code and what it means, in ascending order."""
    codes = {error.exit_code: (error.__doc__ or "").split("\n")[0].rstrip(".") for error in _errors()}
    codes |= {
        OutputError.exit_code: (OutputError.__doc__ or "").rstrip("."),
        0: "All is well",
        LayoutoptError.exit_code: "Anything else, such as too little memory",
        INTERNAL: "A bug in layoutopt or in a pass; it says where to look",
        INTERRUPTED: "Interrupted with Ctrl-C",
        CLOSED_PIPE: "The reader of the output has gone",
        TERMINATED: "Terminated",
    }
    return dict(sorted(codes.items()))


def _errors() -> Iterator[type[LayoutoptError]]:
    queue = [LayoutoptError]
    while queue:
        error = queue.pop(0)
        yield error
        queue += error.__subclasses__()
