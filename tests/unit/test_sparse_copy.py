"""Files with holes: copies and packed weights have the same bytes, and holes stay holes where the file system has them."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.files import copy_range, staging, write_with_holes

PIECE = 1 << 12


@given(parts=st.lists(st.tuples(st.booleans(), st.integers(1, 3 * PIECE)), min_size=1, max_size=6), data=st.data())
def test_a_copy_of_a_range_has_its_bytes(
    parts: list[tuple[bool, int]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("copies")
    content = b"".join((b"\1" if is_stored else b"\0") * size for is_stored, size in parts)
    with (folder / "source").open("wb") as file:
        for is_stored, size in parts:
            file.write(b"\1" * size) if is_stored else file.seek(size, os.SEEK_CUR)
        file.truncate()
    start = data.draw(st.integers(0, len(content)))
    count = data.draw(st.integers(0, len(content) - start))
    with (
        pytest.MonkeyPatch.context() as patch,
        (folder / "source").open("rb") as source,
        (folder / "target").open("x+b") as target,
    ):
        patch.setattr(staging, "_PIECE", PIECE)
        target.write(b"head")
        copy_range(source, start, count, target)
        target.write(b"tail")
    assert (folder / "target").read_bytes() == b"head" + content[start : start + count] + b"tail"


@given(parts=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 3 * PIECE)), max_size=6))
def test_bytes_with_zeros_are_written_as_they_are(
    parts: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("files") / "file"
    content = np.concatenate([np.zeros(0, np.uint8), *(np.full(size, value, np.uint8) for value, size in parts)])
    with pytest.MonkeyPatch.context() as patch, path.open("x+b") as file:
        patch.setattr(staging, "_PIECE", PIECE)
        write_with_holes(content, file)
        write_with_holes(content, file)
    assert path.read_bytes() == 2 * content.tobytes()


def test_holes_take_no_space(tmp_path: Path) -> None:
    size = 1 << 25
    with (tmp_path / "source").open("x+b") as source:
        source.truncate(size)
        if os.fstat(source.fileno()).st_blocks:
            pytest.skip("this file system stores holes")
        with (tmp_path / "target").open("x+b") as target:
            copy_range(source, 0, size, target)
            write_with_holes(np.zeros(size, np.uint8), target)
            target.flush()
            info = os.fstat(target.fileno())
    assert info.st_size == 2 * size and info.st_blocks * 512 < size // 100


def test_a_source_that_is_too_short(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"1234")
    with (
        (tmp_path / "source").open("rb") as source,
        (tmp_path / "target").open("x+b") as target,
        pytest.raises(OSError, match="shorter"),
    ):
        copy_range(source, 2, 3, target)
