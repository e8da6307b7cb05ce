"""Padding transfer functions: the padding state of the results by the padding state of the inputs.

`LayoutRule.transfer_padding` applies the function; `layoutopt ops` prints it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from layoutopt.ir.types import Padding


@dataclass(frozen=True, slots=True)
class PaddingTransfer:
    """The padding state of a result by the largest padding state of the inputs.

    Attributes:
        zero, finite, any: the state of the result for inputs of state ZERO, FINITE and ANY; None where the op refuses them.
        text: the cases in which the result has another state, in words.
    """

    zero: Padding | None
    finite: Padding | None
    any: Padding | None
    text: str = ""

    def __getitem__(self, state: Padding) -> Padding | None:
        return (self.zero, self.finite, self.any)[state]

    def __str__(self) -> str:
        groups: dict[Padding | None, list[Padding]] = {}
        for state in Padding:
            groups.setdefault(self[state], []).append(state)
        refused = groups.pop(None, [])
        if not groups:
            return "no padding"
        if all(self[state] is state for state in Padding):
            cases = ["kept"]
        else:
            cases = [f"{_listed(states)} → {result}" for result, states in groups.items()]
        return "; ".join(filter(None, (", ".join(cases), f"{_listed(refused)} refused" if refused else "", self.text)))


def _listed(states: Sequence[Padding]) -> str:
    return "all" if len(states) == len(Padding) else " and ".join(map(str, states))


PADDING_KEPT = PaddingTransfer(Padding.ZERO, Padding.FINITE, Padding.ANY)
PADDING_REFUSED = PaddingTransfer(None, None, None)

__all__ = ["PADDING_KEPT", "PADDING_REFUSED", "PaddingTransfer"]
