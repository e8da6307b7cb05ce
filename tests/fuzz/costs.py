"""Cost models with random prices, for the kernels of a real target or for random formats.

With the prices of real targets, small graphs keep their formats. Random prices let the planner choose any format and cast.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from layoutopt.cost import CostModel
from layoutopt.cost_models import load_target
from layoutopt.formats import Format
from layoutopt.formats.extent import Shape
from layoutopt.ir.types import Op, Signature, Storage, Value
from layoutopt.ops import OperandFormats, rule_of
from layoutopt.ops.view import View
from layoutopt.testing.rules import sample_formats

FORMATS = 6  # preferred formats per rank
KERNELS = 3  # per op


@dataclass(frozen=True)
class RandomTarget:
    """A cost model with random prices."""

    seed: int  # of the prices
    base: str = ""  # the target whose kernels it has; empty for random formats
    cast: float = 0.6  # the largest price of a cast; that of an op is 1

    @property
    def name(self) -> str:
        """The name of the target in the stamp."""
        return f"random-{self.base or 'any'}-{self.seed}-{self.cast}"

    @property
    def dialect(self) -> str:
        """The default dialect of the real target."""
        return _load(self.base).dialect if self.base else "ops"

    def preferred_formats(self, op: Op) -> Sequence[OperandFormats]:
        """The formats of the real target's kernels, or random formats."""
        if self.base:
            return _load(self.base).preferred_formats(op)
        kernels: list[OperandFormats] = []
        for turn in range(KERNELS):
            kernel = {}
            for slot in op.slots():
                value = op.operand(slot)
                if value is None or value.shape is None or self._random("asks", op.kind, str(slot), str(turn)) < 0.5:
                    continue
                preferred = _favourites(self, value.shape)
                if preferred:
                    place = self._random("format", op.kind, str(slot), str(turn), str(value.rank))
                    kernel[slot] = preferred[int(place * len(preferred))]
            if kernel:
                kernels.append(kernel)
        return kernels

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        """A random price; view ops cost nothing."""
        rule = rule_of(op)
        if isinstance(rule, View):
            return 0.0
        return self._random(op.kind, str([value and value.type for value in op.inputs]), str(signature))

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        """A random price; 0 if no byte moves."""
        if src.satisfies(dst, value.shape):
            return 0.0
        return self.cast * self._random(str(value.type), str(src), str(dst))

    def _random(self, *key: str) -> float:
        return zlib.crc32(f"{self.seed} {key}".encode()) / 2**32


@lru_cache(maxsize=4096)
def _favourites(target: RandomTarget, shape: Shape) -> Sequence[Format]:
    """The formats of a shape that the kernels of a target may have."""
    found = sample_formats(shape, is_thorough=False)
    return sorted(found, key=lambda each: target._random("favourite", str(each)))[:FORMATS]


_LOADED: dict[str, CostModel] = {}


def _load(name: str) -> CostModel:
    if name not in _LOADED:
        _LOADED[name] = load_target(name)
    return _LOADED[name]
