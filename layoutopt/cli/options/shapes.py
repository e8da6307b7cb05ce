"""Shapes on the command line."""

from layoutopt.cli.exit_codes import UsageError


def parse_shape(option: str, value: str) -> tuple[int, ...]:
    """Parse a shape: `1,17,5,4`, `1x17x5x4` or `[1, 17, 5, 4]`; the empty text is a scalar.

    Raises:
        UsageError: the text is not a shape.
    """
    numbers = value.strip("[]() ").replace("x", ",").split(",")
    try:
        extents = tuple(int(number) for number in numbers if number.strip())
    except ValueError:
        raise UsageError("not a shape", where=f"{option} {value}", hint="write it like 1,17,5,4") from None
    if any(extent < 0 for extent in extents):
        raise UsageError("an extent is below 0", where=f"{option} {value}", hint="write it like 1,17,5,4")
    return extents
