"""Writes files with holes: parts that the file system does not store, and that read as zeros.

Weights of zeros that take no space on the disk then take none in a copy or in another format.
"""

import errno
import os
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

_PIECE = 1 << 20  # bytes that are copied or compared with zero at a time
_IN_KERNEL = 1 << 30  # bytes that are copied by one call of the kernel
_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EXDEV})


def write_with_holes(content: npt.NDArray[np.uint8], file: BinaryIO) -> None:
    """Append bytes to the end of a file; pieces of zeros become holes."""
    is_hole = False
    for start in range(0, content.size, _PIECE):
        piece = content[start : start + _PIECE]
        is_hole = piece.size == _PIECE and not piece.any()
        if is_hole:
            file.seek(_PIECE, os.SEEK_CUR)
        else:
            file.write(piece.data)
    if is_hole:
        file.truncate()


def copy_range(source: BinaryIO, start: int, count: int, target: BinaryIO) -> None:
    """Append `count` bytes of a file, from `start` on, to the end of another file; holes stay holes.

    Raises:
        OSError: a file cannot be read or written, or the source is too short.
    """
    first, end = target.tell(), start + count
    target.flush()
    for begin, behind in _stored_parts(source.fileno(), start, end):
        copied = _copy_in_kernel(source, begin, behind, target, first + begin - start)
        source.seek(copied)
        target.seek(first + copied - start)
        _copy_pieces(source, behind - copied, target)
    target.seek(first + count)
    target.truncate()


def _stored_parts(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of a file between two positions that are not holes; the whole range where the system reports no holes."""
    at = start
    while at < end:
        begin, behind = at, end
        if hasattr(os, "SEEK_DATA"):
            try:
                begin = os.lseek(descriptor, at, os.SEEK_DATA)
                behind = os.lseek(descriptor, begin, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:  # only a hole is left
                    return
                if error.errno not in _UNSUPPORTED:
                    raise
        if begin < end:
            yield begin, min(behind, end)
        at = behind


def _copy_in_kernel(source: BinaryIO, begin: int, end: int, target: BinaryIO, position: int) -> int:
    """Copy a part of a file where the system can do that by itself; returns the end of what was copied."""
    while begin < end and hasattr(os, "copy_file_range"):
        try:
            count = os.copy_file_range(source.fileno(), target.fileno(), min(end - begin, _IN_KERNEL), begin, position)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            break
        if count == 0:
            break
        begin, position = begin + count, position + count
    return begin


def _copy_pieces(source: BinaryIO, count: int, target: BinaryIO) -> None:
    """Copy bytes from the position of one file to that of another."""
    while count > 0:
        piece = source.read(min(_PIECE, count))
        if not piece:
            raise OSError(errno.EIO, "the file is shorter than its header declares")
        target.write(piece)
        count -= len(piece)


__all__ = ["copy_range", "write_with_holes"]
