"""The ops that onnxruntime itself runs in blocked formats, and those that become part of blocked convolutions."""

from collections.abc import Iterator, Mapping, Set

from layoutopt.dialects.onnxruntime.blocked_passes import ACTIVATIONS, is_fusable_activation
from layoutopt.dialects.onnxruntime.writers import KINDS, PER_CHANNEL_KINDS, BlockedArrays
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType, Op, Signature, Storage, Value
from layoutopt.ops import View, X, Y, facts, rule_of
from layoutopt.ops.feature_maps import Resize
from layoutopt.ops.region_ops import regions_with_rule

# Which ops onnxruntime itself runs in blocked formats (`com.microsoft.nchwc`), in models that do not name them.
#
#     blocks its input and output    Conv, pooling
#     stays blocked behind those     Add, BatchNormalization, Concat, Mul, Resize, Sum, activations
#
# The conditions were found by loading models of one to three ops into onnxruntime 1.32 and reading the graphs that it
# runs; `tests/unit/test_default_blocks.py` does the same. Blocked images have four axes; pooling and Concat need channels
# that the block divides, convolutions a multiple of four input channels, or fewer than a block.

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
    has_indices = len(op.present_outputs) > 1
    return rule.family in ("pooling", "global_pooling") and channels % block == 0 and not has_indices


def is_chosen_by_default(op: Op, signature: Signature) -> bool:
    """Whether a signature is that of the blocked kernel as which onnxruntime runs an op by itself.

    The plain format of an image of one element has the bytes of a blocked one, so that only the filter is blocked.
    """
    storages = [each for each in (*signature.inputs, *signature.outputs) if each is not None]
    return blocks_by_default(op, max(max(block_of(each), _IMAGES.filter_block(each.format)) for each in storages))


def _blocks_convolution(op: Op, channels: int, block: int) -> bool:
    w = op.inputs[1]
    if w is None or not w.is_constant or w.static_shape is None:
        return False
    outputs, inputs_per_group, *_ = w.static_shape
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
    x, rule = op.input(0), rule_of(op)
    if x not in blocked:
        return False
    if (
        isinstance(rule, Resize) and op.op_type == "Resize"
    ):  # which onnxruntime computes with a kernel for blocked arrays
        kind, coordinates = rule.variant(op), rule.coordinate_mode(op)
        is_repeated = kind == "repeat" and coordinates == "asymmetric"
        return is_repeated or (kind == "whole linear" and coordinates != _NOT_IN_UPSAMPLE)
    if op.kind in _ACTIVATIONS or op.kind == "BatchNormalization":
        return True
    operands = op.present_inputs
    if not all(each in blocked for each in operands):
        return False
    if op.kind == "Concat":
        channels = [each.dims[1] for each in operands]
        return op.integer("axis") in (1, -3) and all(isinstance(dim, int) and dim % block == 0 for dim in channels)
    has_equal_shapes = len({each.shape for each in operands}) == 1
    return op.kind == "Add" or (op.kind in ("Mul", "Sum") and has_equal_shapes)


def _channels(op: Op) -> int | None:
    """The channels of a float32 image; None for any other operand."""
    x = op.input(0)
    found = x.dims[1] if x is not None and x.rank == 4 and x.dtype is DType.FLOAT32 else None
    return found if isinstance(found, int) else None


# The ops that `fuse-into-convolutions` makes part of blocked convolutions, and what they still cost.
#
#     Conv -> Add(residual) -> Relu      one convolution with a residual and an activation
#     Sub -> Mul -> Add -> Relu          with one number per channel: one depthwise 1x1 convolution with bias and activation
#
# onnxruntime computes most activations in a pass over the result of the convolution, which saves little more than a node.

_RESIDUAL_SHARE = 0.7
"""As `Activation.share`, of the sum with a residual."""


_ACTIVATED, _SUMMED, _SCALED = 1, 2, 3
"""The steps that can still become part of a convolution: an activation; a residual first; numbers per channel before that."""


def find_fused_tensors(graph: Graph, *, by_runtime: bool = False) -> dict[str, float]:
    """The tensors that these ops compute, by name, with the share of the time of the op alone that remains.

    In the graph and its bodies; planning renames values, not tensors.

    Args:
        graph: the graph, not planned yet.
        by_runtime: whether only those count that onnxruntime fuses by itself: no numbers per channel.
    """
    return dict(pair for each in regions_with_rule(graph) for pair in _fused_in(each, by_runtime))


def _fused_in(graph: Graph, by_runtime: bool) -> Iterator[tuple[str, float]]:
    stages: dict[Value | None, int] = {}  # by result of a convolution, the first step
    for op in graph.ops:
        y, x = op.operand(Y), op.operand(X)
        stage, is_only_reader = stages.get(x, 0), graph.only_reader(x) is op
        if y is None:
            continue
        if op.kind in KINDS and "activation" not in op.attributes:
            stages[y] = _SCALED if op.op_type == "MatMul" else _SUMMED
        elif isinstance(rule_of(op), View) and is_only_reader:
            stages[y] = min(stage, _SUMMED)
        elif not by_runtime and (scaled := _depthwise_input(op)) is not None:
            if stages.get(scaled) == _SCALED and graph.only_reader(scaled) is op:
                yield y.tensor, 0.0
            stages[y] = _SCALED
        elif op.kind == "Add" and _adds_residual(graph, op, stages):
            yield y.tensor, _RESIDUAL_SHARE
            stages[y] = _ACTIVATED
        elif is_fusable_activation(op) and stage and is_only_reader:
            yield y.tensor, ACTIVATIONS[op.kind].share


def _depthwise_input(op: Op) -> Value | None:
    """The operand with which an op in blocks is a depthwise convolution: the other one is a constant number per channel."""
    affine = facts(op).affine(op) if op.kind in PER_CHANNEL_KINDS else None
    if affine is None or affine.axis is None or (op.kind == "Sub" and affine.index):
        return None
    return op.inputs[affine.index]


def _adds_residual(graph: Graph, add: Op, stages: Mapping[Value | None, int]) -> bool:
    """Whether an operand of an Add is the result of a convolution without other readers."""
    one, other = add.input(0), add.input(1)
    if one is None or other is None or one is other or one.shape != other.shape:
        return False
    return any(stages.get(each, 0) >= _SUMMED and graph.only_reader(each) is add for each in (one, other))
