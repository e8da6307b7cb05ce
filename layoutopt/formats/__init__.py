"""The algebra of memory formats: pure values over numpy, knowing nothing of graphs.

A Format orders the parts of the axes of a logical tensor; a Layout binds it to a shape and strides; a
Conversion copies a tensor from one to another; `carry` takes a format through a Reshape; the catalogue knows
the names of the field.
"""

from layoutopt.formats.carry import carry
from layoutopt.formats.catalog import Entry, c0, entries, format_system, fractal_nz, lookup
from layoutopt.formats.conversion import Conversion
from layoutopt.formats.extent import UNKNOWN, Dim, Extent, is_unknown, product, quoted, unquoted
from layoutopt.formats.format import Format, Part, Shape, quotient, volume
from layoutopt.formats.layout import Layout
from layoutopt.formats.pack import pack, packed_elements, packed_view, unpack
from layoutopt.formats.steps import Pad, Reshape, Slice, Step, Transpose, run

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
    "c0",
    "carry",
    "entries",
    "format_system",
    "fractal_nz",
    "is_unknown",
    "lookup",
    "pack",
    "packed_elements",
    "packed_view",
    "product",
    "quoted",
    "quotient",
    "run",
    "unpack",
    "unquoted",
    "volume",
]
