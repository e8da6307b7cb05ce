"""`layoutopt banks`."""

from typing import Annotated

from typer import Argument, Option

from layoutopt.cli.options.shapes import extents_of

_LAYOUT = "Of CUTLASS, like 'TensorOpMultiplicandCrosswise<16,32>', or of CuTe, like 'Sw<3,3,3> o (8,64):(64,1)'."


def banks(
    layout: Annotated[str, Argument(metavar="LAYOUT", help=_LAYOUT)],
    dtype: Annotated[
        str, Option("--dtype", metavar="T", help="The element type, where the layout does not say its size.")
    ] = "float16",
    extent: Annotated[
        str | None, Option("--extent", metavar="8,64", help="The size of the matrix, by default that of a tile.")
    ] = None,
    stride: Annotated[
        int | None, Option("--stride", metavar="72", min=1, help="The leading dimension, by default without gaps.")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show where a matrix lies in shared memory, and count bank conflicts.

    Counted are the passes in which a warp writes it, and reads it as the tensor cores want it.
    """
    from layoutopt.cli.rendering.banks import operand, print_banks

    sizes = extents_of("--extent", extent) if extent is not None else None
    print_banks(operand(layout, dtype, sizes, stride), as_json)
