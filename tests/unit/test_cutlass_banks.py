"""Bank conflicts: known cases, an independent model, swizzled layouts, and `layoutopt banks`."""

import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.cli import main
from layoutopt.errors import FormatError
from layoutopt.systems.cute import ComposedLayout, CuteLayout
from layoutopt.systems.cutlass import ColumnMajor, Operand, RowMajor, TensorNHWC, bank_conflicts, layout_types
from layoutopt.systems.cutlass.banks import fragment_read, ldmatrix, vector_write
from layoutopt.systems.cutlass.tensor_op import TensorOpLayout, TensorOpMultiplicand

LANES = np.arange(32)
SIZES = ((4, 256), (4, 64), (8, 128), (8, 32), (16, 64), (16, 32), (16, 16), (32, 32), (32, 8), (64, 16))
OPERANDS = [
    kind[size] if kind.parameters else kind
    for kind in layout_types()
    if issubclass(kind, TensorOpLayout)
    for size in (SIZES if kind.parameters else SIZES[:1])
]


@pytest.mark.parametrize(
    ("addresses", "width", "wavefronts"),
    [
        (LANES * 4, 4, (1,)),
        (LANES * 0, 4, (1,)),  # one word for all
        (LANES * 8, 4, (2,)),
        (LANES * 128, 4, (32,)),
        (LANES * 132, 4, (1,)),  # a column of 33 words
        (LANES % 2 * 128, 4, (2,)),
        (LANES, 1, (1,)),
        (LANES * 2, 2, (1,)),
        (LANES * 128 + LANES % 4, 1, (32,)),
        (LANES * 8, 8, (1, 1)),
        (LANES * 16, 16, (1, 1, 1, 1)),
        (LANES * 128, 16, (8, 8, 8, 8)),
        (LANES * 144, 16, (1, 1, 1, 1)),
        (LANES[:8] * 16, 16, (1,)),
        (np.array([0, 128, 256]), 4, (3,)),
    ],
)
def test_known_accesses(addresses: np.ndarray, width: int, wavefronts: tuple[int, ...]) -> None:
    found = bank_conflicts(addresses, width)
    assert found.wavefronts == wavefronts and found.conflicts == sum(wavefronts) - len(wavefronts)


@given(st.sampled_from((1, 2, 4, 8, 16)), st.lists(st.integers(0, 200), min_size=1, max_size=32))
def test_passes_are_counted_byte_by_byte(width: int, places: list[int]) -> None:
    expected = []
    threads = 32 if width <= 4 else 128 // width
    for first in range(0, len(places), threads):
        banks: dict[int, set[int]] = {}
        for place in places[first : first + threads]:
            for byte in range(place * width, (place + 1) * width):
                banks.setdefault(byte // 4 % 32, set()).add(byte // 4)
        expected.append(max(map(len, banks.values())))
    assert bank_conflicts(np.array(places) * width, width).wavefronts == tuple(expected)


@pytest.mark.parametrize("kind", OPERANDS, ids=lambda kind: kind.__name__)
def test_swizzled_operands_have_no_conflicts(kind: type[TensorOpLayout]) -> None:
    """CUTLASS's own writes and reads of swizzled operands are free of conflicts at every position of a tile."""
    extent = tuple(2 * size for size in kind.tile)
    operand = Operand.of(kind.packed(extent), extent)
    assert operand.conflicts(operand.write).conflicts == 0
    assert operand.conflicts(operand.read).conflicts == 0
    if issubclass(kind, TensorOpMultiplicand) and not kind.fragment_bytes:
        vectors = range(0, extent[kind.contiguous], operand.read.elements)
        for vector in vectors:
            there = ldmatrix(kind.element_size)
            moved = type(there)(there.name, there.contiguous + vector, there.strided, there.width, there.elements)
            assert operand.conflicts(moved).conflicts == 0


@pytest.mark.parametrize(("kind", "extent"), [(RowMajor, (32, 64)), (ColumnMajor, (64, 32))])
def test_plain_operands_have_them_unless_they_are_padded(kind: type, extent: tuple[int, int]) -> None:
    plain, padded = Operand.of(kind(64), extent), Operand.of(kind(72), extent)
    assert plain.conflicts(plain.read).wavefronts == (8, 8, 8, 8)
    assert plain.conflicts(plain.write).conflicts == padded.conflicts(padded.read).conflicts == 0


def test_the_swizzle_of_cute_for_half_precision() -> None:
    layout = CuteLayout((8, 64), (64, 1))
    plain, swizzled = (
        Operand.plain(layout, (8, 64), 1, 16),
        Operand.plain(ComposedLayout.parse(f"Sw<3,3,3> o {layout}"), (8, 64), 1, 16),
    )
    access = fragment_read(4)
    assert plain.conflicts(plain.write).conflicts == swizzled.conflicts(swizzled.write).conflicts == 0
    eight = type(access)("rows", LANES[:8] * 0, LANES[:8], 16, 8)
    assert plain.conflicts(eight).wavefronts == (8,) and swizzled.conflicts(eight).wavefronts == (1,)


@pytest.mark.parametrize("kind", OPERANDS, ids=lambda kind: kind.__name__)
def test_lines_show_every_element_once(kind: type[TensorOpLayout]) -> None:
    extent = tuple(3 * size for size in kind.tile)
    layout = kind.packed(extent)
    operand = Operand.of(layout, extent)
    per_cell = operand.cell * 8 // operand.element_size
    for number, (c, s) in enumerate(operand.lines().reshape(-1, 2)):
        pair = (c, s) if kind.contiguous == 0 else (s, c)
        assert layout(pair) == number * per_cell
    assert number + 1 == layout.size(extent) // per_cell


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        (lambda: bank_conflicts([2], 4), "no multiple of 4 bytes"),
        (lambda: bank_conflicts([-4], 4), "no multiple of 4 bytes"),
        (lambda: bank_conflicts([0], 3), "3 bytes a thread"),
        (lambda: bank_conflicts(np.arange(33), 1), r"shape \(33,\)"),
        (lambda: Operand.of(TensorNHWC(1, 1, 1), (1, 1, 1, 1)), "has 4 axes"),
        (lambda: Operand.of(RowMajor(65), (8, 65)).conflicts(ldmatrix(16)), "no multiple of 16 bytes"),
        (lambda: Operand.of(RowMajor(33), (8, 33), 4).conflicts(ldmatrix(4)), "adjacent elements"),
        (
            lambda: Operand.plain(ColumnMajor(8), (8, 8), 1, 16).conflicts(vector_write(16, 8)),
            "no 8 adjacent elements",
        ),
    ],
)
def test_accesses_that_cannot_be(attempt: Callable[[], object], expected: str) -> None:
    with pytest.raises(FormatError, match=expected):
        attempt()


