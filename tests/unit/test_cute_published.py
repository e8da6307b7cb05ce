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
        ("(2,4):(12,1)", [[0, 1, 2, 3], [12, 13, 14, 15]]),
        ("(2,(2,2)):(1,(2,4))", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("(2,(2,2)):(4,(2,1))", [[0, 2, 1, 3], [4, 6, 5, 7]]),
        ("((2,2),2):((4,1),2)", [[0, 2], [4, 6], [1, 3], [5, 7]]),
        ("(4,2):(2,1)", [[0, 1], [2, 3], [4, 5], [6, 7]]),
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


def test_coalesce() -> None:
    assert str(cute.coalesce(L("(2,(1,6)):(1,(6,2))"))) == "12:1"
    assert str(cute.coalesce(L("(2,(1,6)):(1,(6,2))"), (1, 1))) == "(2,6):(1,2)"


@pytest.mark.parametrize(
    ("outer", "inner", "result"),
    [
        ("(6,2):(8,2)", "(4,3):(3,1)", "((2,2),3):((24,2),8)"),
        ("20:2", "(5,4):(4,1)", "(5,4):(8,2)"),
        ("(10,2):(16,4)", "(5,4):(1,5)", "(5,(2,2)):(16,(80,4))"),
        ("(3,6,2,8):(5,7,11,13)", "16:9", "(2,2,4):(21,11,13)"),
    ],
)
def test_composition(outer: str, inner: str, result: str) -> None:
    assert str(cute.composition(L(outer), L(inner))) == result


@pytest.mark.parametrize(
    ("layout", "result"),
    [
        ("4:1", "6:4"),
        ("6:4", "4:1"),
        ("(4,6):(1,4)", "1:0"),
        ("4:2", "(2,3):(1,8)"),
        ("(2,4):(1,6)", "3:2"),
        ("(2,2):(1,6)", "(3,2):(2,12)"),
    ],
)
def test_complement(layout: str, result: str) -> None:
    assert str(cute.complement(L(layout), 24)) == result
    assert str(cute.complement(L(layout), (4, 6))) == result


def test_logical_divide() -> None:
    assert str(cute.logical_divide(L("(4,2,3):(2,1,8)"), L("4:2"))) == "((2,2),(2,3)):((4,1),(2,8))"


@pytest.mark.parametrize(
    ("tiler", "result"),
    [("6:1", "((2,2),(2,3)):((4,1),(2,8))"), ("(4,2):(2,1)", "((2,2),(4,2)):((4,1),(8,2))")],
)
def test_logical_product(tiler: str, result: str) -> None:
    assert str(cute.logical_product(L("(2,2):(4,1)"), L(tiler))) == result


def test_products_of_two_modes() -> None:
    """A row-major block of 2 x 5, arranged in 3 x 4 column by column."""
    block, tiler = L("(2,5):(5,1)"), L("(3,4):(1,3)")
    blocked, raked = cute.blocked_product(block, tiler), cute.raked_product(block, tiler)
    assert str(blocked) == "(6,(5,4)):(5,(1,30))" and str(raked) == "((3,2),(4,5)):((10,5),(30,1))"
    assert str(cute.zipped_product(L("(2,5):(5,1)"), (L("3:5"), L("4:6")))[0]) == "(2,5):(5,1)"
    for i, j, a, b in np.ndindex(2, 5, 3, 4):
        assert blocked(i + 2 * a, j + 5 * b) == raked(a + 3 * i, b + 4 * j) == block(i, j) + 10 * tiler(a, b)


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
        (lambda: L("4:-1"), "not an integer"),
        (lambda: L("(4,2"), "not an integer"),
        (lambda: L("4,2"), "not an integer"),
        (lambda: L("(4,,2)"), "not an integer"),
        (lambda: L("(4 2)"), "not an integer"),
        (lambda: L(""), "not an integer"),
        (lambda: L("(" * 5000 + "1" + ")" * 5000), "not an integer"),
        (lambda: CuteLayout(4, -1), "below 0"),
        (lambda: L("(4,2)")(1, 2, 3), "has another nesting than"),
        (lambda: L("4")((1, 2)), "has another nesting than"),
        (lambda: L("4")(-1), "no integer of 0 or more"),
        (lambda: L("4")(1.5), "no integer of 0 or more"),
        (lambda: cute.complement(L("(2,2):(1,1)"), 8), "overlaps"),
        (lambda: cute.complement(L("(2,2):(1,3)"), 8), "overlaps, or its gaps"),
        (lambda: cute.left_inverse(L("(2,2):(1,0)")), "more than once"),
        (lambda: cute.composition(L("4"), (2, 2)), "has 1 modes"),
        (lambda: cute.zipped_divide(L("4"), (2, 2)), "has 1 modes"),
        (lambda: cute.composition(Swizzle(1, 0, 1), 4), "applied to a layout"),
        (lambda: Swizzle(2, 0, 1), "overlap"),
        (lambda: Swizzle.parse("Swizzle<2>"), "not a swizzle"),
    ],
)
def test_errors_are_one_line(attempt: object, expected: str) -> None:
    with pytest.raises(FormatError, match=expected) as caught:
        attempt()
    assert "\n" not in str(caught.value)
