"""The algebra of memory formats: immutable values that depend on numpy alone, not on graphs.

A Format orders the parts of the axes of a logical tensor; a Layout binds it to a shape and strides; a Conversion copies a
tensor from one format to another; `propagate_reshape` propagates a format through a Reshape; the catalogue contains the
names of formats in other systems.
"""

from layoutopt.formats.catalog import Entry, c0, entries, format_system, fractal_nz, lookup
from layoutopt.formats.conversion import Conversion, Pad, Reshape, Slice, Step, Transpose, run
from layoutopt.formats.extent import (
    UNKNOWN,
    Dim,
    Extent,
    Shape,
    as_shape,
    is_unknown,
    parse_extent,
    product,
    quoted,
    quotient,
    unquoted,
    volume,
)
from layoutopt.formats.format import Format, Part
from layoutopt.formats.layout import Layout, pack, packed_view, unpack
from layoutopt.formats.reshape import propagate_reshape

__all__ = [
    "UNKNOWN",
    "Conversion",
    "Dim",
    "Entry",
    "Extent",
    "Format",
    "Layout",
    "Pad",
    "Part",
    "Reshape",
    "Shape",
    "Slice",
    "Step",
    "Transpose",
    "as_shape",
    "c0",
    "entries",
    "format_system",
    "fractal_nz",
    "is_unknown",
    "lookup",
    "pack",
    "packed_view",
    "parse_extent",
    "product",
    "propagate_reshape",
    "quoted",
    "quotient",
    "run",
    "unpack",
    "unquoted",
    "volume",
]
