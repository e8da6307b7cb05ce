"""Formats by name, known conversions and reshapes, and error messages."""

import numpy as np
import pytest

from layoutopt.errors import FormatError
from layoutopt.formats import (
    Conversion,
    Entry,
    Format,
    Layout,
    Part,
    Shape,
    as_shape,
    entries,
    fractal_nz,
    lookup,
    pack,
    propagate_reshape,
    unpack,
)

PARSE = Format.parse


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: f"{entry.system}-{entry.name}")
def test_every_entry_is_found_and_holds_any_tensor(entry: Entry) -> None:
    fmt = lookup(entry.name, "int8")
    assert fmt == lookup(entry.name, "int8", entry.axes) == entry.format("int8")
    assert Format.parse(fmt.name(entry.axes), entry.axes) == fmt
    assert entry.system in entry.source
    array = np.arange(1, 1 + 3**fmt.rank).reshape((3,) * fmt.rank)
    assert np.array_equal(unpack(pack(array, fmt), fmt, array.shape), array)


@pytest.mark.parametrize(
    ("name", "spelling"),
    [
        ("Channels_Last", "NHWC"),
        ("aBcd16b", "NCHW16c"),
        ("OIhw4i16o4i", "OIHW4i16o4i"),
        ("gOIhw16i16o", "GOIHW16i16o"),
        ("TensorNCxHWx<16>", "NCHW16c"),
        ("NZ", "NM16m32n"),
        ("nZ", "MN16n32m"),
    ],
)
def test_names_of_many_systems(name: str, spelling: str) -> None:
    assert lookup(name, "int8") == PARSE(spelling)


@pytest.mark.parametrize(
    ("text", "axes", "parts"),
    [("NHWC", None, (0, 2, 3, 1)), ("L", None, (0,)), ("BSD", "BSD", (0, 1, 2)), ("scalar", None, ())],
)
def test_letters_are_only_for_people(text: str, axes: str | None, parts: tuple[int, ...]) -> None:
    assert PARSE(text, axes) == Format.plain(parts)


def kinds(src: str, dst: str, shape: Shape) -> str:
    conversion = Conversion(PARSE(src), PARSE(dst))
    return " ".join(type(step).__name__ for step in conversion.steps(shape))


@pytest.mark.parametrize(
    ("src", "dst", "shape", "expected"),
    [
        ("NCHW", "NHWC", (2, 3, 1, 1), "Reshape"),
        ("NCHW", "NCHW16c", (2, 32, 4, 5), "Reshape Transpose"),
        ("NCHW", "NCHW16c", ("N", 17, "H", "W"), "Pad Reshape Transpose"),
        ("NCHW16c", "NCHW", (2, 32, 4, 5), "Transpose Reshape"),
        ("NCHW16c", "NHWC", ("N", 17, "H", "W"), "Transpose Reshape Slice"),
        ("NCHW16c", "NCHW8c", (2, 32, 4, 5), "Reshape Transpose Reshape"),
        ("NCHW8c", "NCHW16c", (2, 8, 4, 5), "Reshape Pad Reshape"),
        ("NCHW16c", "NHCW16c", ("N", 17, "H", "W"), "Transpose"),
        ("NCHW12c", "NCHW16c", (2, 48, 4, 5), "Transpose Reshape Transpose"),
        ("NCHW16c", "NCHW8c", (2, 17, 4, 5), "Transpose Reshape Slice Pad Reshape Transpose"),
    ],
)
def test_chains_are_short(src: str, dst: str, shape: tuple[int | str, ...], expected: str) -> None:
    assert kinds(src, dst, as_shape(shape)) == expected


@pytest.mark.parametrize(
    ("fmt", "before", "after", "expected"),
    [
        ("NCHW16c", (2, 64, 5, 5), (2, 4, 16, 5, 5), "ABDEC"),  # channel shuffle: split into groups
        ("NHWC", ("N", 64, "H", "W"), ("N", 64, "H*W"), "NWC"),
        ("NHWC", ("N", 64, 1, 1), ("N", 64), "MN"),
        ("NHWC", ("N", 64, 7, 7), ("N", 3136), "M49nN"),  # the minor digit first
        ("NHWC", ("N", 64, "H", "W"), ("N", "K"), None),  # whose extent has to be known
        ("NCHW16c", ("N", 17, 8, 4), ("N", 17, 32), "NCW16c"),  # padding elements move with their axis
        ("NCHW16c", (1, 17, 8, 4), (1, 17 * 32), None),  # and cannot be merged into another
        ("ACBD", ("B", 12, "S", 64), ("B", 768, "S"), None),  # rows of heads, cut across a symbolic axis
        ("NWC", ("B", "S", 768), ("B", "S", 12, 64), "ACDB"),
        ("NM", (6, 5), ("one", 6, 5), "NWC"),  # a symbol that can only be 1
        ("ADECB", (2, 4, 16, 5, 5), (2, 64, 5, 5), "NHW16cC"),  # channel shuffle: groups innermost
        ("CBAD", (2, 3, 5, 7), (30, 7), "5_1m3_5mMN"),  # all digits the other way round
        ("NWC", (4, 6, 5), (8, 5, 3), None),  # 6 and 5 against 5 and 3: no common cuts
        ("CHWN", (5, "N", 1, 4), (5, "N", 1), None),  # a Reshape at no size
    ],
)
def test_carried_formats(
    fmt: str, before: tuple[int | str, ...], after: tuple[int | str, ...], expected: str | None
) -> None:
    carried = propagate_reshape(PARSE(fmt), as_shape(before), as_shape(after))
    assert carried == (PARSE(expected) if expected else None)


def refusals() -> dict[str, object]:
    nchw16c, matrix = PARSE("NCHW16c"), Format.canonical(2)
    return {
        "unknown letters": lambda: PARSE("NCXW"),
        "no grammar": lambda: PARSE("N-C"),
        "axis missing": lambda: PARSE("NHW", "NCHW"),
        "blocks that overlap": lambda: Format((Part(0), Part(0, 4, 2), Part(0, 4))),
        "block of no axis": lambda: Format((Part(0), Part(1, 4))),
        "wrong rank": lambda: nchw16c.physical_shape((1, 2, 3)),
        "symbolic block": lambda: nchw16c.physical_shape(as_shape((1, "C", 3, 3))),
        "no permutation": lambda: matrix.propagate_transpose((0, 0)),
        "unknown name": lambda: lookup("NCHWC5"),
        "no dtype": lambda: lookup("NC1HWC0"),
        "no matrix": lambda: fractal_nz(1),
        "wrong memory": lambda: Conversion(matrix, PARSE("NM")).apply(np.zeros((3, 2)), (2, 3)),
        "elements lost": lambda: propagate_reshape(matrix, (2, 3), (7,)),
        "outside": lambda: Layout(matrix, (2, 3)).offset(2, 0),
    }


@pytest.mark.parametrize("case", refusals())
def test_errors_are_one_line(case: str) -> None:
    with pytest.raises(FormatError) as refusal:
        refusals()[case]()
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 160


def test_a_near_miss_is_named() -> None:
    with pytest.raises(FormatError, match=r"did you mean FRACTAL_NZ\?"):
        lookup("FRACTL_NZ")
