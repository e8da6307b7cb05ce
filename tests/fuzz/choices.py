"""Where the decisions come from: one number, so that an example can be made again; or hypothesis, which makes it smaller."""

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


class Refused(Exception):  # noqa: N818  -- nothing is wrong
    """There is nothing to choose from: this does not go here."""


class Choices(Protocol):
    """A source of decisions. What is simpler stands first."""

    def number(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""


class Seeded:
    """Decisions that follow from a number."""

    def __init__(self, seed: int | str) -> None:
        """Start from `seed`."""
        self._random = random.Random(str(seed))

    def number(self, low: int, high: int) -> int:
        """Any of them, equally often."""
        return self._random.randint(low, high)


class Drawn:
    """Decisions of hypothesis."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        """Take them from the function that a composite strategy is given."""
        self._draw = draw

    def number(self, low: int, high: int) -> int:
        """As hypothesis likes it."""
        return int(self._draw(_numbers(low, high)))


@lru_cache(maxsize=4096)
def _numbers(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


def pick(choices: Choices, options: Sequence[T]) -> T:
    """One of some options."""
    return options[between(choices, 0, len(options) - 1)]


def between(choices: Choices, low: int, high: int) -> int:
    """A whole number from `low` to `high`, both included.

    Raises:
        Refused: there is none.
    """
    if low > high:
        raise Refused
    return choices.number(low, high)


def weighted(choices: Choices, options: Sequence[tuple[T, int]]) -> T:
    """One of some options, each as often as the number beside it says."""
    place = choices.number(0, sum(weight for _, weight in options) - 1)
    for option, weight in options:
        place -= weight
        if place < 0:
            return option
    raise AssertionError("the weights add up")


def chance(choices: Choices, percent: int) -> bool:
    """True in so many cases of a hundred."""
    return choices.number(0, 99) >= 100 - percent


def shuffled(choices: Choices, items: Sequence[T]) -> list[T]:
    """In any order."""
    rest, found = list(items), []
    while rest:
        found.append(rest.pop(choices.number(0, len(rest) - 1)))
    return found
