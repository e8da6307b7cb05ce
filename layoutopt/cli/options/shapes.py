"""Shapes on the command line."""

from layoutopt.cli.exit_codes import UsageError


def extents_of(option: str, value: str) -> tuple[int, ...]:
    """The numbers of `1,17,5,4`, also `1x17x5x4` or `[1, 17, 5, 4]`; nothing is a scalar.

    Raises:
        UsageError: it is no such thing.
    """
    numbers = value.strip("[]() ").replace("x", ",").split(",")
    try:
        extents = tuple(int(number) for number in numbers if number.strip())
    except ValueError:
        raise UsageError("not a shape", where=f"{option} {value}", hint="write it like 1,17,5,4") from None
    if any(extent < 0 for extent in extents):
        raise UsageError("an extent is below 0", where=f"{option} {value}", hint="write it like 1,17,5,4")
    return extents
