"""Parsers for repeatable options of the form NAME=VALUE: pins and dimensions; help texts that several commands share."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from layoutopt.cli.exit_codes import UsageError

DIM_HELP = "The size of a symbolic dimension or of INPUT[AXIS]; or LOW:HIGH, its range of sizes. Can be repeated."

INPUTS_HELP = (
    "Input arrays to compare on, by name, written by numpy.savez. Can be repeated: one file per set of inputs."
)

_T = TypeVar("_T")


def parse_pins(requests: Sequence[str]) -> dict[str, str]:
    """Parse `--pin NAME=FORMAT`; NAME may contain equals signs, FORMAT may not.

    Raises:
        UsageError: a value has another form, or two values contradict each other.
    """
    return _assigned("--pin", requests, "a pin", "NAME=FORMAT", lambda text: text or None)


def parse_dim_ranges(requests: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Parse `--dim NAME=SIZE` or `--dim NAME=LOW:HIGH`, both ends included; NAME may contain equals signs.

    Raises:
        UsageError: as `parse_pins`.
    """
    return _assigned(
        "--dim", requests, "a dimension", "NAME=SIZE or NAME=LOW:HIGH, as in batch=1 or batch=1:16", _range
    )


def parse_dim_sizes(requests: Sequence[str]) -> dict[str, int]:
    """Parse `--dim NAME=SIZE`, for commands that take no range.

    Raises:
        UsageError: as `parse_pins`.
    """
    return _assigned("--dim", requests, "a dimension", "NAME=SIZE, as in batch=1", _size)


def without_ranges(requests: Sequence[str]) -> list[str]:
    """The values of `--dim` that are sizes, for commands that take no range."""
    return [each for each in requests if ":" not in each.rpartition("=")[2]]


def _size(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and int(text) else None


def _range(text: str) -> tuple[int, int] | None:
    first, _, second = text.partition(":")
    low, high = _size(first), _size(second or first)
    return (low, high) if low and high and low <= high else None


def _assigned(
    option: str,
    requests: Sequence[str],
    kind: str,
    form: str,
    parse: Callable[[str], _T | None],
) -> dict[str, _T]:
    """Parse all values; a name may be repeated only with an equal value."""
    found: dict[str, tuple[_T, str]] = {}
    for request in requests:
        name, _, text = request.rpartition("=")
        value = parse(text) if name else None
        if value is None:
            raise UsageError(f"not {kind}", where=f"{option} {request}", hint=f"write {form}")
        if found.setdefault(name, (value, text))[0] != value:
            raise UsageError(f"{name} is {found[name][1]} too", where=f"{option} {request}", hint="choose one")
    return {name: value for name, (value, _) in found.items()}
