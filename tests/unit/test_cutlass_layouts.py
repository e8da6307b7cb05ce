"""The layouts of CUTLASS at every index: against its own headers, against numpy, and against the laws of the concept."""

import math
import pickle
import zlib
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from layoutopt.errors import FormatError
from layoutopt.formats import entries, lookup
from layoutopt.systems import cute
from layoutopt.systems.cutlass import (
    ColumnMajorInterleaved,
    LayoutConcept,
    RowMajor,
    RowMajorInterleaved,
    TensorNCxHWx,
    TensorNHWC,
    TensorOpMultiplicandCrosswise,
    layout_type,
    layout_types,
)

SAMPLES = {
    1: ((2,), (4,), (32,)),
    2: ((4, 64), (8, 32), (16, 32), (16, 64), (16, 16), (16, 8), (32, 8), (32, 32), (64, 16)),
}
LAYOUTS = [
    kind[arguments] if arguments else kind
    for kind in layout_types()
    for arguments in (SAMPLES[len(kind.parameters)] if kind.parameters else ((),))
]
EXTENTS = {
    2: ((1, 1), (5, 7), (32, 9), (33, 65)),
    4: ((1, 1, 1, 1), (2, 3, 5, 7), (3, 2, 2, 33)),
    5: ((1, 1, 1, 1, 1), (2, 3, 2, 5, 3)),
}


