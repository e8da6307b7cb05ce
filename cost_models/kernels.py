"""Kernel rows of a target, bound to an op: what formats they mean for it, which signatures are theirs.

A signature belongs to a row if every operand that the row names lies in the row's format, as bytes: for
H = W = 1 a tensor in NCHW is one in NHWC. A strided row instead takes operands of a product by how many strides it
would need for them (`layoutopt.ops.interfaces.contraction_modes`):

    true          one each for rows, columns, what is summed and batches: leading dimensions
    "pointers"    any number for batches, which are pointers
    "modes"       any number for all of them

and then its formats, if it has any, only say which axes have the stride 1. A direct row takes whatever formats make
the op the same op on the arrays as they lie.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any, TypeAlias

from layoutopt.cost_models.spec import Kernel, TargetSpec
from layoutopt.cost_models.templates import expand
from layoutopt.formats import Format, Shape
from layoutopt.ir.types import DType, Op, Slot
from layoutopt.ops import LayoutRule, X, estimated_volume
from layoutopt.ops.interfaces.contraction_modes import ContractionOp, Kind
from layoutopt.ops.interfaces.kernel_formats import KernelFormats

_INNERMOST: dict[tuple[str, str], Kind] = {
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
    """A kernel row for one op.

    Attributes:
        kernel: the row.
        dtype: the element type that it works on.
        roles: the slots of x, w, y (or a, b, y) that the op has.
        shapes: of the operands in those slots.
        formats: what the row wants at the slots it names; canonical ones for a strided row without.
        keys: the same as bytes.
        op: the op.
        rule: its rule.
    """

    kernel: Kernel
    dtype: DType
    roles: Mapping[str, Slot]
    shapes: Mapping[Slot, Shape]
    formats: Formats
    keys: Mapping[Slot, Key]
    op: Op
    rule: LayoutRule

    def takes(self, formats: Formats, is_layout_agnostic: bool) -> bool:
        """Whether operands in these formats, in which the op may be the same op, are what the kernel reads and writes."""
        if self.kernel.direct:
            return is_layout_agnostic
        if self.kernel.strided:
            return self._strides_suit(formats)
        if isinstance(self.rule, KernelFormats):
            formats = self.rule.kernel_formats(self.op, formats)
        return all(slot in formats and formats[slot].key(self.shapes[slot]) == key for slot, key in self.keys.items())

    def _strides_suit(self, formats: Formats) -> bool:
        """Whether the kernel has strides for all modes of the operands, and stride 1 where it wants it."""
        modes = self.rule.modes(self.op, formats) if isinstance(self.rule, ContractionOp) else None
        if modes is None or not modes.contiguous:
            return False
        if self.kernel.strided != "modes" and not modes.is_strided:
            return self.kernel.strided == "pointers" and modes.is_batched
        wanted = {self.roles[role]: _INNERMOST[role, text[-1]] for role, text in self.kernel.formats.items()}
        return all(modes.innermost.get(slot, kind) == kind for slot, kind in wanted.items())

    def padding(self, formats: Formats) -> float:
        """How much more arithmetic the padded problem is: padded over logical iterations.

        An operand sees its own axes only. A matrix product iterates over m, k, n, its operands have mk, kn,
        mn, so it is the root of their product; a filter has all axes of a convolution that are ever padded.
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

    def aligned(self, formats: Formats) -> bool:
        """Whether the unit-stride extents of all operands but filters suit the kernel; symbolic ones do."""
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
    """The rows of a target that can run an op."""
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
            or not _suits(kernel, op, value.shape)
        ):
            continue
        row = _bind_row(spec, kernel, op, rule, roles)
        if row is not None:
            bound.append(row)
    return bound


def _suits(kernel: Kernel, op: Op, shape: Shape) -> bool:
    """Whether samples, channels and result of an op are what the kernel is for; extents without a number are not."""
    result = op.outputs[0] if op.outputs else None
    if kernel.results is not None and (
        result is None or result.dtype is None or result.dtype.label not in kernel.results
    ):
        return False
    batch, channels = (*shape, 1, 1)[:2]
    least, most, multiple = kernel.min_batch, kernel.max_channels, kernel.channel_multiple
    if least is not None and (isinstance(batch, str) or batch < least.value):
        return False
    if most is None and multiple is None:
        return True
    return not (
        isinstance(channels, str)
        or (most is not None and channels > most.value)
        or (multiple is not None and channels % multiple.value)
    )


def _bind_row(
    spec: TargetSpec, kernel: Kernel, op: Op, rule: LayoutRule, roles: Mapping[str, Slot]
) -> BoundKernel | None:
    """A row for an op; None if its formats do not fit the operands."""
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
        if role == "w":
            is_transposed: bool | None = rule.family == "transposed_convolution"
        else:
            is_transposed = rule.is_transposed(op, slot) if isinstance(rule, ContractionOp) else False
        if is_transposed is None and not kernel.strided:
            return None
        format = expand(text, len(shape), spec.block(dtypes[slot]), bool(is_transposed))
        if format is None or not format.fits(shape):
            return None
        formats[slot] = format
    keys = {slot: format.key(shapes[slot]) for slot, format in formats.items()}
    return BoundKernel(kernel, dtype, roles, shapes, formats, keys, op, rule)


def has_operand(op: Op, slot: Slot) -> bool:
    """Whether the op has a tensor at a slot."""
    values = op.inputs if slot.side == "in" else op.outputs
    return slot.index < len(values) and values[slot.index] is not None


__all__ = ["BoundKernel", "Formats", "bind", "has_operand"]
