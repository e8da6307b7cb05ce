"""Passes on lowered graphs with blocked arrays."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version

import numpy as np
from msgspec import field

from layoutopt.cost.prices import BLOCKS
from layoutopt.dialects.onnxruntime.writers import DOMAIN
from layoutopt.formats import Shape
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, Attribute, Op, Value, float32_type
from layoutopt.ops import estimated_extent
from layoutopt.ops.axiswise import clip_bounds
from layoutopt.ops.region_ops import regions_with_rule
from layoutopt.passes.base import Pass, PassContext
from layoutopt.record import Record

_CONV = f"{DOMAIN}::Conv"


class Activation(Record):
    """An activation of the blocked convolution.

    Attributes:
        share: the time that it adds to a blocked 1x1 convolution, divided by its time alone: medians over four shapes of up to
            0.9 MiB, measured with onnxruntime 1.32 on an AMD EPYC with AVX2.
        parameters: its attributes, with their defaults, in the order of the convolution's `activation_params`.
        since: the first onnxruntime whose convolution has it.
    """

    share: float
    parameters: Mapping[str, float] = field(default_factory=dict)
    since: tuple[int, ...] = (0,)


ACTIVATIONS: Mapping[str, Activation] = {
    "Relu": Activation(0.15),
    "HardSwish": Activation(0.45, since=(1, 31)),
    "HardSigmoid": Activation(0.9, {"alpha": 0.2, "beta": 0.5}),
    "LeakyRelu": Activation(0.9, {"alpha": 0.01}),
    "Sigmoid": Activation(0.95),
    "Tanh": Activation(0.95),
    "Clip": Activation(1.0),
}


class FuseIntoConvolutions(Pass):
    """Fuse per-channel affines, residuals and activations into the blocked convolution before them.

    before: Conv -> Add(residual) -> Relu
    after:  Conv(activation = Relu, sum = residual)
    """

    name = "fuse-into-convolutions"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Fuse per-channel convolutions first, then residuals, then activations."""
        for op in graph.ops:
            if op.kind == _CONV:
                _fuse_affine(graph, op)
        for op in graph.ops:
            if op.op_type == "Add":
                _fuse_residual(graph, op)
        for op in graph.ops:
            if is_fusable_activation(op):
                _fuse_activation(graph, op)


def _fuse_affine(graph: Graph, conv: Op) -> None:
    """Merge a depthwise 1x1 convolution into another one before it, or a shift into the bias of any convolution before it."""
    before, second = _fusable_conv(graph, conv.x), _affine_of(conv)
    if before is None or second is None:
        return
    first, (scale, shift) = _affine_of(before), second
    if first is None and (len(before.inputs) > 2 or bool((scale != 1).any())):
        return
    arrays: list[Array] = [shift]
    if first is not None:
        arrays = [(first[0] * scale).reshape(-1, 1, 1, 1), first[1] * scale + shift]
    constants = [graph.new_constant(each.astype(np.float32), f"{conv.name}/fused") for each in arrays]
    graph.set_inputs(before, (*before.inputs[: 3 - len(constants)], *constants))
    graph.replace_value(conv.y, conv.x)


def _affine_of(conv: Op) -> tuple[Array, Array] | None:
    """Scale and shift in float64 of a convolution that is a per-channel affine; None if it is none."""
    filter, others = conv.input(1), conv.attributes.keys() - {"group", "kernel_shape"}
    if filter is None or filter.shape != (conv.integer("group"), 1, 1, 1) or others or len(conv.inputs) > 3:
        return None
    weight = conv.constant(1)
    bias = conv.constant(2) if len(conv.inputs) > 2 else np.zeros(conv.integer("group"))
    if weight is None or bias is None:
        return None
    return weight.reshape(-1).astype(np.float64), bias.astype(np.float64)


def _fusable_conv(graph: Graph, value: Value | None) -> Op | None:
    """The blocked convolution without an activation that computes a value with one use; None if there is none."""
    producer = graph.only_producer(value)
    is_fusable = producer is not None and producer.kind == _CONV and "activation" not in producer.attributes
    return producer if is_fusable else None


