"""Bank conflicts: additional wavefronts of an access because threads of a warp access different words of one bank.

Shared memory has 32 banks; the word of 4 bytes at address a is in bank a / 4 % 32. In one wavefront each bank serves one word,
to any number of threads. An access of a warp of up to 4 bytes per thread has one phase, of 8 bytes two phases of 16 threads, of
16 bytes four phases of 8 threads; `ldmatrix` reads a matrix of 8 rows of 16 bytes in each phase. So a phase has at most 128
bytes, and

    wavefronts of a phase = the largest number of different words of one bank        conflicts = wavefronts - phases

Source: CUDA C++ Programming Guide, "Shared Memory" of compute capability 5.x and later; PTX ISA, `ldmatrix`; for the accesses
of warps, CUTLASS include/cutlass/gemm/warp/mma_tensor_op_tile_iterator.h and mma_tensor_op_tile_iterator_sm80.h.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from layoutopt.errors import FormatError
from layoutopt.systems.cutlass.concept import Extent, Index, LayoutConcept
from layoutopt.systems.cutlass.tensor_op import TensorOpLayout

BANKS = 32
WORD = 4
WARP = 32
LINE = BANKS * WORD
VECTOR = 16

Mapping = Callable[[tuple[Index, Index]], Index]
"""A layout of rank 2, of this package or of CuTe."""


@dataclass(frozen=True, slots=True)
class BankConflicts:
    """The cost of an access of a warp: the wavefronts of each phase."""

    wavefronts: tuple[int, ...]

    @property
    def conflicts(self) -> int:
        """The number of wavefronts caused by conflicts."""
        return sum(self.wavefronts) - len(self.wavefronts)


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """The elements that the threads of a warp access.

    Attributes:
        name: the instruction or operation, such as `ldmatrix`.
        contiguous: for each thread, the coordinate of its first element along the contiguous axis.
        strided: for each thread, the coordinate along the strided axis.
        width: bytes per thread.
        elements: the number of elements per thread along the contiguous axis, which must be adjacent.
    """

    name: str
    contiguous: Index
    strided: Index
    width: int
    elements: int = 1

    @property
    def phase(self) -> int:
        """The number of threads per phase."""
        return min(WARP, LINE // self.width)


def bank_conflicts(addresses: ArrayLike, width: int) -> BankConflicts:
    """The cost of an access of a warp.

    Args:
        addresses: the byte address of each thread, 32 of them or fewer.
        width: bytes a thread: 1, 2, 4, 8 or 16.

    Raises:
        FormatError: there is no such width, there are too many threads, or an address is no multiple of the width.
    """
    starts = np.asarray(addresses, np.int64)
    if width not in (1, 2, 4, 8, 16) or starts.ndim != 1 or len(starts) > WARP:
        raise FormatError(
            f"an access of shape {starts.shape} and {width} bytes a thread", hint="1 to 16, by 32 threads"
        )
    if np.any(starts % width) or np.any(starts < 0):
        raise FormatError(f"an address is no multiple of {width} bytes", hint="choose a stride that is one")
    threads = min(WARP, LINE // width)
    words = starts[:, None] // WORD + np.arange(max(1, width // WORD))
    phases = (words[first : first + threads] for first in range(0, len(words), threads))
    return BankConflicts(tuple(int(np.bincount(np.unique(phase) % BANKS).max()) for phase in phases))


def vector_write(element_size: int, row: int, width: int = VECTOR) -> Access:
    """The write of contiguous elements by a warp, row by row.

    Args:
        element_size: bits of an element.
        row: elements of a row along the contiguous axis.
        width: bytes a thread.
    """
    elements = width * 8 // element_size
    strided, part = np.divmod(np.arange(WARP), max(1, row // elements))
    return Access("write", part * elements, strided, width, elements)


def ldmatrix(element_size: int) -> Access:
    """The access of `ldmatrix.x4`: each thread passes the address of 16 bytes of a row; a matrix has eight rows."""
    lanes = np.arange(WARP)
    return Access("ldmatrix", np.zeros_like(lanes), lanes, VECTOR, VECTOR * 8 // element_size)


def fragment_read(width: int, is_crosswise: bool = False) -> Access:
    """The read of a fragment of an `mma` operand: 8 groups of threads along M or N, with 4 threads along K in each."""
    group, lane = np.divmod(np.arange(WARP), 4)
    return Access("fragment", *((lane, group) if is_crosswise else (group, lane)), width)


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A matrix in shared memory with the accesses that write and read it.

    Attributes:
        layout: from coordinates to offsets.
        extent: its size.
        contiguous: the axis along which elements are adjacent in memory.
        element_size: bits of an element.
        cell: bytes that every layout keeps adjacent.
        write: the access that writes it.
        read: the access that reads it for the tensor cores.
    """

    layout: Mapping
    extent: tuple[int, int]
    contiguous: int
    element_size: int
    cell: int
    write: Access
    read: Access

    @classmethod
    def of(cls, layout: LayoutConcept, extent: Extent, element_size: int = 16) -> Self:
        """An operand in a layout of CUTLASS; the layout of a tensor operation determines the element size.

        Raises:
            FormatError: the layout is not of matrices.
        """
        if layout.rank != 2:
            raise FormatError(f"has {layout.rank} axes", where=repr(layout), hint="choose a layout of matrices")
        rows, columns = layout.extents(extent)
        if not isinstance(layout, TensorOpLayout):
            return cls.plain(layout, (rows, columns), layout.contiguous, element_size)
        bits, width = layout.element_size, layout.elements_per_access * layout.element_size // 8
        write = vector_write(bits, layout.tile[layout.contiguous], width)
        read = fragment_read(layout.fragment_bytes, layout.crosses_lines) if layout.fragment_bytes else ldmatrix(bits)
        return cls(layout, (rows, columns), layout.contiguous, bits, width, write, read)

    @classmethod
    def plain(cls, layout: Mapping, extent: tuple[int, int], contiguous: int, element_size: int) -> Self:
        """An operand that is vector_write in vectors of 16 bytes and read by `ldmatrix`."""
        write, read = vector_write(element_size, extent[contiguous]), ldmatrix(element_size)
        return cls(layout, extent, contiguous, element_size, VECTOR, write, read)

    def conflicts(self, access: Access) -> BankConflicts:
        """The cost of an access.

        Raises:
            FormatError: the elements that a thread accesses are not adjacent, or not at a multiple of their size.
        """
        along = access.contiguous[:, None] + np.arange(access.elements)
        addresses = self.addresses(along, access.strided[:, None])
        apart = addresses - addresses[:, :1]
        if np.any(addresses[:, 0] % 8) or np.any(apart != np.arange(access.elements) * self.element_size):
            raise FormatError(f"has no {access.elements} adjacent elements for {access.name}", where=str(self.layout))
        return bank_conflicts(addresses[:, 0] // 8, access.width)

    def first_phase(self, access: Access) -> frozenset[int]:
        """The cells of memory that the first threads of a warp access together, counted from the first line on."""
        threads = slice(access.phase)
        starts = self.addresses(access.contiguous[threads], access.strided[threads]) // 8
        return frozenset(((starts[:, None] + np.arange(access.width)) // self.cell).ravel().tolist())

    def addresses(self, contiguous: Index, strided: Index) -> Index:
        """The addresses of elements in bits."""
        pair = (contiguous, strided) if self.contiguous == 0 else (strided, contiguous)
        return np.asarray(self.layout(pair) * self.element_size, np.int64)

    def lines(self) -> Index:
        """The memory in lines of 128 bytes: the first element of each cell.

        Returns:
            An array of shape (lines, cells of a line, 2) of coordinates, contiguous and strided; -1 in cells without elements.
        """
        sizes = self.extent if self.contiguous == 0 else self.extent[::-1]
        strided, along = (axis.ravel() for axis in np.indices(sizes[::-1]))
        cells = self.addresses(along, strided) // (8 * self.cell)
        used, first = np.unique(cells, return_index=True)
        per_line = LINE // self.cell
        table = np.full((-(-(int(used.max(initial=-1)) + 1) // per_line) * per_line, 2), -1)
        table[used] = np.stack((along[first], strided[first]), -1)
        return table.reshape(-1, per_line, 2)
