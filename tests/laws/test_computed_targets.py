"""Law of Reshapes with computed targets: another extent of the channels in x is another extent of the channels in the result.

A Reshape changes the axes around the channels of a tensor; the target contains each extent in one of four forms:
a computed extent, a number, 0 for a copied extent, -1 for the remaining elements. Sizes may be 0.
"""

from itertools import product
from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.formats import Dim, Extent, Shape
from layoutopt.formats.extent import product as product_of
from layoutopt.ir.types import DType, Op, TensorType, Value
from layoutopt.ops import facts, rule_of

CHANNELS, OTHERS = 2, 5
NAMES = ("N", "H", "W")


def reshaped(shape: tuple[int, ...], target: tuple[int, ...], allowzero: bool) -> tuple[int, ...] | None:
    """The reference result of a Reshape; None if onnxruntime refuses it."""
    if not allowzero:
        if any(dim == 0 and axis >= len(shape) for axis, dim in enumerate(target)):
            return None
        target = tuple(shape[axis] if dim == 0 else dim for axis, dim in enumerate(target))
    elif 0 in target and -1 in target:
        return None
    rest = prod(dim for dim in target if dim != -1)
    if min(target, default=0) < -1 or target.count(-1) > 1:
        return None
    if -1 in target:
        if rest == 0 or prod(shape) % rest:
            return None
        target = tuple(prod(shape) // rest if dim == -1 else dim for dim in target)
    return target if prod(target) == prod(shape) else None


def at(dims: tuple[Dim, ...], sizes: dict[str, int]) -> tuple[int, ...]:
    found = [Extent.of(dim).at(sizes) for dim in dims]
    return tuple(dim for dim in found if dim is not None)


@st.composite
def grouped(draw: st.DrawFn, factors: list[Dim]) -> list[Dim]:
    """Axes that factors are multiplied up to, in their order; some of extent 1."""
    axes: list[list[Dim]] = []
    for factor in factors:
        if not axes or draw(st.booleans()):
            axes.append([])
        axes[-1].append(factor)
    for place in sorted(draw(st.lists(st.integers(0, len(axes)), max_size=1))):
        axes.insert(place, [])
    return [product_of(axis) for axis in axes]


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[Op, int]:
    """A Reshape and the axis of the channels in x."""
    factor = st.sampled_from([*map(Extent.of_atom, NAMES), 1, CHANNELS, 3])
    before, after = draw(st.lists(factor, max_size=3)), draw(st.lists(factor, max_size=3))
    front, back = draw(grouped(before)), draw(grouped(after))
    x: Shape = (*front, CHANNELS, *back)
    y: Shape = (*draw(grouped(before)), CHANNELS, *draw(grouped(after)))
    allowzero = draw(st.booleans())
    target: list[Dim | None] = list(y)
    for axis, dim in enumerate(y):
        if not allowzero and axis < len(x) and x[axis] == dim and draw(st.booleans()):
            target[axis] = 0
    if draw(st.booleans()):
        target[draw(st.integers(0, len(y) - 1))] = -1
    source = Value("x", TensorType(DType.FLOAT32, x))
    list_of = Value("target", TensorType(DType.INT64, (len(y),)))
    list_of.elements = tuple(target)
    result = Value("y", TensorType(DType.FLOAT32, y))
    op = Op("Reshape", (source, list_of), (result,), version=18, attributes={"allowzero": int(allowzero)})
    return op, len(front)


@given(reshapes())
def test_other_channels_go_the_same_way(case: tuple[Op, int]) -> None:
    """With the edited target, a Reshape of OTHERS channels gives the same axes around them, and preserves their order."""
    op, axis = case
    rule, allowzero = rule_of(op), bool(op.integer("allowzero"))
    x, y, elements = op.inputs[0], op.outputs[0], op.elements(1)
    assert rule is not None and x is not None and y is not None and elements is not None
    assert x.shape is not None and y.shape is not None
    changed = facts(op).shape_edits(op, axis, OTHERS)
    if changed is None:
        return
    place = rule.unmerged_axis(op, axis)
    assert place is not None and y.shape[place] == CHANNELS
    numbers = changed.get(1, {})
    assert all(isinstance(elements[each], int) for each in numbers)
    known = tuple(element for element in elements if element is not None)
    for point in product(range(4), repeat=len(NAMES)):
        sizes = dict(zip(NAMES, point, strict=True))
        before, target = at(x.shape, sizes), at(known, sizes)
        result = reshaped(before, target, allowzero)
        if result is None or result[place] != CHANNELS:
            continue
        wide = (*before[:axis], OTHERS, *before[axis + 1 :])
        other = tuple(numbers.get(index, dim) for index, dim in enumerate(target))
        found = reshaped(wide, other, allowzero)
        assert found == (*result[:place], OTHERS, *result[place + 1 :]), (sizes, wide, other)
        assert np.array_equal(np.indices(wide)[axis].reshape(found), np.indices(found)[place])
