"""Which ops onnxruntime itself runs in blocked formats (`com.microsoft.nchwc`), in models that do not name them.

    blocks its input and output    Conv, pooling
    stays blocked behind those     Add, BatchNormalization, Concat, Mul, Resize, Sum, activations

The conditions were found by loading models of one to three ops into onnxruntime 1.32 and reading the graphs that it runs;
`tests/unit/test_default_blocks.py` does the same. Blocked images have four axes; pooling and Concat need channels that the
block divides, convolutions a multiple of four input channels, or fewer than a block.
"""

from collections.abc import Set

from layoutopt.dialects.onnxruntime.arrays import BlockedArrays
from layoutopt.dialects.onnxruntime.passes.fuse_into_convolutions import ACTIVATIONS
from layoutopt.ir.types import DType, Op, Signature, Storage, Value
from layoutopt.ops import X, Y, rule_of
from layoutopt.ops.feature_maps import Resize

_IMAGES = BlockedArrays()
_VECTOR = 4  # channels that ReorderInput moves at once
_ACTIVATIONS = frozenset({*ACTIVATIONS, "Gelu", "com.microsoft::Gelu", "com.microsoft::QuickGelu"})
_NOT_IN_UPSAMPLE = "pytorch_half_pixel"  # coordinates for which onnxruntime does not choose nchwc.Upsample


def block_of(storage: Storage | None) -> int:
    """The channels of a block of an image; 0 if it is not blocked."""
    return 0 if storage is None or storage.format.rank != 4 else _IMAGES.feature_block(storage.format)


def blocks_by_default(op: Op, block: int) -> bool:
    """Whether onnxruntime runs an op as a blocked kernel, with conversions where its neighbours are not blocked.

    Args:
        op: an op of a graph in canonical formats.
        block: the channels of a block: 8 or 16; 0 if the target has none for the op.
    """
    rule, channels = rule_of(op), _channels(op)
    if rule is None or channels is None or not block:
        return False
    if rule.family == "convolution":
        return _blocks_convolution(op, channels, block)
    has_indices = len([y for y in op.outputs if y is not None]) > 1
    return rule.family in ("pooling", "global_pooling") and channels % block == 0 and not has_indices


def is_chosen_by_default(op: Op, signature: Signature) -> bool:
    """Whether a signature is that of the blocked kernel as which onnxruntime runs an op by itself."""
    return blocks_by_default(op, max(block_of(signature[X]), block_of(signature[Y])))


def _blocks_convolution(op: Op, channels: int, block: int) -> bool:
    w = op.inputs[1]
    if w is None or not w.is_constant or w.shape is None or not all(isinstance(dim, int) for dim in w.shape[:2]):
        return False
    outputs, inputs_per_group = (int(dim) for dim in w.shape[:2] if isinstance(dim, int))
    group = op.integer("group", 1)
    if group == 1:
        return channels < block or channels % _VECTOR == 0
    if inputs_per_group == 1 and outputs == group:
        return channels % _VECTOR == 0
    return inputs_per_group % block == 0 and (outputs // group) % block == 0


def stays_blocked(op: Op, blocked: Set[Value], block: int) -> bool:
    """Whether onnxruntime runs an op on blocked operands that it has.

    Args:
        op: an op that is not blocked for itself.
        blocked: the values that are blocked.
        block: the channels of a block.
    """
    x = op.inputs[0] if op.inputs else None
    if x not in blocked:
        return False
    if op.kind in _ACTIVATIONS or op.kind == "BatchNormalization":
        return True
    if op.kind == "Resize":
        return _stays_blocked_resized(op)
    operands = [each for each in op.inputs if each is not None]
    if not all(each in blocked for each in operands):
        return False
    if op.kind == "Concat":
        are_whole = all(isinstance(dim := _dim(each, 1), int) and dim % block == 0 for each in operands)
        return op.integer("axis") in (1, -3) and are_whole
    has_equal_shapes = len({each.shape for each in operands}) == 1
    return op.kind == "Add" or (op.kind in ("Mul", "Sum") and has_equal_shapes)


def _stays_blocked_resized(op: Op) -> bool:
    """Whether the resampling has a kernel for blocked arrays, which onnxruntime chooses."""
    rule = rule_of(op)
    if not isinstance(rule, Resize):
        return False
    coordinates = rule.coordinate_mode(op)
    if rule.variant(op) == "repeat":
        return coordinates == "asymmetric"
    return rule.variant(op) == "whole linear" and coordinates != _NOT_IN_UPSAMPLE


def _channels(op: Op) -> int | None:
    """The channels of a float32 image; None for any other operand."""
    x = op.inputs[0] if op.inputs else None
    if x is None or x.rank != 4 or x.dtype != DType.FLOAT32:
        return None
    found = _dim(x, 1)
    return found if isinstance(found, int) else None


def _dim(value: Value, axis: int) -> object:
    return None if value.shape is None else value.shape[axis]


__all__ = ["block_of", "blocks_by_default", "is_chosen_by_default", "stays_blocked"]