def _fuse_residual(graph: Graph, add: Op) -> None:
    if len(add.inputs) != 2 or add.inputs[0] is add.inputs[1]:
        return
    for index in (1, 0):
        x, other = add.inputs[index], add.inputs[1 - index]
        conv = _fusable_conv(graph, x)
        if conv is None or x is None or other is None or len(conv.inputs) > 3 or x.shape != other.shape:
            continue
        graph.set_inputs(conv, (*conv.inputs, *(None,) * (3 - len(conv.inputs)), other))
        graph.replace_value(add.y, x)
        return


def _fuse_activation(graph: Graph, op: Op) -> None:
    conv, reshape = _fusable_conv(graph, op.x), graph.only_producer(op.x)
    if conv is None and reshape is not None and reshape.kind == "Reshape":
        conv = _fusable_conv(graph, reshape.x)
    if conv is None:
        return
    if op.op_type == "Clip":
        bounds = [bound for bound in clip_bounds(op) if bound is not None]
        if len(bounds) < 2:
            return
        conv.attributes["activation_params"] = tuple(bound.item() for bound in bounds)
    elif parameters := ACTIVATIONS[op.op_type].parameters:
        numbers = [op.attributes.get(name, default) for name, default in parameters.items()]
        conv.attributes["activation_params"] = tuple(float(each) for each in numbers if isinstance(each, float | int))
    conv.attributes["activation"] = op.op_type
    if conv.y is not op.x:  # its name is that of the value before the activation
        graph.rename(conv.y, graph.fresh_name(f"{conv.y.name}_{op.op_type}"))
    graph.replace_value(op.y, op.x)


def is_fusable_activation(op: Op) -> bool:
    """Whether the blocked convolution of the installed onnxruntime has the activation."""
    return op.kind in ACTIVATIONS and _onnxruntime_version() >= ACTIVATIONS[op.kind].since


@cache
def _onnxruntime_version() -> tuple[int, ...]:
    """Major and minor version of the onnxruntime that is installed."""
    return tuple(int(number) for number in version("onnxruntime").split(".")[:2])


CHANNELS = {8: 24, 16: 12}
"""The number of channels, by block size, that a convolution accepts with this block and refuses with the other one."""

NAME = "this model is packed for blocks of {} channels, and this machine has others"
_PACKED = re.compile(re.escape(NAME).replace(r"\{\}", r"(\d+)"))


