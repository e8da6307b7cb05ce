"""Matching of an op's signatures with the kernels of a target: the formats that each kernel requires for the op.

A kernel supports a signature if every operand that its row names has the bytes of the row's format: for H = W = 1 a
tensor in NCHW is also one in NHWC. A strided kernel instead supports operands of a matrix product by the number of strides
that they need (`layoutopt.ops.contraction`):

    true          one each for rows, columns, the contracted axis and the batch: leading dimensions
    "pointers"    any number for the batch, which is a list of pointers
    "modes"       any number for all of them

and its formats, if it has any, name the axes of stride 1. A direct kernel supports all formats in which the op has a direct
lowering.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any, TypeAlias

from layoutopt.cost_models.spec import KernelSpec, TargetSpec, expand
from layoutopt.formats import Format, Shape
from layoutopt.ir.types import DType, Op, Slot
from layoutopt.ops import LayoutRule, X, estimated_volume
from layoutopt.ops.contraction import AxisKind

_INNERMOST: dict[tuple[str, str], AxisKind] = {
    ("a", "M"): "rows",
    ("a", "N"): "summed",
    ("b", "M"): "summed",
    ("b", "N"): "columns",
    ("y", "M"): "rows",
    ("y", "N"): "columns",
}

Key: TypeAlias = tuple[Any, ...]
Formats: TypeAlias = Mapping[Slot, Format]


@dataclass(frozen=True, slots=True)
class BoundKernel:
    """A kernel of the target, bound to one op.

    Attributes:
        kernel: the kernel's row in the target file.
        dtype: the element type of the operand x (or a).
        roles: the slots of the operand roles x, w, y (or a, b, y) that the op has.
        shapes: the shapes of the operands in these slots.
        formats: the required formats of the slots that the row names; canonical ones for a strided row without formats.
        keys: the normal forms of these formats (`Format.key`).
        op: the op.
        rule: its layout rule.
    """

    kernel: KernelSpec
    dtype: DType
    roles: Mapping[str, Slot]
    shapes: Mapping[Slot, Shape]
    formats: Formats
    keys: Mapping[Slot, Key]
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
        return all(slot in formats and formats[slot].key(self.shapes[slot]) == key for slot, key in self.keys.items())

    def _supports_strides(self, formats: Formats) -> bool:
        """Whether the kernel has strides for all modes of the operands, and stride 1 for the axes that it requires."""
        modes = self.rule.modes(self.op, formats)
        if modes is None or not modes.is_contiguous:
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
    roles = {role: slot for role, slot in rule.roles(op).items() if has_operand(op, slot)}
    lead = roles.get("x", roles.get("a"))
    value = op.operand(lead) if lead is not None else None
    if value is None or value.dtype is None or value.shape is None:
        return []
    variant = rule.variant(op)
    bound: list[BoundKernel] = []
    for kernel in spec.kernel:
        if (
            rule.family not in kernel.family
            or value.dtype.label not in kernel.dtypes
            or (kernel.ops is not None and op.op_type not in kernel.ops)
            or (kernel.variant is not None and variant not in kernel.variant)
            or not _is_applicable(kernel, op, value.shape)
        ):
            continue
        row = _bind_row(spec, kernel, op, rule, roles)
        if row is not None:
            bound.append(row)
    return bound


def _is_applicable(kernel: KernelSpec, op: Op, shape: Shape) -> bool:
    """Whether the kernel supports the sizes and the result type of an op; symbolic extents are not supported.

    Args:
        kernel: the kernel.
        op: the op.
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
    if most is None and multiple is None:
        return True
    if not isinstance(channels, int):
        return False
    return (most is None or channels <= most.value) and (multiple is None or channels % multiple.value == 0)


def _bind_row(
    spec: TargetSpec, kernel: KernelSpec, op: Op, rule: LayoutRule, roles: Mapping[str, Slot]
) -> BoundKernel | None:
    """A kernel bound to an op; None if its formats do not fit the operands."""
    values = {slot: value for slot in roles.values() if (value := op.operand(slot)) is not None}
    shapes = {slot: value.shape for slot, value in values.items() if value.shape is not None}
    dtypes = {slot: value.dtype for slot, value in values.items() if value.dtype is not None}
    if len(shapes) < len(roles) or len(dtypes) < len(roles):
        return None
    dtype = dtypes[roles.get("x", roles.get("a", X))]
    if kernel.strided and not kernel.formats:
        if any(len(shape) < 2 for shape in shapes.values()):
            return None
        canonical = {slot: Format.canonical(len(shape)) for slot, shape in shapes.items()}
        return BoundKernel(kernel, dtype, roles, shapes, canonical, {}, op, rule)
    if kernel.direct:
        return BoundKernel(kernel, dtype, roles, shapes, {}, {}, op, rule)
    formats: dict[Slot, Format] = {}
    for role, text in kernel.formats.items():
        if role not in roles:
            return None
        slot = roles[role]
        shape = shapes[slot]
        is_transposed = rule.family == "transposed_convolution" if role == "w" else rule.is_transposed(op, slot)
        format = expand(text, len(shape), spec.block(dtypes[slot]), is_transposed)
        if format is None or not format.fits(shape):
            return None
        formats[slot] = format
    keys = {slot: format.key(shapes[slot]) for slot, format in formats.items()}
    return BoundKernel(kernel, dtype, roles, shapes, formats, keys, op, rule)


def has_operand(op: Op, slot: Slot) -> bool:
    """Whether the op has a value at a slot."""
    values = op.inputs if slot.side == "in" else op.outputs
    return slot.index < len(values) and values[slot.index] is not None
