"""What becomes of lanes, for tables that people read: what those of a result hold, by what those of the inputs do.

A rule says more than that, for every op and signature; a test holds the two together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from layoutopt.ir.types import Lanes


@dataclass(frozen=True, slots=True)
class PaddingTransfer:
    """The lane state of a result, where the lanes of all inputs are zero, finite or anything.

    Attributes:
        zero, finite, any: by the state of the inputs; None where it is refused.
        text: where it is another one.
    """

    zero: Lanes | None
    finite: Lanes | None
    any: Lanes | None
    text: str = ""

    def __getitem__(self, state: Lanes) -> Lanes | None:
        return (self.zero, self.finite, self.any)[state]

    def __str__(self) -> str:
        groups: dict[Lanes | None, list[Lanes]] = {}
        for state in Lanes:
            groups.setdefault(self[state], []).append(state)
        refused = groups.pop(None, [])
        if not groups:
            return "no lanes"
        if all(self[state] is state for state in Lanes):
            said = ["kept"]
        else:
            said = [f"{_listed(states)} → {result}" for result, states in groups.items()]
        return "; ".join(filter(None, (", ".join(said), f"{_listed(refused)} refused" if refused else "", self.text)))


def _listed(states: Sequence[Lanes]) -> str:
    return "all" if len(states) == len(Lanes) else " and ".join(map(str, states))


PADDING_KEPT = PaddingTransfer(Lanes.ZERO, Lanes.FINITE, Lanes.ANY)
PADDING_REFUSED = PaddingTransfer(None, None, None)

__all__ = ["PADDING_KEPT", "PADDING_REFUSED", "PaddingTransfer"]