# --- layoutopt banks ---------------------------------------------------------------------------------------


def output_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(("banks", *arguments)) == 0
    return capsys.readouterr().out


def test_banks(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Sw<3,3,3> o (8,64):(64,1)" in output_of(capsys, "--help")
    swizzled = output_of(capsys, "TensorOpMultiplicandCrosswise<16,32>")
    assert "TensorOpMultiplicandCrosswise<16,32>(32)  32 x 8 elements of 16 bits" in swizzled
    assert swizzled.count("no conflicts") == 2
    assert "     1    2,8  [2,0]   2,24   2,16    3,8  [3,0]   3,24   3,16\n" in swizzled
    plain = output_of(capsys, "RowMajor", "--extent", "32,64")
    assert "28 conflicts  16 bytes per thread, 4 phases in 32 wavefronts" in plain and "…\n" in plain
    assert output_of(capsys, "RowMajor", "--stride", "72").count("no conflicts") == 2
    assert output_of(capsys, "Sw<3,3,3> o (8,64):(64,1)").count("no conflicts") == 2
    assert "[0,8]" in output_of(capsys, "TensorOpMultiplicandCongruous64b")
    assert "1 phase in 1 wavefront\n" in output_of(capsys, "TensorOpMultiplicandCongruous<32,32>")
    for name in ("ColumnMajor", "PitchLinear", "(64,8):(1,64)"):
        assert "28 conflicts" in output_of(capsys, name, "--dtype", "bfloat16")


def test_banks_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads(output_of(capsys, "RowMajor", "--json"))
    assert record["extent"] == [8, 64] and record["cell_bytes"] == 16
    assert [access["conflicts"] for access in record["accesses"]] == [0, 28]
    assert record["lines"][1][:2] == [[0, 1], [8, 1]]


@pytest.mark.parametrize(
    ("command", "code", "expected"),
    [
        ("RowMayor", 5, "did you mean RowMajor"),
        ("TensorNHWC", 5, "choose a layout of matrices"),
        ("TensorNHWC --extent 1,2,3,4", 5, "choose a layout of matrices"),
        ("RowMajorInterleaved", 5, "write RowMajorInterleaved"),
        ("RowMajorInterleaved<2>", 5, "adjacent elements"),
        ("RowMajor --stride 65", 5, "no multiple of 16 bytes"),
        ("RowMajor --extent 8", 5, "not 2 integers"),
        ("RowMajor --extent 8,b", 2, "not a shape"),
        ("RowMajor --dtype floaty", 5, "not an element type"),
        ("(8,64):(64,1) --stride 3", 5, "takes no --extent or --stride"),
        ("(8,8,8):(64,8,1)", 5, "two modes"),
        ("(8,8):(64", 5, "not an integer or a tuple"),
        ("Sw<3,3,1>:(8,64)", 5, "not a swizzle and a layout"),
    ],
)
def test_banks_that_cannot_be(capsys: pytest.CaptureFixture[str], command: str, code: int, expected: str) -> None:
    assert main(("banks", *command.split(" "))) == code
    err = capsys.readouterr().err
    assert expected in err and err.count("\n") == 1 and err.startswith("error: ")
