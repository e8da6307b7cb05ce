"""Matching of an op's signatures with the kernels of a target: the formats that each kernel requires for the op.

A kernel supports a signature if every operand that its row names has the bytes of the row's format: for H = W = 1 a
tensor in NCHW is also one in NHWC. A strided kernel instead supports operands of a matrix product by the number of strides
that they need (`layoutopt.ops.contraction`):

    "matrices"    one each for rows, columns, the contracted axis and the batch: leading dimensions
    true          the same, or a second one for rows or columns instead of the batch
    "pointers"    any number for the batch, which is a list of pointers
    "modes"       any number for all of them

and its formats, if it has any, name the axes of stride 1. A direct kernel supports all formats in which the op has a direct
lowering.
"""

from collections.abc import Mapping
from math import sqrt
from typing import TypeAlias

from layoutopt.cost import PropagatedFormats
from layoutopt.cost_models.spec import KernelSpec, TargetSpec, expand
from layoutopt.formats import Format, Shape, volume
from layoutopt.ir.types import DType, Op, Slot
from layoutopt.ops import LayoutRule, estimated_volume
from layoutopt.ops.contraction import AxisKind
from layoutopt.record import Record

_INNERMOST: dict[tuple[str, str], AxisKind] = {
    ("a", "M"): "rows",
    ("a", "N"): "summed",
    ("b", "M"): "summed",
    ("b", "N"): "columns",
    ("y", "M"): "rows",
    ("y", "N"): "columns",
}

Formats: TypeAlias = Mapping[Slot, Format]


class BoundKernel(Record):
    """A kernel of the target, bound to one op.

    Attributes:
        kernel: the kernel's row in the target file.
        dtype: the element type of the operand x (or a).
        roles: the slots of the operand roles x, w, y (or a, b, y) that the op has.
        shapes: the shapes of the operands in these slots.
        formats: the required formats of the slots that the row names; canonical ones for a strided row without formats.
        op: the op.
        rule: its layout rule.
    """

    kernel: KernelSpec
    dtype: DType
    roles: Mapping[str, Slot]
    shapes: Mapping[Slot, Shape]
    formats: Formats
    op: Op
    rule: LayoutRule

    def supports(self, formats: Formats, is_layout_agnostic: bool) -> bool:
        """Whether the kernel reads and writes operands in these formats.

        Args:
            formats: of the operands.
            is_layout_agnostic: whether the op has a direct lowering in these formats.
        """
        if self.kernel.direct:
            return is_layout_agnostic
        if self.kernel.strided:
            return self._supports_strides(formats)
        operands = ((slot, format, self.shapes[slot]) for slot, format in self.formats.items())
        return all(slot in formats and formats[slot].same_bytes(format, shape) for slot, format, shape in operands)

    def _supports_strides(self, formats: Formats) -> bool:
        """Whether the kernel has strides for all modes of the operands, and stride 1 for the axes that it requires."""
        modes = self.rule.modes(self.op, formats)
        if modes is None or not modes.is_contiguous:
            return False
        if self.kernel.strided == "matrices" and max(modes.rows, modes.columns) > 1:
            return False
        if self.kernel.strided != "modes" and not modes.is_strided:
            return self.kernel.strided == "pointers" and modes.is_batched
        required = {self.roles[role]: _INNERMOST[role, text[-1]] for role, text in self.kernel.formats.items()}
        return all(modes.innermost.get(slot, kind) == kind for slot, kind in required.items())

    def padding(self, formats: Formats) -> float:
        """The ratio of padded to logical iterations, by which the arithmetic is multiplied.

        The ratio of a matrix product, which iterates over m, k and n, is the square root of the product of the ratios of its
        operands, which have the axes mk, kn and mn. The ratio of other ops is the largest ratio of an operand: the filter of a
        convolution has all padded axes.
        """
        ratios = {
            role: estimated_volume(formats[slot].padded_shape(self.shapes[slot]))
            / max(estimated_volume(self.shapes[slot]), 1)
            for role, slot in self.roles.items()
            if slot in formats
        }
        if "a" in ratios:
            return sqrt(ratios["a"] * ratios.get("b", 1.0) * ratios.get("y", 1.0))
        return max(ratios.values(), default=1.0)

    def is_aligned(self, formats: Formats) -> bool:
        """Whether the unit-stride extents of all operands but filters are multiples of `align`, if they are static."""
        if self.kernel.align is None:
            return True
        for role, slot in self.roles.items():
            if role == "w" or slot not in formats:
                continue
            physical = formats[slot].physical_shape(self.shapes[slot])
            if physical and isinstance(physical[-1], int) and physical[-1] % self.kernel.align.value:
                return False
        return True


