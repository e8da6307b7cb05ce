"""The layouts of CUTLASS, CuTe and oneDNN equal those of their headers, documentation and library."""

import json
import math
import zlib
from collections.abc import Callable
from itertools import product
from math import prod
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.errors import FormatError
from layoutopt.formats import entries, lookup, pack
from layoutopt.systems import cute, cutlass
from layoutopt.systems.cute import CuteLayout
from layoutopt.systems.onednn import MemoryDescriptor, tag_format

LAYOUTS = [
    kind[block] if block else kind
    for kind in cutlass.layout_types().values()
    for block in ((2, 4, 32) if "{}" in kind.name else (None,))
]
EXTENTS = {
    2: ((1, 1), (5, 7), (32, 9), (33, 65)),
    4: ((1, 1, 1, 1), (2, 3, 5, 7), (3, 2, 2, 33)),
    5: ((1, 1, 1, 1, 1), (2, 3, 2, 5, 3)),
}


def every(extent: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    return np.ix_(*map(np.arange, extent))


def published_rows(name: str) -> list[tuple[str, tuple[int, ...], tuple[int, ...], str]]:
    lines = (Path(__file__).parent / name).read_text().splitlines()
    cells = ([cell.strip() for cell in line.split("|")] for line in lines if not line.startswith("#"))
    return [(kind, numbers(stride), numbers(extent), result) for kind, stride, extent, result in cells]


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


OFFSETS, CAPACITIES = published_rows("cutlass_offsets.txt"), published_rows("cutlass_capacities.txt")


def test_offsets_are_those_of_the_headers() -> None:
    for name, stride, extent, crc in OFFSETS:
        offsets = cutlass.layout_type(name)(*stride)(every(extent))
        assert f"{zlib.crc32(offsets.astype('<i8').tobytes()):08x}" == crc, (name, stride, extent)


def test_packed_strides_and_capacities_are_those_of_the_headers() -> None:
    """For whole blocks and tiles; see the modules for where the headers presume them."""
    for name, stride, extent, capacity in CAPACITIES:
        layout = cutlass.layout_type(name).packed(extent)
        assert (layout.stride, layout.capacity(extent)) == (stride, int(capacity)), (name, extent)


@pytest.mark.parametrize("headers", [OFFSETS, CAPACITIES])
def test_every_layout_was_compared(headers: list[tuple]) -> None:
    assert {name.partition("<")[0] for name, *_ in headers} == set(cutlass.layout_types())


@pytest.mark.parametrize("name", [entry.name for entry in entries() if entry.system == "CUTLASS"])
def test_the_catalogue_of_formats_says_the_same(name: str) -> None:
    """Formats are of tensors in logical order, (N, C, H, W) and (K, C, R, S); CUTLASS's coordinates have C last."""
    kind, fmt = cutlass.layout_type(name), lookup(name)
    for extent in EXTENTS[kind.rank]:
        shape = extent if kind.rank == 2 else (extent[0], extent[-1], *extent[1:-1])
        offsets = cute.from_format(fmt, shape)(every(shape))
        assert (
            kind.packed(extent)(every(extent)) == (offsets if kind.rank == 2 else np.moveaxis(offsets, 1, -1))
        ).all()


def tile_of(kind: cutlass.LayoutType) -> tuple[int, ...]:
    return tuple(map(kind.format.block, range(kind.rank)))


def with_gaps(packed: cutlass.StridedLayout) -> cutlass.StridedLayout:
    """The layout with larger strides, each of which holds what the smaller ones do."""
    wider = [step + max(tile_of(packed.type)) * (index + 1) for index, step in enumerate(packed.stride)]
    for index in range(1, len(wider)):
        ratio = -(-packed.stride[index] // packed.stride[index - 1])
        wider[index] = max(wider[index], ratio * wider[index - 1] + 1)
    return packed.type(*wider)


@pytest.mark.parametrize("kind", LAYOUTS, ids=lambda kind: kind.name)
def test_the_concept(kind: cutlass.LayoutType) -> None:
    for extent in EXTENTS[kind.rank]:
        packed = kind.packed(extent)
        for layout in (packed, with_gaps(packed)):
            offsets = layout(every(extent))
            assert len(np.unique(offsets)) == layout.size(extent) == math.prod(extent)
            assert offsets.min() >= 0 and offsets.max() < layout.capacity(extent)
            for axis, coord in enumerate(layout.inverse(offsets)):
                assert (coord == np.indices(extent)[axis]).all()
            assert kind(*layout.stride) == layout
        assert math.prod(extent) == 1 or with_gaps(packed).capacity(extent) > packed.capacity(extent)


@pytest.mark.parametrize("kind", LAYOUTS, ids=lambda kind: kind.name)
def test_it_repeats_tile_by_tile(kind: cutlass.LayoutType) -> None:
    tile = tile_of(kind)
    extent = tuple(2 * step + 1 for step in tile)
    layout = kind.packed(tuple(3 * step + 1 for step in tile))
    offsets = layout(every(extent))
    for steps in product((0, 1), repeat=kind.rank):
        moved = tuple(count * step for count, step in zip(steps, tile, strict=True))
        there = layout(tuple(axis + by for axis, by in zip(every(extent), moved, strict=True)))
        assert (there == offsets + layout(moved)).all()


def test_a_stride_of_0_repeats_a_row() -> None:
    assert (cutlass.RowMajor(0)(every((3, 4))) == np.arange(4)).all()
    with pytest.raises(FormatError, match="no inverse"):
        cutlass.RowMajor(0).inverse(2)
    with pytest.raises(FormatError, match="does not hold"):
        cutlass.RowMajor(0).capacity((3, 4))


DTYPES = ["bool", "float16", "U3", "object", "bfloat16", "i4,f8"]


def memory(size: int = 100) -> np.ndarray:
    return np.arange(size)


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_dtype_is_referred_to_and_not_copied(dtype: str) -> None:
    buffer = np.zeros((4, 5), getattr(ml_dtypes, dtype, dtype))
    values = np.arange(20).astype("i4") if dtype != "i4,f8" else np.zeros(20, dtype)
    buffer.reshape(-1)[:] = values.astype(buffer.dtype)
    view = cutlass.TensorView(buffer, cutlass.RowMajor(5), (4, 5))
    assert view[2, 3] == buffer[2, 3]
    view[3, 4] = buffer[0, 1]
    assert buffer[3, 4] == buffer[0, 1]


def view_of(rows: int = 5, columns: int = 7, ldm: int = 10) -> cutlass.TensorView:
    return cutlass.TensorView(memory(), cutlass.RowMajor(ldm), (rows, columns))


@pytest.mark.parametrize("coord", [(5, 0), (0, 7), (-1, 0), (np.array([0, 9]), 0)])
def test_a_view_has_bounds(coord: tuple) -> None:
    view = view_of()
    with pytest.raises(FormatError, match=r"outside the extent \(5, 7\)"):
        view[coord]
    with pytest.raises(FormatError, match=r"outside the extent \(5, 7\)"):
        view[coord] = 0


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        (lambda: view_of(11), "has 100 elements, 0 to 106 are needed"),
        (lambda: cutlass.TensorView(memory(), cutlass.RowMajor(10), (5, 5, 5)), "not 2 integers"),
        (lambda: view_of().subview((1, 1), (6, 0)), "outside the extent"),
        (lambda: view_of()[1, 2, 3], "3 coordinates for 2 axes"),
        (lambda: cutlass.TensorView(np.zeros((4, 6))[:, ::2], cutlass.RowMajor(3), (4, 3)), "with gaps"),
        (
            lambda: cutlass.TensorView(memory(), cutlass.RowMajorInterleaved[4](20), (9, 5)).subview((1, 1), (6, 0)),
            "within a block",
        ),
    ],
)
def test_views_that_cannot_be(attempt: Callable[[], object], expected: str) -> None:
    with pytest.raises(FormatError, match=expected) as caught:
        attempt()
    assert "\n" not in str(caught.value)


