"""Random float32 operands of timed kernels.

The numbers are small, so that no result is infinite or denormal, and not zero, because some kernels skip zeros.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

import numpy as np

from layoutopt.ir.types import Array, DType, Value


def small_numbers(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Random float32 elements, whose variance is 1 divided by the number of elements per index of the first axis."""
    deviation = np.float32(max(prod(shape[1:]), 1) ** -0.5)
    numbers: Array = generator.standard_normal(shape, dtype=np.float32) * deviation
    return numbers


def random_inputs(generator: np.random.Generator, inputs: Iterable[Value]) -> dict[str, Array]:
    """Random arrays for the inputs of a graph, by name.

    Args:
        generator: of random numbers.
        inputs: the inputs, with known extents.

    Raises:
        TypeError: an input is not float32.
    """
    found: dict[str, Array] = {}
    for value in inputs:
        if value.dtype is not DType.FLOAT32:
            raise TypeError(f"{value.name} is not float32")
        found[value.name] = small_numbers(generator, tuple(map(int, value.shape or ())))
    return found


@dataclass(frozen=True, slots=True)
class RandomConstant:
    """A lazy float32 constant of small random numbers."""

    shape: tuple[int, ...]
    seed: int = 0

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return 4 * prod(self.shape)

    def numpy(self) -> Array:
        """The elements."""
        return small_numbers(np.random.default_rng(self.seed), self.shape)


__all__ = ["RandomConstant", "random_inputs", "small_numbers"]
