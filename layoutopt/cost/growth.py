"""The ledger of file size: how many bytes constants may grow by, and what they are spent on."""

from dataclasses import dataclass, field
from math import inf, isinf

MAX_GROWTH = 2.2
SLACK = 1 << 20  # bytes that any model may grow by: half of them for constants, half for nodes
NOTABLE = 4096  # bytes; smaller purchases are not recorded


@dataclass(frozen=True, slots=True)
class Purchase:
    """Growth that was bought or declined.

    Attributes:
        source: the pass or rewrite that asked for it.
        where: the tensor or op.
        nbytes: how much larger the constants become.
        seconds: the estimated gain of one run.
        is_bought: whether it was bought.
    """

    source: str
    where: str
    nbytes: int
    seconds: float
    is_bought: bool


@dataclass(slots=True)
class Growth:
    """The budget of one model.

    Attributes:
        max_growth: the largest permitted ratio of the sizes of all constants after and before; no limit by default.
        source_bytes: the size of the constants of the model that was read.
        folding: the bytes that are left for results of constant folding that are larger than what they replace.
        purchases: what was bought and declined.
    """

    max_growth: float = inf
    source_bytes: int = 0
    folding: int = SLACK // 8
    purchases: list[Purchase] = field(default_factory=list)

    @property
    def limit(self) -> float:
        """The permitted size of all constants in bytes."""
        return inf if isinf(self.max_growth) else self.source_bytes * self.max_growth + SLACK // 2

    def record(self, source: str, where: str, nbytes: int, seconds: float, *, is_bought: bool) -> None:
        """Note a decision."""
        self.purchases.append(Purchase(source, where, nbytes, seconds, is_bought))


@dataclass(slots=True)
class Account:
    """What one pass may spend.

    Attributes:
        growth: the ledger.
        source: the name of the pass.
        remaining: bytes.
    """

    growth: Growth
    source: str
    remaining: float

    def buy(self, where: str, nbytes: int, seconds: float) -> bool:
        """Spend bytes, if there are as many and the gain is positive. What frees bytes or costs nothing is always bought."""
        is_bought = nbytes <= 0 or (seconds > 0 and nbytes <= self.remaining)
        if is_bought:
            self.remaining -= nbytes
        if nbytes > NOTABLE:
            self.growth.record(self.source, where, nbytes, seconds, is_bought=is_bought)
        return is_bought