@given(st.data())
def test_subviews_are_slices(data: st.DataObject) -> None:
    layouts = (cutlass.RowMajor.packed, cutlass.ColumnMajor.packed, cutlass.RowMajorInterleaved[3].packed)
    extent = data.draw(st.tuples(st.integers(1, 40), st.integers(1, 40)))
    layout = data.draw(st.sampled_from(layouts))(extent)
    view = cutlass.TensorView(memory(layout.capacity(extent)), layout, extent)
    start = tuple(
        step * data.draw(st.integers(0, (size - 1) // step))
        for size, step in zip(extent, tile_of(layout.type), strict=True)
    )
    sizes = data.draw(st.tuples(st.integers(0, 40), st.integers(0, 40)))
    part = view.subview(sizes, start)
    whole = np.asarray(view)[start[0] : start[0] + sizes[0], start[1] : start[1] + sizes[1]]
    assert part.extent == whole.shape and (np.asarray(part) == whole).all()


def test_a_view_as_an_array() -> None:
    values = np.arange(2 * 3 * 5 * 7, dtype="f4").reshape(2, 3, 5, 7)
    for kind in (cutlass.TensorNHWC, cutlass.TensorNCxHWx[4]):
        layout = kind.packed(values.shape)
        buffer = np.full(layout.capacity(values.shape), np.nan, "f4")
        view = cutlass.TensorView(buffer, layout, values.shape)
        view.assign(values)
        assert (np.asarray(view) == values).all() and np.asarray(view, "f8").dtype == "f8"
        assert np.isnan(buffer).sum() == layout.capacity(values.shape) - values.size
    view.assign(0)
    assert not np.asarray(view).any()


L = CuteLayout.parse

# media/docs/cpp/cute/01_layout.md


LIBRARY = json.loads((Path(__file__).parents[1] / "published" / "onednn.json").read_text())
TAGS = [row[0] for row in LIBRARY["tags"]]


def test_every_tag_of_the_header() -> None:
    assert len(TAGS) == 873
    for tag, dims, padded, strides, size in LIBRARY["tags"]:
        md = MemoryDescriptor.with_tag(dims, "f32", tag)
        assert [list(md.padded_dims), list(md.strides), md.size] == [padded, strides, size], tag


def test_every_other_name() -> None:
    assert len(LIBRARY["aliases"]) == 786
    for name, tag in LIBRARY["aliases"]:
        assert tag_format(name) == tag_format(tag), name
        assert tag_format(f"dnnl_{name}") == tag_format(tag)


@given(st.sampled_from(TAGS), st.data())
def test_offsets_are_where_the_format_packs(tag: str, data: st.DataObject) -> None:
    format = tag_format(tag)
    dims = [data.draw(st.integers(1, 3 if format.rank > 6 else format.block(axis) + 1)) for axis in range(format.rank)]
    if prod(format.physical_shape(tuple(dims))) > 200_000:
        dims = [min(dim, 2) for dim in dims]
    array = np.arange(1, 1 + prod(dims), dtype=np.int32).reshape(dims)
    md = MemoryDescriptor.with_tag(dims, "s32", tag)
    memory = md.pack(array)
    np.testing.assert_array_equal(memory, pack(array, format).reshape(-1))
    np.testing.assert_array_equal(md.read(memory), array)


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        (lambda: cutlass.RowMajor(3)((1, 2, 3)), "3 coordinates for 2 axes"),
        (lambda: cutlass.RowMajor(3)((1.5, 2)), "not float64"),
        (lambda: cutlass.RowMajor(3).inverse(-1), "an offset below 0"),
        (lambda: cutlass.RowMajor(-3), "a stride is no integer of 0 or more"),
        (lambda: cutlass.RowMajor(1, 2), "has 1 strides, 2 are given"),
        (lambda: cutlass.RowMajor(3).capacity((2, 4)), "does not hold"),
        (lambda: cutlass.ColumnMajorInterleaved[32](640).capacity((33, 20)), "does not hold"),
        (lambda: cutlass.RowMajorInterleaved(32), r"write RowMajorInterleaved\[Interleave\]"),
        (lambda: cutlass.RowMajor[2], "is no template"),
        (lambda: cutlass.RowMajorInterleaved[0], "no integer above 0"),
        (lambda: cutlass.layout_type("RowMayor"), "did you mean RowMajor"),
        (lambda: cutlass.layout_type("RowMajorInterleaved<,>"), "no layout of CUTLASS"),
        (lambda: L("(4,2):(1,4,8)"), "have different nestings"),
        (lambda: L("(4,0)"), "below 1"),
        (lambda: L("(" * 5000 + "1" + ")" * 5000), "not an integer"),
        (lambda: L("4")(-1), "no integer of 0 or more"),
        (lambda: cute.complement(L("(2,2):(1,3)"), 8), "overlaps, or its gaps"),
        (lambda: cute.left_inverse(L("(2,2):(1,0)")), "more than once"),
        (lambda: MemoryDescriptor.with_tag((1, 2), "f32", "abc"), "axes"),
        (lambda: MemoryDescriptor.with_tag((1, 2), "f99", "ab"), "f99: no data type"),
        (lambda: MemoryDescriptor.with_tag((1, 2), "f32", "ab16b"), "capital letters"),
        (lambda: MemoryDescriptor((1, 17, 2, 2), "f32", lookup("NC4cHW")), "innermost"),
        (lambda: tag_format("aBcd16x"), "unknown axes"),
    ],
)
def test_errors_are_one_line(attempt: Callable[[], object], expected: str) -> None:
    with pytest.raises(FormatError, match=expected) as caught:
        attempt()
    assert "\n" not in str(caught.value)
