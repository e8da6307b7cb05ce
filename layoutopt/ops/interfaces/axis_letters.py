"""Letters of the axes of an op's operands, where the definition of the op gives its axes roles.

N batch   C channels   D H W spatial axes        convolution, pooling, normalisation per channel
N batch   H heads      S sequence     D head     attention
N batch   T steps      D directions   C features recurrent networks
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from layoutopt.ir.types import Op, Slot, Value

_FEATURE_MAPS = {3: "NCW", 4: "NCHW", 5: "NCDHW"}


class AxisLetters(ABC):
    """An op that defines the roles of its operands' axes."""

    @abstractmethod
    def axis_letters(self, op: Op) -> Mapping[Slot, str]:
        """The letters of the axes, in logical order, of the operands whose axes have roles."""


def feature_map_letters(op: Op, *slots: Slot, is_channels_last: bool = False) -> dict[Slot, str]:
    """The letters of feature maps at some slots: (N, C, *spatial), or (N, *spatial, C).

    Operands without one, two or three spatial axes are absent.
    """
    found = {}
    for slot in slots:
        letters = _FEATURE_MAPS.get(_rank(op, slot), "")
        if letters:
            found[slot] = f"N{letters[2:]}C" if is_channels_last else letters
    return found


def letters_by_rank(op: Op, slots: Mapping[Slot, tuple[str, ...]]) -> dict[Slot, str]:
    """For every slot that of the given letters whose number is the rank of the operand; slots without such are absent."""
    return {slot: letters for slot, each in slots.items() for letters in each if len(letters) == _rank(op, slot)}


def _rank(op: Op, slot: Slot) -> int:
    values: tuple[Value | None, ...] = op.inputs if slot.side == "in" else op.outputs
    value = values[slot.index] if slot.index < len(values) else None
    return -1 if value is None or value.rank is None else value.rank


__all__ = ["AxisLetters", "feature_map_letters", "letters_by_rank"]
