"""The layouts of CUTLASS, CuTe and oneDNN equal those of their headers, documentation and library."""

import json
import math
import zlib
from collections.abc import Callable
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.errors import FormatError
from layoutopt.formats import entries, lookup, pack
from layoutopt.systems import cute
from layoutopt.systems.cute import CuteLayout, Swizzle
from layoutopt.systems.cutlass import (
    ColumnMajor,
    ColumnMajorInterleaved,
    LayoutConcept,
    MatrixCoord,
    RowMajor,
    RowMajorInterleaved,
    TensorNCxHWx,
    TensorNHWC,
    TensorOpMultiplicandCrosswise,
    TensorRef,
    TensorView,
    layout_type,
    layout_types,
)
from layoutopt.systems.onednn import MemoryDescriptor, tag_format

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


def published_rows(name: str) -> list[tuple[str, tuple[int, ...], tuple[int, ...], str]]:
    lines = (Path(__file__).parent / name).read_text().splitlines()
    cells = ([cell.strip() for cell in line.split("|")] for line in lines if not line.startswith("#"))
    return [(kind, numbers(stride), numbers(extent), result) for kind, stride, extent, result in cells]


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


OFFSETS, CAPACITIES = published_rows("cutlass_offsets.txt"), published_rows("cutlass_capacities.txt")


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


def with_gaps(packed: LayoutConcept) -> LayoutConcept:
    """The layout with larger strides, each of which holds what the smaller ones do."""
    wider = [step + max(packed.tile) * (index + 1) for index, step in enumerate(packed.stride)]
    for index in range(1, len(wider)):
        ratio = -(-packed.stride[index] // packed.stride[index - 1])
        wider[index] = max(wider[index], ratio * wider[index - 1] + 1)
    return type(packed)(*wider)


@pytest.mark.parametrize("kind", LAYOUTS, ids=lambda kind: kind.__name__)
def test_the_concept(kind: type[LayoutConcept]) -> None:
    for extent in EXTENTS[kind.rank]:
        packed = kind.packed(extent)
        for layout in (packed, with_gaps(packed)):
            offsets = layout(every(extent))
            assert len(np.unique(offsets)) == layout.size(extent) == math.prod(extent)
            assert offsets.min() >= 0 and offsets.max() + 1 == layout.cosize(extent) <= layout.capacity(extent)
            found = layout.inverse(offsets)
            assert type(found) is kind.coordinate
            for axis, coord in enumerate(found):
                assert (coord == np.indices(extent)[axis]).all()
            assert len(layout.stride) == kind.stride_rank and kind(*layout.stride) == layout
        assert math.prod(extent) == 1 or with_gaps(packed).capacity(extent) > packed.capacity(extent)


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


def test_a_stride_of_0_repeats_a_row() -> None:
    assert (RowMajor(0)(every((3, 4))) == np.arange(4)).all()
    with pytest.raises(FormatError, match="no inverse"):
        RowMajor(0).inverse(2)
    with pytest.raises(FormatError, match="overlap"):
        RowMajor(0).capacity((3, 4))


DTYPES = ["bool", "float16", "U3", "object", "bfloat16", "i4,f8"]


def memory(size: int = 100) -> np.ndarray:
    return np.arange(size)


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_dtype_is_referred_to_and_not_copied(dtype: str) -> None:
    buffer = np.zeros((4, 5), getattr(ml_dtypes, dtype, dtype))
    values = np.arange(20).astype("i4") if dtype != "i4,f8" else np.zeros(20, dtype)
    buffer.reshape(-1)[:] = values.astype(buffer.dtype)
    ref = TensorRef(buffer, RowMajor(5))
    assert np.shares_memory(ref.memory, buffer) and ref.dtype == buffer.dtype
    assert ref.at((2, 3)) == buffer[2, 3]
    ref[3, 4] = buffer[0, 1]
    assert buffer[3, 4] == buffer[0, 1]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (np.zeros((4, 5, 6))[:, ::2], "has gaps"),
        (np.broadcast_to(np.zeros(4), (3, 4)), "has gaps or repeats"),
        ([1, 2, 3], "not a numpy array but list"),
        (np.zeros(4, ml_dtypes.int4), "int4: elements of 4 bits"),
        (np.zeros(4, ml_dtypes.float6_e2m3fn), "elements of 6 bits"),
    ],
)
def test_memory_that_cannot_be_referred_to(data: np.ndarray, expected: str) -> None:
    with pytest.raises(FormatError, match=expected) as caught:
        TensorRef(data, RowMajor(2))
    assert "\n" not in str(caught.value)


def test_pointer_arithmetic() -> None:
    ref = TensorRef(memory(), RowMajor(10))
    there = ref + MatrixCoord(3, 4)
    assert (there.pointer, there[0, 0], there[2, 1], ref.pointer) == (34, 34, 55, 0)
    assert (there - (1, 2))[0, 0] == 22 and there.add_pointer_offset(-4)[0, 0] == 30
    assert there[-1, -1] == 23  # as with any pointer
    there += (1, 0)
    assert there[0, 0] == 44