def every(extent: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    return np.ix_(*map(np.arange, extent))


# --- against the headers -----------------------------------------------------------------------------------


def published(name: str) -> list[tuple[str, tuple[int, ...], tuple[int, ...], str]]:
    lines = (Path(__file__).parent / name).read_text().splitlines()
    cells = ([cell.strip() for cell in line.split("|")] for line in lines if not line.startswith("#"))
    return [(kind, numbers(stride), numbers(extent), result) for kind, stride, extent, result in cells]


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


OFFSETS, CAPACITIES = published("cutlass_offsets.txt"), published("cutlass_capacities.txt")


def test_offsets_are_those_of_the_headers() -> None:
    for name, stride, extent, crc in OFFSETS:
        offsets = layout_type(name)(*stride)(every(extent))
        assert f"{zlib.crc32(offsets.astype('<i8').tobytes()):08x}" == crc, (name, stride, extent)


def test_packed_strides_and_capacities_are_those_of_the_headers() -> None:
    """For whole blocks and tiles; see the modules for where the headers presume them."""
    for name, stride, extent, capacity in CAPACITIES:
        layout = layout_type(name).packed(extent)
        assert (layout.stride, layout.capacity(extent)) == (stride, int(capacity)), (name, extent)


@pytest.mark.parametrize("headers", [OFFSETS, CAPACITIES])
def test_every_layout_was_compared(headers: list[tuple]) -> None:
    templates = {name.partition("<")[0] for name, *_ in headers}
    missing = {kind.__name__ for kind in layout_types()} - templates
    assert missing == {"TensorOpMultiplicand"}  # the base of Crosswise, which adds nothing


# --- against numpy -----------------------------------------------------------------------------------------


def blocks(count: int, k: int) -> int:
    return -(-count // k)


@pytest.mark.parametrize("name", [entry.name for entry in entries() if entry.system == "CUTLASS"])
def test_the_catalogue_of_formats_says_the_same(name: str) -> None:
    """Formats are of tensors in logical order, (N, C, H, W) and (K, C, R, S); CUTLASS's coordinates have C last."""
    kind, fmt = layout_type(name), lookup(name)
    for extent in EXTENTS[kind.rank]:
        shape = extent if kind.rank == 2 else (extent[0], extent[-1], *extent[1:-1])
        offsets = cute.from_format(fmt, shape)(every(shape))
        assert (
            kind.packed(extent)(every(extent)) == (offsets if kind.rank == 2 else np.moveaxis(offsets, 1, -1))
        ).all()


# --- the laws of the concept -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LAYOUTS, ids=lambda kind: kind.__name__)
def test_the_concept(kind: type[LayoutConcept]) -> None:
    for extent in EXTENTS[kind.rank]:
        layout = kind.packed(extent)
        offsets = layout(every(extent))
        assert len(np.unique(offsets)) == layout.size(extent) == math.prod(extent)
        assert offsets.min() >= 0 and offsets.max() + 1 == layout.cosize(extent) <= layout.capacity(extent)
        found = layout.inverse(offsets)
        assert type(found) is kind.coordinate
        for axis, coord in enumerate(found):
            assert (coord == np.indices(extent)[axis]).all()
        assert len(layout.stride) == kind.stride_rank and kind(*layout.stride) == layout


@pytest.mark.parametrize("kind", LAYOUTS, ids=lambda kind: kind.__name__)
def test_a_leading_dimension_leaves_gaps(kind: type[LayoutConcept]) -> None:
    extent = EXTENTS[kind.rank][1]
    packed = kind.packed(extent)
    wider = tuple(step + max(kind.tile) * (index + 1) for index, step in enumerate(packed.stride))
    for index in range(1, len(wider)):  # each stride has to hold what the smaller ones do
        ratio = -(-packed.stride[index] // packed.stride[index - 1])
        wider = (*wider[:index], max(wider[index], ratio * wider[index - 1] + 1), *wider[index + 1 :])
    layout = kind(*wider)
    offsets = layout(every(extent))
    assert len(np.unique(offsets)) == layout.size(extent)
    assert layout.capacity(extent) > packed.capacity(extent) and layout.capacity(extent) > offsets.max()
    for axis, coord in enumerate(layout.inverse(offsets)):
        assert (coord == np.indices(extent)[axis]).all()


@pytest.mark.parametrize("kind", LAYOUTS, ids=lambda kind: kind.__name__)
def test_it_repeats_tile_by_tile(kind: type[LayoutConcept]) -> None:
    """The offset of an element in another tile differs by the same amount for all elements, as pointer arithmetic requires."""
    extent = tuple(2 * step + 1 for step in kind.tile)
    layout = kind.packed(tuple(3 * step + 1 for step in kind.tile))
    offsets = layout(every(extent))
    for steps in product((0, 1), repeat=kind.rank):
        moved = tuple(count * step for count, step in zip(steps, kind.tile, strict=True))
        there = layout(tuple(axis + by for axis, by in zip(every(extent), moved, strict=True)))
        assert (there == offsets + layout(moved)).all()


def test_layouts_are_values() -> None:
    layout = TensorNCxHWx[32].packed((2, 3, 5, 40))
    assert TensorNCxHWx[32] is TensorNCxHWx[32] and issubclass(TensorNCxHWx[32], TensorNCxHWx)
    assert layout == TensorNCxHWx[32](*layout.stride) != TensorNCxHWx[16](*layout.stride)
    assert len({layout, TensorNCxHWx[32](*layout.stride)}) == 1
    assert repr(layout) == "TensorNCxHWx<32>(160, 480, 960)"
    for each in (layout, RowMajor(3)):
        assert pickle.loads(pickle.dumps(each)) == each
    with pytest.raises(AttributeError, match="frozen"):
        layout.stride = (1, 2, 3)


def test_a_stride_of_0_repeats_a_row() -> None:
    assert (RowMajor(0)(every((3, 4))) == np.arange(4)).all()
    with pytest.raises(FormatError, match="no inverse"):
        RowMajor(0).inverse(2)
    with pytest.raises(FormatError, match="overlap"):
        RowMajor(0).capacity((3, 4))


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        (lambda: RowMajor(3)((1, 2, 3)), "3 coordinates for 2 axes"),
        (lambda: RowMajor(3)((1.5, 2)), "not float64"),
        (lambda: RowMajor(3)(1), "1 coordinates for 2 axes"),
        (lambda: RowMajor(3).inverse(-1), "below 0"),
        (lambda: RowMajor(-3), "a stride is no integer of 0 or more"),
        (lambda: RowMajor(1, 2), "has 1 strides, 2 are given"),
        (lambda: RowMajor(3).capacity((2, 4)), "overlap"),
        (lambda: RowMajor.packed((2, -4)), "not 2 integers of 0 or more"),
        (lambda: TensorNHWC(3, 4, 100).capacity((1, 2, 2, 3)), "overlap"),
        (lambda: ColumnMajorInterleaved[32](640).capacity((33, 20)), "does not hold"),
        (lambda: TensorOpMultiplicandCrosswise[16, 32](40).capacity((64, 8)), "does not hold 64"),
        (lambda: TensorOpMultiplicandCrosswise[16, 32](0).inverse(0), "the stride is 0"),
        (lambda: RowMajorInterleaved(32), r"write RowMajorInterleaved\[Interleave\]"),
        (lambda: RowMajorInterleaved.packed((3, 4)), "requires Interleave"),
        (lambda: RowMajorInterleaved[2, 3], "takes the arguments Interleave"),
        (lambda: RowMajorInterleaved[32][32], "takes the arguments"),
        (lambda: RowMajorInterleaved[0], "not integers above 0"),
        (lambda: RowMajor[32], "is no template"),
        (lambda: TensorOpMultiplicandCrosswise[16, 48], "do not fill"),
        (lambda: TensorOpMultiplicandCrosswise[12, 64], "do not fill"),
        (lambda: layout_type("RowMayor"), "did you mean RowMajor"),
        (lambda: layout_type("RowMajorInterleaved"), "requires Interleave"),
        (lambda: layout_type("RowMajorInterleaved<,>"), "arguments are integers"),
    ],
)
def test_errors_are_one_line(attempt: Callable[[], object], expected: str) -> None:
    with pytest.raises(FormatError, match=expected) as caught:
        attempt()
    assert "\n" not in str(caught.value)
