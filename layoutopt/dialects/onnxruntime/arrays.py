"""Declarations of blocked arrays for onnxruntime: (N, C, H, W), C padded to the block, stored as (N, C/b, H, W, b)."""

from collections.abc import Sequence
from dataclasses import dataclass

from layoutopt.dialects.builder import OpBuilder
from layoutopt.formats import Format, Shape
from layoutopt.ir.types import Attribute, DType, Op, Slot, TensorType, Value
from layoutopt.ops import estimated_extent

DOMAIN = "com.microsoft.nchwc"
BLOCKS = (8, 16)  # without and with AVX-512


@dataclass(frozen=True, slots=True)
class BlockedArrays:
    """The block sizes of onnxruntime's blocked kernels, and the declared shapes of blocked arrays.

    Attributes:
        blocks: the block sizes of the kernels. Formats with other blocks are not blocked arrays: a split of heads by
            8 is none for kernels with blocks of 16.
    """

    blocks: tuple[int, ...] = BLOCKS

    def declared_shape(self, format: Format, shape: Shape) -> Shape:
        """The shape of an array: four axes for blocked feature maps and filters; signals are 1 high."""
        if self.feature_block(format):
            batch, channels, *image, block = format.physical_shape(shape)
            return (batch, estimated_extent(channels) * estimated_extent(block), *(1,) * (2 - len(image)), *image)
        if self.filter_block(format):
            filters, channels, *kernel = format.padded_shape(shape)
            return (filters, channels, *(1,) * (2 - len(kernel)), *kernel)
        return format.physical_shape(shape)

    def feature_block(self, format: Format) -> int:
        """The block b of a format with the parts (N, C/b, H, W, b) or (N, C/b, W, b), for axes in any order; else 0."""
        parts = format.parts
        if format.rank not in (3, 4) or len(parts) != format.rank + 1 or any(part.block for part in parts[:-1]):
            return 0
        channels = parts[-1]
        return channels.block if channels.axis == parts[1].axis and channels.block in self.blocks else 0

    def filter_block(self, format: Format) -> int:
        """The block of OIHW{b}i{b}o or OIHW{b}o, or of those without H; 0 for any other format."""
        for block in self.blocks:
            if str(format) in (
                f"{axes}{blocks}" for axes in ("NCHW", "NCW") for blocks in (f"{block}c{block}n", f"{block}n")
            ):
                return block
        return 0

    def is_blocked(self, op: Op, slot: Slot) -> bool:
        """Whether an operand is a blocked feature map."""
        storage = op.signature[slot] if op.signature is not None else None
        return storage is not None and bool(self.feature_block(storage.format))


def float32_type(shape: Shape) -> TensorType:
    """The float32 tensor type of a shape, which is the type of all operands of these kernels."""
    return TensorType(DType.FLOAT32, shape)


def kernel_call(
    builder: OpBuilder, kind: str, inputs: Sequence[Value | None], shape: Shape, **fields: Attribute
) -> Value:
    """The output of a new kernel call of the domain."""
    (result,) = builder.op(kind, inputs, [float32_type(shape)], fields, DOMAIN)
    return result
