"""oneDNN's tags and memory descriptors equal the results of the library (tests/published/onednn.json)."""

import json
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.errors import FormatError
from layoutopt.formats import lookup, pack
from layoutopt.systems.onednn import MemoryDescriptor, tag_format

LIBRARY = json.loads((Path(__file__).parents[1] / "published" / "onednn.json").read_text())
TAGS = [row[0] for row in LIBRARY["tags"]]


def fields(md: MemoryDescriptor) -> list[Any]:
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
            assert fields(md.submemory(part, offsets)) == want, tag
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
    ("make", "expected"),
    [
        (lambda: MemoryDescriptor.with_tag((1, 2), "f32", "abc"), "axes"),
        (lambda: MemoryDescriptor.with_tag((1, 2), "f99", "ab"), "f99: no data type"),
        (lambda: MemoryDescriptor.with_tag((1, 2), "f32", "ab16b"), "capital letters"),
        (lambda: MemoryDescriptor.with_format((1, 17, 2, 2), "f32", lookup("NC4cHW")), "innermost"),
        (lambda: MemoryDescriptor.with_tag((1, 2), "f32", "ab").submemory((1, 2), (0, 1)), "outside dimension 1"),
        (lambda: MemoryDescriptor.with_tag((1, 2), "f32", "ab").permute_axes((0, 0)), "no permutation"),
        (lambda: tag_format("aBcd16x"), "unknown axes"),
    ],
)
def test_errors_are_one_line(make: Any, expected: str) -> None:
    with pytest.raises(FormatError, match=expected) as caught:
        make()
    assert "\n" not in str(caught.value)
