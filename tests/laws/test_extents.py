"""Laws of symbolic extents: they evaluate to the computed numbers at all sizes, and parsing inverts printing."""

import copy
import pickle
from collections.abc import Callable, Mapping

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from layoutopt.errors import FormatError
from layoutopt.formats import Extent, as_shape, is_unknown, parse_extent, product, quoted, unquoted, volume

NAMES = ("H", "W", "?1", "'a b'")
Meaning = Callable[[Mapping[str, int]], int]


@st.composite
def computed(draw: st.DrawFn, depth: int = 3) -> tuple[Extent, Meaning]:
    """An extent, and a function that computes it from sizes with Python's integers."""
    if not depth or draw(st.integers(0, 3)) == 0:
        name = draw(st.sampled_from((*NAMES, "")))
        if name:
            return parse_extent(name), lambda sizes: sizes[name]
        number = draw(st.integers(-5, 9))
        return Extent.of(number), lambda sizes: number
    (one, f), (two, g) = draw(computed(depth - 1)), draw(computed(depth - 1))
    divisor = draw(st.integers(1, 9))
    return draw(
        st.sampled_from(
            (
                (one + two, lambda sizes: f(sizes) + g(sizes)),
                (one - two, lambda sizes: f(sizes) - g(sizes)),
                (one * two, lambda sizes: f(sizes) * g(sizes)),
                (one // divisor, lambda sizes: f(sizes) // divisor),
                (one % divisor, lambda sizes: f(sizes) % divisor),
            )
        )
    )


SIZES = st.fixed_dictionaries({name: st.integers(1, 50) for name in NAMES})


@given(computed(), SIZES)
def test_an_extent_is_the_number_that_it_says(pair: tuple[Extent, Meaning], sizes: Mapping[str, int]) -> None:
    extent, meaning = pair
    assert extent.at(sizes) == meaning(sizes)
    assert extent.names <= set(NAMES)
    assert extent.number is None or extent.number == meaning(sizes)


@given(computed(), SIZES)
def test_it_is_never_below_its_least(pair: tuple[Extent, Meaning], sizes: Mapping[str, int]) -> None:
    extent, meaning = pair
    for low in (extent.low(), extent.low({"H": sizes["H"]}, 1)):
        assert low is None or meaning(sizes) >= low


@given(computed())
def test_it_reads_back_as_it_is_written(pair: tuple[Extent, Meaning]) -> None:
    extent, _ = pair
    assert parse_extent(str(extent)) == extent
    assert Extent.of(extent.dim) == extent


@given(computed())
def test_it_is_the_product_of_its_factors(pair: tuple[Extent, Meaning]) -> None:
    extent, _ = pair
    number, factors = extent.factors
    assert product((number, *map(Extent.of_atom, factors))) == extent.dim
    assert volume((extent.dim,)) == (number, factors) or not number


@given(computed(2), computed(2), SIZES)
def test_what_was_multiplied_comes_out_of_a_quotient(
    pair: tuple[Extent, Meaning], other: tuple[Extent, Meaning], sizes: Mapping[str, int]
) -> None:
    extent, divisor = pair[0], other[0]
    low = divisor.low({}, 1)
    assume(low is not None and low > 0 and "?1" not in divisor.names)
    assert (extent * divisor // divisor).at(sizes) == extent.at(sizes)
    assert extent - extent == Extent.of(0)


def test_quotients_have_one_normal_form() -> None:
    height = parse_extent("H")

    def window(size: Extent, kernel: int, stride: int, pads: int) -> Extent:
        return (size + (pads - kernel)) // stride + 1

    assert str(window(height, 3, 1, 2)) == "H"
    quarter = window(height, 7, 4, 6)
    assert str(quarter) == "(H+3)//4"
    assert str(window(window(quarter, 3, 2, 2), 3, 2, 2)) == "(H+15)//16"
    whole = height + -(height % 7) % 7  # padded to a multiple of 7
    assert str(whole) == "7*((H+6)//7)"
    assert whole // 7 * 7 == whole
    assert -(-height // 7) == (height + 6) // 7


def test_products_keep_their_factors() -> None:
    assert volume(as_shape(("N", "H*W", 4))) == volume(as_shape((2, "W", "N*H", 2))) == (4, ("H", "N", "W"))
    assert volume(as_shape(("N*((H+3)//4)", 2))) == volume(as_shape((2, "(H+3)//4", "N")))
    assert str(product(as_shape(("N", 3, "H+1", "N")))) == "3*(H+1)*N*N"
    assert parse_extent("6*N*(H+1)") // parse_extent("2*N") == parse_extent("3*H+3")
    assert product(as_shape((0, "N"))) == 0


def test_a_symbolic_extent_of_a_shape_has_no_value() -> None:
    """Numbers are numbers however they are written, and equal extents are one key."""
    assert as_shape((3, "2+1", parse_extent("H") // parse_extent("H"), "W*H")) == (3, 3, 1, parse_extent("H*W"))
    assert int(parse_extent("7")) == 7
    with pytest.raises(FormatError, match="H is symbolic"):
        int(parse_extent("H"))
    window = (parse_extent("H") + 3) // 4
    assert pickle.loads(pickle.dumps(window)) == copy.deepcopy(window) == window == parse_extent("(H+3)//4")
    assert {window: "found"}[parse_extent("(3+H)//4")] == "found"


def test_names_of_any_kind_are_names() -> None:
    for name in ("batch", "past + 1", "it's", "", "3d", "a*b", "(x)", "input.1"):
        assert unquoted(quoted(name)) == name
        assert parse_extent(quoted(name)).names == {quoted(name)}
        assert str(parse_extent(quoted(name))) == quoted(name)
    assert unquoted("H*W") is None
    assert is_unknown("?3") and is_unknown(quoted("?x y[0]")) and not is_unknown("N") and not is_unknown(3)


@pytest.mark.parametrize("text", ["", "H*", "(H", "H)", "H**2", "H/2", "past + 1 days", "'open"])
def test_what_is_no_extent_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        parse_extent(text)
