"""Targets of which nothing can be expected: kernels of a real one or any formats at all, at random prices.

The prices of real targets leave small graphs as they are. Here every format has its chance, and every cast.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from layoutopt.cost import CostModel
from layoutopt.cost_models import load_target
from layoutopt.ir.types import Op, Signature, Storage, Value
from layoutopt.ops import OperandFormats, rule_of
from layoutopt.ops.view import View
from layoutopt.testing.forced import formats

FORMATS = 6  # a target has so many favourites per rank
WISHES = 3  # per op


@dataclass(frozen=True)
class RandomTarget:
    """A target at random prices.

    Attributes:
        seed: of the prices.
        base: the target whose kernels it has; any formats if there is none.
        cast: how dear casts are; an op costs up to 1.
    """

    seed: int
    base: str = ""
    cast: float = 0.6

    @property
    def name(self) -> str:
        """What the stamp says."""
        return f"random-{self.base or 'any'}-{self.seed}-{self.cast}"

    @property
    def dialect(self) -> str:
        """That of the real target."""
        return _load(self.base).dialect if self.base else "ops"

    def preferred_formats(self, op: Op) -> Sequence[OperandFormats]:
        """Those of the real target, or a few random wishes."""
        if self.base:
            return _load(self.base).preferred_formats(op)
        wishes: list[OperandFormats] = []
        for turn in range(WISHES):
            wish = {}
            for slot in op.slots():
                value = op.operand(slot)
                if value is None or value.shape is None or self._random("asks", op.kind, str(slot), str(turn)) < 0.5:
                    continue
                found = formats(value.shape, thorough=False)
                if found:
                    favourites = sorted(found, key=lambda each: self._random("favourite", str(each)))[:FORMATS]
                    place = self._random("format", op.kind, str(slot), str(turn), str(value.rank))
                    wish[slot] = favourites[int(place * len(favourites))]
            if wish:
                wishes.append(wish)
        return wishes

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        """Any number; renames are free."""
        rule = rule_of(op)
        if isinstance(rule, View):
            return 0.0
        return self._random(op.kind, str([value and value.type for value in op.inputs]), str(signature))

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        """Any number, none where no byte moves."""
        assert value.shape is not None
        if src.format.key(value.shape) == dst.format.key(value.shape) and src.lanes <= dst.lanes:
            return 0.0
        return self.cast * self._random(str(value.type), str(src), str(dst))

    def _random(self, *key: str) -> float:
        return zlib.crc32(f"{self.seed} {key}".encode()) / 2**32


_LOADED: dict[str, CostModel] = {}


def _load(name: str) -> CostModel:
    if name not in _LOADED:
        _LOADED[name] = load_target(name)
    return _LOADED[name]
