"""The array operations that a conversion consists of: Pad, Reshape, Transpose, Slice.

Operands are physical arrays with one axis per part of a format. `before` and `after` are the shapes of the operand and
the result; extents that no step changes may be symbolic.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from layoutopt.formats.extent import Dim
from layoutopt.formats.pack import Array, resize
from layoutopt.formats.shapes import Shape, static_shape


@dataclass(frozen=True, slots=True)
class Pad:
    """Append `pads[i]` zeros at the end of axis i."""

    before: Shape
    after: Shape
    pads: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reshape:
    """Give the same elements in the same order another shape."""

    before: Shape
    after: Shape


@dataclass(frozen=True, slots=True)
class Transpose:
    """Permute the axes: axis i of the result is axis `perm[i]` of the operand."""

    before: Shape
    after: Shape
    perm: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """Keep the first `sizes[i]` elements of axis i."""

    before: Shape
    after: Shape
    sizes: Shape


Step = Pad | Reshape | Transpose | Slice
"""One array operation on physical arrays."""


def run(step: Step, array: Array) -> Array:
    """The result of one step on an array of shape `step.before`, without symbolic extents."""
    match step:
        case Transpose():
            return array.transpose(step.perm)
        case Reshape():
            return array.reshape(static_shape(step.after))
        case _:
            return resize(array, static_shape(step.after))


class StepSequence:
    """A sequence of steps under construction, without identities and with neighbours of one kind merged."""

    def __init__(self, shape: Shape, steps: Iterable[Step] = ()) -> None:
        """Begin with an array of this shape, and append `steps`."""
        self.shape = shape
        self._steps: list[Step] = []
        for step in steps:
            self._append(step)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps so far."""
        return tuple(self._steps)

    def reshape(self, shape: Shape) -> None:
        """Append a Reshape."""
        self._append(Reshape(self.shape, shape))

    def transpose(self, perm: tuple[int, ...]) -> None:
        """Append a Transpose, unless it is the identity."""
        if perm != tuple(range(len(perm))):
            self._append(Transpose(self.shape, tuple(self.shape[axis] for axis in perm), perm))

    def resize(self, shape: Shape, kept: Shape) -> None:
        """Append a Slice of the axes that change to the extents `kept`, and a Pad with zeros to `shape`."""
        changes = zip(self.shape, shape, kept, strict=True)
        cut = tuple(old if old == new else keep for old, new, keep in changes)
        self._append(Slice(self.shape, cut, cut))
        self._append(Pad(cut, shape, tuple(map(_growth, cut, shape))))

    def _append(self, step: Step) -> None:
        if self._steps and (joint := _joint(self._steps[-1], step)):
            self._steps.pop()
            step = joint
        if step.before != step.after or isinstance(step, Transpose):
            self._steps.append(step)
        self.shape = step.after


def _joint(first: Step, second: Step) -> Step | None:
    """Two steps of one kind as one step; None if they are of different kinds."""
    match first, second:
        case Reshape(), Reshape():
            return Reshape(first.before, second.after)
        case Slice(), Slice():
            return Slice(first.before, second.after, second.sizes)
        case Pad(), Pad():
            return Pad(first.before, second.after, tuple(map(sum, zip(first.pads, second.pads, strict=True))))
        case _:
            return None


def _growth(old: Dim, new: Dim) -> int:
    return new - old if isinstance(new, int) and isinstance(old, int) else 0