class CheckBlockSize(Pass):
    """Add a convolution that fails on machines with another block size, where the results of the model would be wrong.

    before: x -> Conv(bias = b)
    after:  constant of 12 or 24 channels -> Conv(filter = 0, bias = b) -> Reshape -> bias of Conv

    onnxruntime's blocked convolution refuses inputs whose channels are neither fewer than a block nor whole blocks. So a
    convolution of 12 channels runs where a block is 16, and fails where it is 8; 24 channels do the opposite. The check is
    such a convolution, with filters of zeros, whose result is the bias of the first convolution of the model: kernels behind
    it might write beyond their results. It takes 2 us per run. onnxruntime's error contains the name of the node, which
    states the fault. onnxruntime never folds an op of this domain, since it does not list it as deterministic.
    """

    name = "check-block-size"
    justifies_rewrite = False
    handles_bodies = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Add the check in front of the first blocked convolution with a constant bias, or without one.

        It is in the main graph, so that it runs exactly once; bodies capture its result.
        """
        block = context.block
        blocked = [(each, op) for each in regions_with_rule(graph) for op in each.ops if op.domain == DOMAIN]
        if not blocked or block == 0:
            return
        for owner, op in blocked:
            bias = _bias(op)
            if bias is not None:
                flat = graph.new_constant(np.asarray([-1], dtype=np.int64), "block_guard/constant")
                checked = _add(graph, "Reshape", (_checked_bias(graph, block, bias), flat), bias.shape)
                captured = _captured(graph, owner, checked)
                owner.set_inputs(op, (*op.inputs[:2], captured, *op.inputs[3:]))
                return
        context.reason_to_keep = "no convolution with a constant bias can check the block size of a machine"


def packed_block(names: Iterable[str]) -> int | None:
    """The block size that a model is packed for, from the names of its nodes; None if it has no block-size check."""
    matches = (_PACKED.search(name) for name in names)
    return next((int(match[1]) for match in matches if match), None)


def block_mismatch(packed: int, block: int | None, runtime: str) -> str:
    """The reason why a model that is packed for one block size does not run where `runtime` has another one, or none."""
    here = f"those of {runtime} have {block} here" if block else f"{runtime} has no blocked kernels here"
    return f"it is packed for blocks of {packed} channels, and {here}"


def _captured(graph: Graph, owner: Graph, value: Value) -> Value:
    """The value in a body that corresponds to a value of the main graph, captured by every op around the body."""
    around = {body: (each, op) for each in regions_with_rule(graph) for op in each.ops for body in op.bodies.values()}
    path = []
    while owner is not graph:
        outer, op = around[owner]
        path.append((outer, op, owner))
        owner = outer
    for outer, op, body in reversed(path):
        captured = outer.capture(op, value)
        value = captured[list(op.bodies.values()).index(body)]
    return value


def _bias(conv: Op) -> Array | None:
    """The constant bias of a convolution, zeros if it has none; None if it is no convolution or computes its bias."""
    if conv.op_type != "Conv":
        return None
    weight = conv.inputs[1]
    assert weight is not None
    if conv.input(2) is None:
        return np.zeros(estimated_extent(weight.dims[0]), dtype=np.float32)
    return conv.constant(2)


def _checked_bias(graph: Graph, block: int, bias: Array) -> Value:
    """A value of shape (1, len(bias), 1, 1) that is `bias`, computed by a kernel that refuses other block sizes."""
    channels = CHANNELS[block]
    ones, zeros = np.ones((1, channels, 1, 1)), np.zeros((bias.size, channels, 1, 1))
    inputs = [graph.new_constant(each.astype(np.float32), "block_guard/constant") for each in (ones, zeros, bias)]
    return _add(graph, _CONV, inputs, (1, bias.size, 1, 1), NAME.format(block), kernel_shape=(1, 1))


def _add(
    graph: Graph, kind: str, inputs: Sequence[Value], extents: Shape, name: str = "", **fields: Attribute
) -> Value:
    """The output of a new op in front of those of the model."""
    stem = f"block_guard/{kind.rpartition('::')[2]}"
    type = float32_type(extents)
    return graph.new_result(kind, tuple(inputs), type, stem, first=True, name=name, attributes=fields)


class DeclarePaddedChannels(Pass):
    """Write a Reshape behind a ReorderInput whose number of padded channels depends on the machine.

    before: x -> ReorderInput -> Mul
    after:  x -> ReorderInput -> Reshape(0, 24, 0, 0) -> Mul

    When onnxruntime loads a model it infers that a ReorderInput pads the channels to the blocks of the machine. 20 channels
    are 24 where a block is 8, and 32 where it is 16; an operator with another operand of the declared extent then fails at
    session creation, before the block-size check runs, even in a branch of a portable model that is never taken. The Reshape
    fails when it runs, so its name is the message of that check. It moves no data and takes 1 us. Blocked convolutions do not
    require it, since onnxruntime does not infer from their channels.
    """

    name = "declare-padded-channels"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit the ReorderInput ops that an op other than a blocked convolution reads."""
        for op in graph.ops:
            is_reorder = op.kind == f"{DOMAIN}::ReorderInput" and _depends_on_machine(op)
            if is_reorder and any(reader.kind != _CONV for reader in graph.readers(op.y)):
                _declare(graph, op, NAME.format(context.block))


def _depends_on_machine(reorder: Op) -> bool:
    """Whether the channels of an image fill another number of channels in blocks of 8 than in blocks of 16."""
    channels = reorder.x.dims[3 if reorder.integer("channels_last", 0) else 1]
    return not isinstance(channels, int) or len({-(-channels // block) * block for block in BLOCKS}) > 1


def _declare(graph: Graph, reorder: Op, name: str) -> None:
    """Let the readers of a reordered image read it behind a Reshape to its shape; 0 keeps an extent."""
    y = reorder.y
    uses, shape = graph.uses(y), graph.new_constant(np.asarray([0, y.dims[1], 0, 0]), f"{y.name}/channels")
    declared = graph.new_result("Reshape", (y, shape), y.type, f"{y.name}/declared", reorder, name=name)
    graph.replace_uses(y, declared, uses)
