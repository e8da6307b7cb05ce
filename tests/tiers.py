"""Parameters of tests in two tiers."""

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest


def tiered(values: Iterable[Any], num_quick: int) -> list[Any]:
    """The parameters of a test: the first `num_quick` values, and the others in the thorough tier only."""
    return [
        value
        if number < num_quick
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.thorough)
        for number, value in enumerate(values)
    ]


def quick_first(quick: Iterable[Any], every: Iterable[Any]) -> list[Any]:
    """The parameters of a test: those of the quick tier, and all others in the thorough tier only."""
    first = list(quick)
    return tiered([*first, *(each for each in every if each not in first)], len(first))


def covering(*axes: Iterable[Any]) -> list[Any]:
    """The parameters of a test over a product: each value in the quick tier, all combinations in the thorough one."""
    lists = [list(axis) for axis in axes]
    count = max(map(len, lists))
    quick = [tuple(axis[(index + index // len(axis)) % len(axis)] for axis in lists) for index in range(count)]
    return quick_first(quick, product(*lists))
