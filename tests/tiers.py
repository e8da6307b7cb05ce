"""Parameters of tests in two tiers."""

from collections.abc import Iterable
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
