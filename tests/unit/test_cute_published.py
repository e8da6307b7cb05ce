"""The examples of CuTe's documentation with its published results, and errors for invalid layouts."""

import numpy as np
import pytest

from layoutopt.errors import FormatError
from layoutopt.systems import cute
from layoutopt.systems.cute import ComposedLayout, CuteLayout, Swizzle, compatible

L = CuteLayout.parse

# media/docs/cpp/cute/01_layout.md


@pytest.mark.parametrize(
    ("layout", "table"),
    [
        ("(_2,_4):(_1,_2)", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("(2,(2,2)):(1,(2,4))", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("(2,(2,2)):(4,(2,1))", [[0, 2, 1, 3], [4, 6, 5, 7]]),
        ("((2,2),2):((4,1),2)", [[0, 2], [4, 6], [1, 3], [5, 7]]),
    ],
)
def test_print2d(layout: str, table: list[list[int]]) -> None:
    found = L(layout)
    assert [[found(i, j) for j in range(found[1].size)] for i in range(found[0].size)] == table


def test_compatible_shapes() -> None:
    assert not compatible(24, 32)
    assert compatible(24, (4, 6)) and compatible((4, 6), ((2, 2), 6)) and compatible(((2, 2), 6), ((2, 2), (3, 2)))
    assert compatible(24, ((2, 2), (3, 2))) and compatible(24, ((2, 3), 4))
    assert not compatible(((2, 3), 4), ((2, 2), (3, 2))) and not compatible((24,), 24) and not compatible((24,), (4, 6))


# media/docs/cpp/cute/02_layout_algebra.md


# inverses and swizzles


def test_swizzle() -> None:
    """Swizzle<2,0,3> on rows of 8: columns are exchanged by the number of the row."""
    layout = ComposedLayout.parse("Sw<2,0,3> o (4,8):(8,1)")
    table = layout(*np.ix_(range(4), range(8)))
    assert table.tolist()[1] == [9, 8, 11, 10, 13, 12, 15, 14]
    assert table.tolist()[2] == [18, 19, 16, 17, 22, 23, 20, 21]
    assert str(layout) == "Sw<2,0,3> o 0 o (4,8):(8,1)" and ComposedLayout.parse(str(layout)) == layout
    assert layout == cute.composition(Swizzle.parse("Swizzle<2,0,3>"), L("(4,8):(8,1)"))
    assert ComposedLayout(Swizzle(2, 0, 3), 8, L("4:1")).values().tolist() == [9, 8, 11, 10]


# what is no layout


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        (lambda: L("(4,2):(1,4,8)"), "have different nestings"),
        (lambda: L("(4,0)"), "below 1"),
        (lambda: L("(" * 5000 + "1" + ")" * 5000), "not an integer"),
        (lambda: L("4")(-1), "no integer of 0 or more"),
        (lambda: cute.complement(L("(2,2):(1,3)"), 8), "overlaps, or its gaps"),
        (lambda: cute.left_inverse(L("(2,2):(1,0)")), "more than once"),
        (lambda: cute.composition(Swizzle(1, 0, 1), 4), "applied to a layout"),
        (lambda: Swizzle(2, 0, 1), "overlap"),
    ],
)
def test_errors_are_one_line(attempt: object, expected: str) -> None:
    with pytest.raises(FormatError, match=expected) as caught:
        attempt()
    assert "\n" not in str(caught.value)