def bind(spec: TargetSpec, op: Op, rule: LayoutRule) -> list[BoundKernel]:
    """The kernels of a target that can run an op, in some formats."""
    roles = {role: slot for role, slot in rule.roles(op).items() if op.operand(slot) is not None}
    values = {slot: value for slot in roles.values() if (value := op.operand(slot)) is not None}
    shapes = {slot: value.shape for slot, value in values.items() if value.shape is not None}
    dtypes = {slot: value.dtype for slot, value in values.items() if value.dtype is not None}
    lead = roles.get("x", roles.get("a"))
    if lead is None or len(shapes) < len(roles):
        return []

    def formats_of(kernel: KernelSpec) -> Formats | None:
        """The formats that a kernel requires; None if they do not fit the operands."""
        if kernel.strided and not kernel.formats:
            is_matrix = all(len(shape) >= 2 for shape in shapes.values())
            return {slot: Format.canonical(len(shape)) for slot, shape in shapes.items()} if is_matrix else None
        formats: dict[Slot, Format] = {}
        for role, text in kernel.formats.items():
            if role not in roles:
                return None
            slot = roles[role]
            is_transposed = rule.family == "transposed_convolution" if role == "w" else rule.is_transposed(op, slot)
            format = expand(text, len(shapes[slot]), spec.block(dtypes[slot]), is_transposed)
            if format is None or not format.fits(shapes[slot]):
                return None
            formats[slot] = format
        return formats if kernel.proposes else PropagatedFormats(formats)

    variant = rule.variant(op)
    return [
        BoundKernel(kernel, dtypes[lead], roles, shapes, formats, op, rule)
        for kernel in spec.kernel
        if rule.family in kernel.family
        and dtypes[lead].label in kernel.dtypes
        and (kernel.ops is None or op.op_type in kernel.ops)
        and (kernel.variant is None or variant in kernel.variant)
        and _is_applicable(kernel, op, rule, shapes[lead])
        and (formats := formats_of(kernel)) is not None
    ]


def _is_applicable(kernel: KernelSpec, op: Op, rule: LayoutRule, shape: Shape) -> bool:
    """Whether the kernel supports the sizes and the result type of an op; symbolic extents are not supported.

    Args:
        kernel: the kernel.
        op: the op.
        rule: its layout rule.
        shape: the shape of x.
    """
    result = op.outputs[0] if op.outputs else None
    if kernel.results is not None and (
        result is None or result.dtype is None or result.dtype.label not in kernel.results
    ):
        return False
    batch, channels = (*shape, 1, 1)[:2]
    least, most, multiple = kernel.min_batch, kernel.max_channels, kernel.channel_multiple
    if least is not None and (not isinstance(batch, int) or batch < least.value):
        return False
    if kernel.pixel_multiple is not None:
        pixels, symbols = volume(shape[2:])
        if rule.mapped_axis(op) != 1 or symbols or pixels % kernel.pixel_multiple.value:
            return False
    if most is None and multiple is None:
        return True
    if not isinstance(channels, int):
        return False
    return (most is None or channels <= most.value) and (multiple is None or channels % multiple.value == 0)