def test_pointer_arithmetic_is_refused_where_the_layout_does_not_repeat() -> None:
    ref = TensorRef(memory(4096), RowMajorInterleaved[4].packed((64, 64)))
    assert (ref + MatrixCoord(8, 3))[0, 0] == ref[8, 3]
    with pytest.raises(FormatError, match=r"\(6, 3\) is within a block.*multiples of \(4, 1\)"):
        ref + MatrixCoord(6, 3)
    swizzled = TensorRef(memory(4096), TensorOpMultiplicandCrosswise[16, 32].packed((64, 64)))
    assert (swizzled + MatrixCoord(32, 16))[5, 3] == swizzled[37, 19]
    with pytest.raises(FormatError, match="within a block"):
        swizzled - (0, 1)


def view_of(rows: int = 5, columns: int = 7, ldm: int = 10) -> TensorView:
    return TensorView(memory(), RowMajor(ldm), (rows, columns))


@pytest.mark.parametrize("coord", [(5, 0), (0, 7), (-1, 0), (np.array([0, 9]), 0)])
def test_a_view_has_bounds(coord: tuple) -> None:
    view = view_of()
    with pytest.raises(FormatError, match=r"outside the extent \(5, 7\)"):
        view.at(coord)
    with pytest.raises(FormatError, match=r"outside the extent \(5, 7\)"):
        view[coord] = 0


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        (lambda: view_of(11), "has 100 elements, 0 to 106 are needed"),
        (lambda: TensorView(memory(), RowMajor(10), (5, 5, 5)), "not 2 integers"),
        (lambda: view_of().subview((1, 1), (6, 0)), "outside the extent"),
        (lambda: view_of().contains((1, 2, 3)), "3 coordinates for 2 axes"),
    ],
)
def test_views_that_cannot_be(attempt: Callable[[], object], expected: str) -> None:
    with pytest.raises(FormatError, match=expected) as caught:
        attempt()
    assert "\n" not in str(caught.value)


