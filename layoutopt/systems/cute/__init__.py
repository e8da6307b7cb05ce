"""The layout algebra of CuTe, the layout library of CUTLASS 3: layouts as functions that compose, divide and multiply.

CuteLayout      nested shape and strides; a function from coordinates, or one integer, to integers
algebra         coalesce, composition, complement, inverses
tiling          division and product, in terms of the algebra
Swizzle         an exclusive or of bits of a layout's values
from_format     the layout of a memory format; `index_map` is that of a conversion
"""

from layoutopt.systems.cute.algebra import (
    Tiler,
    blocked_product,
    coalesce,
    complement,
    composition,
    flat_divide,
    flat_product,
    from_bound_layout,
    from_format,
    index_map,
    left_inverse,
    logical_divide,
    logical_product,
    max_common_vector,
    raked_product,
    right_inverse,
    tiled_divide,
    tiled_product,
    to_format,
    zipped_divide,
    zipped_product,
)
from layoutopt.systems.cute.layout import ComposedLayout, CuteLayout, IntTuple, Swizzle, compatible, make_layout

__all__ = [
    "ComposedLayout",
    "CuteLayout",
    "IntTuple",
    "Swizzle",
    "Tiler",
    "blocked_product",
    "coalesce",
    "compatible",
    "complement",
    "composition",
    "flat_divide",
    "flat_product",
    "from_bound_layout",
    "from_format",
    "index_map",
    "left_inverse",
    "logical_divide",
    "logical_product",
    "make_layout",
    "max_common_vector",
    "raked_product",
    "right_inverse",
    "tiled_divide",
    "tiled_product",
    "to_format",
    "zipped_divide",
    "zipped_product",
]
