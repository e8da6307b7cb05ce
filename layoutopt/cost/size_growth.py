"""The budget for the growth of constants in bytes, and a record of its uses."""

from math import inf, isinf

from msgspec import Struct, field

from layoutopt.record import Record

SLACK = 1 << 20  # bytes of growth accepted for any model: half for constants, half for nodes
NOTABLE = 4096  # bytes; smaller requests are not recorded


class GrowthRequest(Record):
    """A request of a pass to make constants larger.

    Attributes:
        source: the pass or rewrite.
        where: the tensor or op.
        nbytes: the growth of the constants.
        seconds: the estimated gain of one run.
        is_accepted: whether the budget accepted it.
    """

    source: str
    where: str
    nbytes: int
    seconds: float
    is_accepted: bool


class Growth(Struct):
    """The growth budget of one model.

    Attributes:
        max_growth: the largest accepted ratio of the sizes of all constants after and before; no limit by default.
        source_bytes: the size of the constants of the model that was read.
        folding: the remaining bytes for results of constant folding that are larger than their operands.
        requests: the accepted and declined requests.
    """

    max_growth: float = inf
    source_bytes: int = 0
    folding: int = SLACK // 8
    requests: list[GrowthRequest] = field(default_factory=list)

    @property
    def limit(self) -> float:
        """The accepted size of all constants in bytes."""
        return inf if isinf(self.max_growth) else self.source_bytes * self.max_growth + SLACK // 2


class PassBudget(Struct):
    """The part of the growth budget that one pass may use.

    Attributes:
        growth: the budget of the model.
        source: the name of the pass.
        remaining: the bytes that are left.
    """

    growth: Growth
    source: str
    remaining: float

    def request(self, where: str, nbytes: int, seconds: float, *, is_certain: bool = False) -> bool:
        """Use bytes of the budget if enough are left and the gain is positive; 0 or fewer bytes are always accepted.

        Args:
            where: the tensor or op.
            nbytes: the growth of the constants.
            seconds: the estimated gain of one run.
            is_certain: whether enough bytes are known to be left, so that no gain is required.
        """
        is_accepted = is_certain or nbytes <= 0 or (seconds > 0 and nbytes <= self.remaining)
        if is_accepted:
            self.remaining -= nbytes
        if nbytes > NOTABLE:
            self.growth.requests.append(GrowthRequest(self.source, where, nbytes, seconds, is_accepted))
        return is_accepted
