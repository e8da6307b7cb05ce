"""Budgets: the limits that an optimised model must keep, as options of `ci` and keys of a configuration."""

from dataclasses import dataclass
from functools import partial

from layoutopt.driver.options import declared, key_of, option

BUDGETS = "Budgets"
"""The group of the options in `--help`."""

_budget = partial(option, None, group=BUDGETS, scope="budgets")


@dataclass(frozen=True, kw_only=True)
class Budgets:
    """The budgets of one model; None where there is no limit."""

    max_transposes: int | None = _budget("The most Transposes that may move bytes.", metavar="N", least=0)
    max_casts: int | None = _budget("The most layout conversions that may move bytes.", metavar="N", least=0)
    max_bytes_moved: int | None = _budget(
        "The most bytes that Transposes and layout conversions may move in one run, as in 512kB or 12MB.",
        metavar="BYTES",
        least=0,
    )
    min_speedup: float | None = _budget("The least speed-up over MODEL, by the estimate.", metavar="X", above=0)
    max_size_growth: float | None = _budget(
        "The largest size of all constants, relative to MODEL, beyond a growth of 1 MiB.", metavar="X", above=0
    )

    @property
    def limits(self) -> dict[str, float]:
        """The limits that are set, by key."""
        found = {key_of(each): getattr(self, each.name) for each, _ in declared(Budgets)}
        return {key: value for key, value in found.items() if value is not None}


def parse_bytes(text: str) -> int:
    """A number of bytes, such as 4096, 512kB or 12MB.

    Raises:
        ValueError: the text is none.
    """
    from pydantic import ByteSize, TypeAdapter

    found: int = TypeAdapter(ByteSize).validate_python(text)
    return found
