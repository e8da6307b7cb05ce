"""Operands of matrix products in shared memory, on the command line."""

from collections.abc import Sequence

from layoutopt.cli.options.element_types import parse_dtype
from layoutopt.errors import FormatError
from layoutopt.systems.cute import ComposedLayout, CuteLayout
from layoutopt.systems.cutlass import Operand, layout_type
from layoutopt.systems.cutlass.banks import LINE
from layoutopt.systems.cutlass.tensor_op import TensorOpLayout

_ROWS = 8  # of a matrix whose layout has no tile


def parse_operand(name: str, dtype: str, extent: Sequence[int] | None, stride: int | None) -> Operand:
    """The operand that the arguments of the command describe.

    Raises:
        FormatError: there is no such layout or element type, or it is not a layout of matrices.
    """
    bits = parse_dtype(dtype).bits
    if ":" in name:
        return _of_cute(name, bits, extent, stride)
    kind = layout_type(name)
    if extent is None and kind.rank == 2:
        row = LINE * 8 // bits
        plain = (row, _ROWS) if kind.contiguous == 0 else (_ROWS, row)
        extent = kind.tile if issubclass(kind, TensorOpLayout) else plain
    if extent is None:
        raise FormatError(f"has {kind.rank} axes", where=name, hint="choose a layout of matrices")
    return Operand.of(kind.packed(extent) if stride is None else kind(stride), extent, bits)


def _of_cute(name: str, bits: int, extent: Sequence[int] | None, stride: int | None) -> Operand:
    layout = ComposedLayout.parse(name) if name.lstrip().startswith("Sw") else CuteLayout.parse(name)
    modes = layout.inner.modes if isinstance(layout, ComposedLayout) else layout.modes
    if len(modes) != 2 or extent is not None or stride is not None:
        raise FormatError("a CuTe layout must have two modes here, and takes no --extent or --stride", where=name)
    contiguous = min(range(2), key=lambda axis: (modes[axis].size == 1, int(modes[axis](1))))
    return Operand.plain(layout, (modes[0].size, modes[1].size), contiguous, bits)