@given(st.data())
def test_subviews_are_slices(data: st.DataObject) -> None:
    layouts = (
        RowMajor.packed,
        ColumnMajor.packed,
        RowMajorInterleaved[3].packed,
        TensorOpMultiplicandCrosswise[64, 4].packed,
    )
    extent = data.draw(st.tuples(st.integers(1, 40), st.integers(1, 40)))
    layout = data.draw(st.sampled_from(layouts))(extent)
    view = TensorView(memory(layout.capacity(extent)), layout, extent)
    start = tuple(
        step * data.draw(st.integers(0, (size - 1) // step)) for size, step in zip(extent, layout.tile, strict=True)
    )
    sizes = data.draw(st.tuples(st.integers(0, 40), st.integers(0, 40)))
    part = view.subview(sizes, start)
    whole = np.asarray(view)[start[0] : start[0] + sizes[0], start[1] : start[1] + sizes[1]]
    assert part.extent == whole.shape and (np.asarray(part) == whole).all()


def test_a_view_as_an_array() -> None:
    values = np.arange(2 * 3 * 5 * 7, dtype="f4").reshape(2, 3, 5, 7)
    for kind in (TensorNHWC, TensorNCxHWx[4]):
        layout = kind.packed(values.shape)
        buffer = np.full(layout.capacity(values.shape), np.nan, "f4")
        view = TensorView(buffer, layout, values.shape)
        view.assign(values)
        assert (np.asarray(view) == values).all() and np.asarray(view, "f8").dtype == "f8"
        assert np.isnan(buffer).sum() == layout.capacity(values.shape) - values.size
    view.assign(0)
    assert not np.asarray(view).any()
    with pytest.raises(ValueError, match="without a copy"):
        np.array(view, copy=False)


L = CuteLayout.parse

# media/docs/cpp/cute/01_layout.md


LIBRARY = json.loads((Path(__file__).parents[1] / "published" / "onednn.json").read_text())
TAGS = [row[0] for row in LIBRARY["tags"]]


def descriptor_fields(md: MemoryDescriptor) -> list[Any]:
    """The fields of a descriptor, in the order of the library's rows."""
    lists = map(list, (md.dims, md.padded_dims, md.strides, md.inner_blks, md.inner_idxs))
    return [*lists, md.offset0, md.size]


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


def test_submemory() -> None:
    refused = 0
    for tag, dims, part, offsets, want in LIBRARY["submemory"]:
        md = MemoryDescriptor.with_tag(dims, "bf16", tag)
        if want is None:
            refused += 1
            with pytest.raises(FormatError, match="through a block"):
                md.submemory(part, offsets)
        else:
            assert descriptor_fields(md.submemory(part, offsets)) == want, tag
    assert 0 < refused < len(LIBRARY["submemory"])


def test_strides() -> None:
    for dims, strides, size in LIBRARY["strided"]:
        assert MemoryDescriptor.with_strides(dims, "s8", strides).size == size


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


@given(st.sampled_from(["aBcd16b", "ABcd4a4b", "acdb", "ABcd2b8a4b", "BAcd8b8a"]), st.data())
def test_a_part_of_a_tensor_is_read_and_written_in_place(tag: str, data: st.DataObject) -> None:
    format = tag_format(tag)
    dims = [data.draw(st.integers(1, 2 * format.block(axis) + 3)) for axis in range(4)]
    md = MemoryDescriptor.with_tag(dims, "f32", tag)
    array = np.arange(1, 1 + prod(dims), dtype=np.float32).reshape(dims)
    memory = md.pack(array)
    offsets = [data.draw(st.sampled_from(range(0, dim, format.block(axis)))) for axis, dim in enumerate(dims)]
    part = [dim - offset for dim, offset in zip(dims, offsets, strict=True)]
    window = tuple(slice(offset, offset + dim) for offset, dim in zip(offsets, part, strict=True))
    inner = md.submemory(part, offsets)
    np.testing.assert_array_equal(inner.read(memory), array[window])
    array[window] = -array[window]
    inner.write(memory, array[window].copy())
    np.testing.assert_array_equal(md.read(memory), array)
    np.testing.assert_array_equal(memory, md.pack(array))


@given(st.permutations(range(4)), st.sampled_from(["aBcd16b", "ABcd4a4b", "cdba"]))
def test_permuted_dimensions_are_the_same_memory(permutation: list[int], tag: str) -> None:
    array = np.arange(5 * 17 * 3 * 2, dtype=np.float64).reshape(5, 17, 3, 2)
    md = MemoryDescriptor.with_tag(array.shape, "f64", tag)
    np.testing.assert_array_equal(
        md.permute_axes(permutation).read(md.pack(array)), array.transpose(np.argsort(permutation))
    )


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        (lambda: RowMajor(3)((1, 2, 3)), "3 coordinates for 2 axes"),
        (lambda: RowMajor(3)((1.5, 2)), "not float64"),
        (lambda: RowMajor(3).inverse(-1), "below 0"),
        (lambda: RowMajor(-3), "a stride is no integer of 0 or more"),
        (lambda: RowMajor(1, 2), "has 1 strides, 2 are given"),
        (lambda: RowMajor(3).capacity((2, 4)), "overlap"),
        (lambda: ColumnMajorInterleaved[32](640).capacity((33, 20)), "does not hold"),
        (lambda: RowMajorInterleaved(32), r"write RowMajorInterleaved\[Interleave\]"),
        (lambda: RowMajorInterleaved[2, 3], "takes the arguments Interleave"),
        (lambda: RowMajorInterleaved[0], "not integers above 0"),
        (lambda: TensorOpMultiplicandCrosswise[16, 48], "do not fill"),
        (lambda: layout_type("RowMayor"), "did you mean RowMajor"),
        (lambda: layout_type("RowMajorInterleaved<,>"), "arguments are integers"),
        (lambda: L("(4,2):(1,4,8)"), "have different nestings"),
        (lambda: L("(4,0)"), "below 1"),
        (lambda: L("(" * 5000 + "1" + ")" * 5000), "not an integer"),
        (lambda: L("4")(-1), "no integer of 0 or more"),
        (lambda: cute.complement(L("(2,2):(1,3)"), 8), "overlaps, or its gaps"),
        (lambda: cute.left_inverse(L("(2,2):(1,0)")), "more than once"),
        (lambda: cute.composition(Swizzle(1, 0, 1), 4), "applied to a layout"),
        (lambda: Swizzle(2, 0, 1), "overlap"),
        (lambda: MemoryDescriptor.with_tag((1, 2), "f32", "abc"), "axes"),
        (lambda: MemoryDescriptor.with_tag((1, 2), "f99", "ab"), "f99: no data type"),
        (lambda: MemoryDescriptor.with_tag((1, 2), "f32", "ab16b"), "capital letters"),
        (lambda: MemoryDescriptor.with_format((1, 17, 2, 2), "f32", lookup("NC4cHW")), "innermost"),
        (lambda: MemoryDescriptor.with_tag((1, 2), "f32", "ab").submemory((1, 2), (0, 1)), "outside dimension 1"),
        (lambda: MemoryDescriptor.with_tag((1, 2), "f32", "ab").permute_axes((0, 0)), "no permutation"),
        (lambda: tag_format("aBcd16x"), "unknown axes"),
    ],
)
def test_errors_are_one_line(attempt: Callable[[], object], expected: str) -> None:
    with pytest.raises(FormatError, match=expected) as caught:
        attempt()
    assert "\n" not in str(caught.value)
