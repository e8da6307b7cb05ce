"""`layoutopt banks`."""

from typing import Annotated

from typer import Argument, Option

from layoutopt.cli.options.force import Force
from layoutopt.cli.options.json_file import JsonFile
from layoutopt.cli.options.shapes import parse_shape

_LAYOUT = (
    "A layout of CUTLASS, like 'TensorOpMultiplicandCrosswise<16,32>', or of CuTe, like 'Sw<3,3,3> o (8,64):(64,1)'."
)


def banks(
    layout: Annotated[str, Argument(metavar="LAYOUT", help=_LAYOUT)],
    dtype: Annotated[
        str, Option("--dtype", metavar="T", help="The element type, for a layout that does not imply its size.")
    ] = "float16",
    extent: Annotated[
        str | None, Option("--extent", metavar="8,64", help="The size of the matrix; by default that of one tile.")
    ] = None,
    stride: Annotated[
        int | None, Option("--stride", metavar="72", min=1, help="The leading dimension; by default without padding.")
    ] = None,
    json: JsonFile = None,
    force: Force = False,
) -> None:
    """Show a matrix in shared memory, and count bank conflicts.

    Counts the wavefronts in which a warp writes the matrix, and loads it for the tensor cores.
    """
    from layoutopt.cli.files.json_record import JsonRecord
    from layoutopt.cli.options.operands import parse_operand
    from layoutopt.cli.rendering.banks import print_banks

    shape = parse_shape("--extent", extent) if extent is not None else None
    print_banks(parse_operand(layout, dtype, shape, stride), JsonRecord("banks", json, force=force))
