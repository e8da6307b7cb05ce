"""Options of the form NAME=VALUE that can be repeated: pins and dimensions; and the help of options that commands share."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from layoutopt.cli.exit_codes import UsageError

DIM_HELP = "How large a symbolic dimension, or INPUT[AXIS], is; or LOW:HIGH, the range of its sizes. Can be repeated."

INPUTS_HELP = (
    "Inputs to compare on, an array for each, from numpy.savez. Sizes follow them. Can be repeated: a file per set."
)

_T = TypeVar("_T")


def pins(requests: Sequence[str]) -> dict[str, str]:
    """--pin NAME=FORMAT; names may hold equals signs, formats do not.

    Raises:
        UsageError: one is none, or two contradict each other.
    """
    return _assigned("--pin", requests, "a pin", "NAME=FORMAT", lambda text: text or None)


def dims(requests: Sequence[str]) -> dict[str, tuple[int, int]]:
    """--dim NAME=SIZE or NAME=LOW:HIGH, both ends counted; names may hold equals signs.

    Raises:
        UsageError: as for `pins`.
    """
    return _assigned(
        "--dim", requests, "a dimension", "NAME=SIZE or NAME=LOW:HIGH, as in batch=1 or batch=1:16", _range
    )


def extents(requests: Sequence[str]) -> dict[str, int]:
    """--dim NAME=SIZE where a range makes no sense.

    Raises:
        UsageError: as for `pins`.
    """
    return _assigned("--dim", requests, "a dimension", "NAME=VALUE, as in batch=1", _size)


def _size(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and int(text) else None


def _range(text: str) -> tuple[int, int] | None:
    first, _, second = text.partition(":")
    low, high = _size(first), _size(second or first)
    return (low, high) if low and high and low <= high else None


def _assigned(
    option: str,
    requests: Sequence[str],
    what: str,
    form: str,
    read: Callable[[str], _T | None],
) -> dict[str, _T]:
    """Values by name, each named once, or always as the same."""
    found: dict[str, tuple[_T, str]] = {}
    for request in requests:
        name, _, text = request.rpartition("=")
        value = read(text) if name else None
        if value is None:
            raise UsageError(f"not {what}", where=f"{option} {request}", hint=f"write {form}")
        if found.setdefault(name, (value, text))[0] != value:
            raise UsageError(f"{name} is {found[name][1]} too", where=f"{option} {request}", hint="choose one")
    return {name: value for name, (value, _) in found.items()}
