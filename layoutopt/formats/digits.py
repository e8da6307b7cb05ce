"""Digits: the parts of a format for a given shape.

The coordinate x of an axis is a number in a mixed radix system, and each part of a format is one of its digits:

    digit(x) = x // span % extent        x = sum of digit * span over the digits of the axis
"""

from dataclasses import dataclass

from layoutopt.formats.extent import Dim, Extent


@dataclass(frozen=True, slots=True)
class Digit:
    """One physical dimension of a tensor: a part of its format, with its span and its extent.

    Attributes:
        axis: the position of the axis.
        span: the number of elements of the axis between two consecutive values of the digit.
        extent: the number of values of the digit.
    """

    axis: int
    span: int
    extent: Dim

    def joined(self, inner: "Digit") -> "Digit | None":
        """This digit and the one next to it in memory as one digit; None if `inner` does not continue this one."""
        if isinstance(self.extent, Extent) or isinstance(inner.extent, Extent):
            return None
        if self.axis != inner.axis or self.span != inner.span * inner.extent:
            return None
        return Digit(inner.axis, inner.span, self.extent * inner.extent)


__all__ = ["Digit"]
