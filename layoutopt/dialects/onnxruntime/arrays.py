"""How blocked arrays are declared to onnxruntime: (N, C, H, W), C padded to the block, though they lie as (N, C/b, H, W, b)."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from layoutopt.dialects.builder import OpBuilder
from layoutopt.formats import Format, Shape
from layoutopt.ir.types import Attribute, DType, Op, Slot, TensorType, Value
from layoutopt.ops import extent

DOMAIN = "com.microsoft.nchwc"
BLOCKS = (8, 16)  # without and with AVX-512

Writer: TypeAlias = Callable[[Op, OpBuilder], bool]
"""Writes an op with a kernel of the runtime; False if there is none for these operands."""

WRITERS: dict[str, Writer] = {}


def native(*kinds: str) -> Callable[[Writer], Writer]:
    """Decorator: what writes ops of these kinds."""

    def register(writer: Writer) -> Writer:
        WRITERS.update(dict.fromkeys(kinds, writer))
        return writer

    return register


def spell(format: Format, shape: Shape) -> Shape:
    """The shape that an array is declared with: four axes for blocked feature maps and filters."""
    if len(shape) == 4 and feature_block(format):
        batch, channels, height, width, block = format.physical_shape(shape)
        return (batch, extent(channels) * extent(block), height, width)
    return format.padded_shape(shape) if len(shape) == 4 and filter_block(format) else format.physical_shape(shape)


def feature_block(format: Format) -> int:
    """The block of a feature map that lies as (N, C/b, H, W, b) under whatever axes; 0 if it does not."""
    parts = format.parts
    if len(parts) != 5 or format.rank != 4 or any(part.block for part in parts[:4]):
        return 0
    channels = parts[4]
    return channels.block if channels.axis == parts[1].axis and channels.block in BLOCKS else 0


def filter_block(format: Format) -> int:
    """The block of OIHW{b}i{b}o or OIHW{b}o; 0 for any other format."""
    for block in BLOCKS:
        if str(format) in (f"NCHW{block}c{block}n", f"NCHW{block}n"):
            return block
    return 0


def is_blocked(op: Op, slot: Slot) -> bool:
    """Whether an operand is a blocked feature map."""
    storage = op.signature[slot] if op.signature is not None else None
    return storage is not None and bool(feature_block(storage.format))


def declared(op: Op, builder: OpBuilder, slot: Slot) -> Shape:
    """The shape of an operand's array in this dialect; with blocked storages four axes."""
    value = op.operand(slot)
    assert value is not None and value.shape is not None
    return spell(builder.format(slot), value.shape)


def floats(shape: Shape) -> TensorType:
    """The type of all that these kernels read and write."""
    return TensorType(DType.FLOAT32, shape)


def call(builder: OpBuilder, kind: str, inputs: Sequence[Value | None], shape: Shape, **fields: Attribute) -> Value:
    """Record a kernel of the domain, with one output."""
    (result,) = builder.op(kind, inputs, [floats(shape)], fields, DOMAIN)
    return result
