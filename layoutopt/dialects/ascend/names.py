"""The names of formats in Ascend's compiler, and the shapes that it publishes for them.

In that compiler a tensor has an *origin format*, which names its axes (NCHW, NHWC, or ND for axes without roles), and a
*storage format*. NC1HWC0 of a tensor (N, H, W, C) is therefore another order of its axes than of one (N, C, H, W):

    [N, C1, H, W, C0]   is  NC1HWC0 of NCHW  and  NC1HWC0 of NHWC        FRACTAL_NZ blocks the last two axes of any tensor

C0 follows from the element type; an order with any other block has no name. Signals are images of one row: their names are
those of images, and shapes leave out the H of 1.

Sources: GetFormatName in Ascend metadef graph/types.cc (names), transfer_shape_utils.cc (shapes).
"""

from collections.abc import Mapping, Sequence
from functools import cache
from math import prod
from typing import TypeAlias

from layoutopt.formats import Format, Part, Shape
from layoutopt.formats.catalog import Entry, c0, entries, fractal_nz
from layoutopt.formats.extent import static_shape
from layoutopt.ir.sizes import is_symbolic
from layoutopt.ir.types import DType

Names: TypeAlias = Mapping[Format, str]

_IMAGES = {4: "NCHW", 5: "NCDHW"}
_ORIGINS = {4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}
_PLAIN = {4: ("NCHW", "NHWC", "HWCN", "CHWN"), 5: ("NCDHW", "NDHWC", "DHWCN")}
_FILTERS = frozenset({"FRACTAL_Z", "FRACTAL_Z_3D", "FRACTAL_Z_3D_TRANSPOSE"})
_ROW = 2  # the axis of an image that a signal does not have
_CUBE_FLOAT32 = 8  # C0 of float32 on chips whose cube computes it
_BLOCKS = (16, _CUBE_FLOAT32, 32, 64, 128, 256)


def common_origin(formats: Sequence[Format], dtype: DType) -> tuple[str, list[str]] | None:
    """An origin format under which all given formats of one tensor have names, and the names; None if there is none.

    The axes of the tensor may be permuted for that: a Transpose moves no bytes here, so a conversion in front of it is the same
    as one behind it.
    """
    for order in _orders(formats[0].rank):
        relabelled = [format.propagate_transpose(order) for format in formats]
        for origin, names in _tables(formats[0].rank, _blocks(dtype)).items():
            found = [names.get(format, "") for format in relabelled]
            if all(found):
                return origin, found
    return None


def format_name(format: Format, dtype: DType) -> str | None:
    """The name of one format; None if it has none."""
    if format.is_canonical:
        return _IMAGES.get(format.rank, "ND")
    tables = _tables(format.rank, _blocks(dtype)).values()
    return next((names[format] for names in tables if format in names), None)


@cache
def published_shape(format: Format, shape: Shape) -> Shape:
    """The shape that Ascend publishes for a tensor in a format: the first axis of a filter counts all of its fractals."""
    physical = format.physical_shape(shape)
    inner = len(physical) - format.rank + 1
    names = {table.get(format, "") for table in _tables(format.rank, _BLOCKS).values()}
    if format.rank < min(_IMAGES) - 1 or names.isdisjoint(_FILTERS) or is_symbolic(physical):
        return physical
    return prod(static_shape(physical[:-inner])), *physical[-inner:]


def _blocks(dtype: DType) -> tuple[int, ...]:
    """The possible values of C0 for an element type."""
    if dtype is DType.STRING:
        return ()
    return (c0(dtype.label), _CUBE_FLOAT32) if dtype is DType.FLOAT32 else (c0(dtype.label),)


@cache
def _orders(rank: int) -> tuple[tuple[int, ...], ...]:
    """The axes as they are, the channels last or first, rows and columns exchanged."""
    axes = tuple(range(rank))
    if rank < 2:
        return (axes,)
    last, first = (0, *axes[2:], 1), (0, rank - 1, *axes[1:-1])
    exchanged = (*axes[:-2], rank - 1, rank - 2)
    return tuple(dict.fromkeys(order for order in (axes, last, first, exchanged) if sorted(order) == list(axes)))


@cache
def _tables(rank: int, blocks: tuple[int, ...]) -> dict[str, Names]:
    """The names of formats under every origin format of tensors of a rank."""
    matrices = {fractal_nz(rank, c0=block): "FRACTAL_NZ" for block in blocks} if rank > 1 else {}
    plain: dict[Format, str] = {Format.canonical(rank): "ND", **matrices}
    for block in blocks:
        if rank == 1:
            plain[Format((Part(0), Part(0, block)))] = "NC1HWC0"  # one number per channel: (1, C1, 1, 1, C0)
        if rank > 1:
            squares = Part(rank - 2, block), Part(rank - 1, block)
            plain[Format((*map(Part, range(rank)), *squares))] = "FRACTAL_ZZ"
        if rank == 2:
            plain[Format((Part(0), Part(1), Part(1, 16), Part(0, block)))] = "FRACTAL_Z"
    tables: dict[str, Names] = {"ND": plain}
    is_signal = rank == min(_IMAGES) - 1
    stored = _stored(min(_IMAGES) if is_signal else rank, blocks)
    for origin in _ORIGINS.get(min(_IMAGES) if is_signal else rank, ()):
        letters = _IMAGES[len(origin)]
        order = [letters.index(letter) for letter in origin]
        relabelled = {format.propagate_transpose(order): name for format, name in stored.items()}
        if is_signal:
            kept = [axis for axis, letter in enumerate(origin) if letter != letters[_ROW]]
            relabelled = {format.restrict(kept): name for format, name in relabelled.items()}
        tables[origin] = {**relabelled, **matrices}
    return tables


def _stored(rank: int, blocks: tuple[int, ...]) -> dict[Format, str]:
    """The names of formats of images (N, C, H, W) or (N, C, D, H, W), and of filters."""
    found: dict[Format, str] = {}
    for entry in entries():
        if entry.system == "Ascend" and len(entry.axes) == rank:
            found |= {_entry_format(entry, block): entry.name for block in blocks}
    return found | {Format.parse(plain, _IMAGES[rank]): plain for plain in _PLAIN.get(rank, ())}


def _entry_format(entry: Entry, block: int) -> Format:
    return Format.parse(entry.notation.replace("{C0}", str(block)), entry.axes)


__all__ = ["common_origin", "format_name", "published_shape"]
