"""Passes on lowered graphs with blocked arrays."""

import re
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from math import prod

import numpy as np

from layoutopt.dialects.builder import Packed, add_reshape
from layoutopt.dialects.onnxruntime.arrays import BLOCKS, DOMAIN
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, Attribute, DType, Op, OpaqueType, TensorType, Value
from layoutopt.ops import estimated_extent
from layoutopt.ops.region_ops import regions_with_rule
from layoutopt.passes.base import Pass, PassContext

ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "Clip", "LeakyRelu", "HardSigmoid", "HardSwish")
_SINCE = {"HardSwish": (1, 31)}  # the first onnxruntime whose convolution has the activation


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
            if op.op_type == "Conv" and op.domain == DOMAIN:
                _fuse_affine(graph, op)
        for op in graph.ops:
            if op.op_type == "Add":
                _fuse_residual(graph, op)
        for op in graph.ops:
            if is_fusable_activation(op):
                _fuse_activation(graph, op)


def _fuse_affine(graph: Graph, conv: Op) -> None:
    """Merge two depthwise 1x1 convolutions: (x * s1 + t1) * s2 + t2 is one."""
    before = _fusable_conv(graph, conv.inputs[0])
    first = _affine_of(before) if before is not None and len(before.inputs) <= 3 else None
    second = _affine_of(conv)
    if before is None or first is None or second is None:
        return
    for index, numbers in enumerate((first[0] * second[0], first[1] * second[0] + second[1]), 1):
        array = numbers.astype(np.float32).reshape((-1, 1, 1, 1) if index == 1 else (-1,))
        value = graph.new_constant(array, f"{conv.name}/fused")
        graph.set_inputs(before, (*before.inputs[:index], value, *before.inputs[index + 1 :]))
    assert conv.inputs[0] is not None
    _replace_output(graph, conv, conv.inputs[0])


def _affine_of(conv: Op) -> tuple[Array, Array] | None:
    """Scale and shift in float64 of a convolution that is a per-channel affine; None if it is none."""
    weight = conv.constant(1)
    if weight is None or weight.shape[1:] != (1, 1, 1) or conv.integer("group", 1) != weight.shape[0]:
        return None
    if len(conv.inputs) > 3 or "activation" in conv.attributes or any(conv.integers("pads")):
        return None
    if any(step != 1 for step in conv.integers("strides")):
        return None
    bias = conv.constant(2) if len(conv.inputs) > 2 else np.zeros(weight.shape[0])
    return None if bias is None else (weight.reshape(-1).astype(np.float64), bias.astype(np.float64))


def _fusable_conv(graph: Graph, value: Value | None) -> Op | None:
    """The blocked convolution without an activation that computes a value with one use; None if there is none."""
    producer = graph.only_producer(value)
    if producer is None or producer.op_type != "Conv" or producer.domain != DOMAIN:
        return None
    return None if "activation" in producer.attributes else producer


def _fuse_residual(graph: Graph, add: Op) -> None:
    if len(add.inputs) != 2 or add.inputs[0] is add.inputs[1]:
        return
    for index in (1, 0):
        x, other = add.inputs[index], add.inputs[1 - index]
        conv = _fusable_conv(graph, x)
        if conv is None or x is None or other is None or len(conv.inputs) > 3 or x.shape != other.shape:
            continue
        graph.set_inputs(conv, (*conv.inputs, *(None,) * (3 - len(conv.inputs)), other))
        _replace_output(graph, add, x)
        return


def _fuse_activation(graph: Graph, op: Op) -> None:
    conv, x = _fusable_conv(graph, op.inputs[0]), op.inputs[0]
    reshape = graph.only_producer(x)
    if conv is None and reshape is not None and reshape.kind == "Reshape":
        conv = _fusable_conv(graph, reshape.inputs[0])
    if conv is None or x is None:
        return
    if op.op_type == "Clip":
        low, high = (op.constant(index) if len(op.inputs) > index else None for index in (1, 2))
        bounds = [low, high] if op.version >= 11 else [np.asarray(op.attributes.get(name)) for name in ("min", "max")]
        if any(bound is None or bound.dtype == object or bound.size != 1 for bound in bounds):
            return
        conv.attributes["activation_params"] = tuple(float(bound.reshape(())) for bound in bounds if bound is not None)
    elif op.op_type == "LeakyRelu":
        conv.attributes["activation_params"] = (float(op.attributes.get("alpha", 0.01)),)  # type: ignore[arg-type]
    elif op.op_type == "HardSigmoid":
        alpha, beta = op.attributes.get("alpha", 0.2), op.attributes.get("beta", 0.5)
        conv.attributes["activation_params"] = (float(alpha), float(beta))  # type: ignore[arg-type]
    conv.attributes["activation"] = op.op_type
    result = conv.outputs[0]
    if result is not None and result is not x:  # its name is that of the value before the activation
        graph.rename(result, graph.fresh_name(f"{result.name}_{op.op_type}"))
    _replace_output(graph, op, x)


def is_fusable_activation(op: Op) -> bool:
    """Whether the blocked convolution of the installed onnxruntime has the activation."""
    return op.kind in ACTIVATIONS and _onnxruntime_version() >= _SINCE.get(op.kind, (0,))


@cache
def _onnxruntime_version() -> tuple[int, ...]:
    """Major and minor version of the onnxruntime that is installed."""
    return tuple(int(number) for number in version("onnxruntime").split(".")[:2])


def _replace_output(graph: Graph, op: Op, result: Value) -> None:
    """Replace the output of an op that has been fused into a convolution by the convolution's `result`."""
    assert op.outputs[0] is not None
    graph.replace_value(op.outputs[0], result)


# Seconds per element and per op, measured with onnxruntime 1.31.1 on one thread of an AMD EPYC with AVX-512.
_IMAGE = 0.28e-9  # a depthwise 1x1 convolution
_FILTER = 0.7e-9  # a Mul that is broadcast over the outputs of a block
_OPS = 3e-6


class ScaleFilters(Pass):
    """Scale the next convolution's filter by computed numbers per channel, in place of the image, where that is less work.

    before: Conv(depthwise 1x1, filter = gate)(x) -> Conv(w)
    after:  Conv(w * gate)(x)

    A convolution sums over the channels, so scaling the image and scaling the filter are equal. The pass scales the filter if
    it is estimated to take less time, which holds early in a network, where filters are smaller than images.
    """

    name = "scale-filters"
    justifies_rewrite = False
    changes_rounding = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Scale the filters of graphs that are packed for a block."""
        if context.block not in BLOCKS:
            return
        for op in graph.ops:
            reader = _scaled_convolution(graph, op)
            if reader is None:
                continue
            image, filters, result = op.outputs[0], reader.inputs[1], reader.outputs[0]
            assert image is not None and filters is not None and result is not None
            if context.may_change_rounding(self, result) and is_filter_cheaper(image, filters):
                context.changed_rounding(self, result)
                _scale_filter(graph, op, reader, context.block)


def _scaled_convolution(graph: Graph, gate: Op) -> Op | None:
    """The convolution that is the only reader of a gate's output; None if the op is no gate or has other readers."""
    if gate.op_type != "Conv" or gate.domain != DOMAIN:
        return None
    x, weight, y = gate.inputs[0], gate.inputs[1], gate.outputs[0]
    if x is None or weight is None or y is None:
        return None
    if weight.is_constant or weight.static_shape is None or weight.static_shape[1:] != (1, 1, 1):
        return None
    plain = len(gate.inputs) == 2 and "activation" not in gate.attributes
    if not plain or x.shape != y.shape or gate.integer("group", 1) != weight.static_shape[0] or graph.is_output(y):
        return None
    uses = graph.uses(y)
    reader = uses[0].op if len(uses) == 1 and uses[0].index == 0 else None
    if reader is None or reader.op_type != "Conv" or reader.domain != DOMAIN or reader.integer("group", 1) != 1:
        return None
    filters = reader.inputs[1]
    if filters is None or not filters.is_constant or filters.static_shape is None:
        return None
    return reader if filters.static_shape[1] == weight.static_shape[0] else None


def is_filter_cheaper(image: Value, filters: Value) -> bool:
    """Whether it takes less time to scale the filter of a convolution than the image that it reads."""
    assert image.shape is not None and filters.shape is not None
    return (
        prod(map(estimated_extent, image.shape)) * _IMAGE > prod(map(estimated_extent, filters.shape)) * _FILTER + _OPS
    )


def _scale_filter(graph: Graph, gate: Op, reader: Op, block: int) -> None:
    x, numbers, filters, y = gate.inputs[0], gate.inputs[1], reader.inputs[1], gate.outputs[0]
    assert x is not None and numbers is not None and filters is not None and y is not None
    assert filters.data is not None and filters.static_shape is not None
    outputs, inputs, *kernel = filters.static_shape
    blocks = (outputs // block, inputs // block, prod(kernel), block, block)

    data = Packed(filters.data, Format.canonical(len(filters.static_shape)), blocks, filters.data.nbytes)
    packed = graph.new_value(f"{filters.name}/blocks", TensorType(DType.FLOAT32, blocks), data=data)
    factors = add_reshape(graph, numbers, (1, inputs // block, 1, block, 1), gate)
    scaled = graph.new_result(
        "Mul", (packed, factors), TensorType(DType.FLOAT32, blocks), f"{filters.name}/gated", gate
    )
    graph.set_inputs(reader, (x, add_reshape(graph, scaled, filters.static_shape, gate), *reader.inputs[2:]))
    graph.remove_op(gate)


CHANNELS = {8: 24, 16: 12}
"""The number of channels, by block size, that a convolution accepts with this block and refuses with the other one."""

_WITHOUT_RANDOM_KERNELS = 22  # the opset from which onnxruntime 1.31 has none

NAME = "this model is packed for blocks of {} channels, and this machine has others"
_PACKED = re.compile(re.escape(NAME).replace(r"\{\}", r"(\d+)"))


class CheckBlockSize(Pass):
    """Add a convolution that fails on machines with another block size, where the results of the model would be wrong.

    before: x -> Conv(bias = b)
    after:  random numbers of 12 or 24 channels -> Conv(filter = 0, bias = b) -> Reshape -> bias of Conv

    onnxruntime's blocked convolution refuses inputs whose channels are neither fewer than a block nor whole blocks. So a
    convolution of 12 channels runs where a block is 16, and fails where it is 8; 24 channels do the opposite. The check is
    such a convolution, of random numbers with filters of zeros, whose result is the bias of the first convolution of the
    model. It takes a microsecond per run. onnxruntime's error contains the name of the node, which states the fault.

    The input is random because onnxruntime folds other constants when it loads a model, which takes longer than loading a
    small model. It has no kernels for the random ops of opset 22; there the input is an element of a sequence, which it does
    not fold.
    """

    name = "check-block-size"
    justifies_rewrite = False
    handles_bodies = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Add the check in front of the first blocked convolution, or of the first other blocked kernel if there is none.

        It is in the main graph, so that it runs exactly once; bodies capture its result.
        """
        block = context.block
        blocked = [(each, op) for each in regions_with_rule(graph) for op in each.ops if op.domain == DOMAIN]
        if not blocked or block == 0:
            return
        write = _PrologueWriter(graph)
        for owner, op in blocked:
            bias = _bias(op)
            if bias is not None:
                flat = write.constant(np.asarray([-1], dtype=np.int64))
                checked = _captured(graph, owner, write("Reshape", (write.checked_bias(block, bias), flat), bias.shape))
                owner.set_inputs(op, (*op.inputs[:2], checked, *op.inputs[3:]))
                return
        _add_zero(graph, *blocked[0], write("ReduceSum", (write.checked_bias(block, np.zeros(block)),), (), keepdims=0))


def packed_block(names: Iterable[str]) -> int | None:
    """The block size that a model is packed for, from the names of its nodes; None if it has no block-size check."""
    matches = (_PACKED.search(name) for name in names)
    return next((int(match[1]) for match in matches if match), None)


def block_mismatch(packed: int, block: int | None, runtime: str) -> str:
    """The reason why a model that is packed for one block size does not run where `runtime` has another one, or none."""
    here = f"those of {runtime} have {block} here" if block else f"{runtime} has no blocked kernels here"
    return f"it is packed for blocks of {packed} channels, and {here}"


def _add_zero(graph: Graph, owner: Graph, op: Op, zero: Value) -> None:
    """Let an op read its first input plus a zero of the main graph."""
    x = op.inputs[0]
    assert x is not None and x.shape is not None
    producer, inputs = owner.producer(x), (x, _captured(graph, owner, zero))
    type, stem = TensorType(DType.FLOAT32, x.shape), "block_guard/result"
    owner.set_input(op, 0, owner.new_result("Add", inputs, type, stem, producer, first=producer is None))


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
    assert weight is not None and weight.shape is not None
    if len(conv.inputs) < 3 or conv.inputs[2] is None:
        return np.zeros(estimated_extent(weight.shape[0]), dtype=np.float32)
    return conv.constant(2)


class _PrologueWriter:
    """Adds ops at the beginning of a graph, each behind the previous one."""

    def __init__(self, graph: Graph) -> None:
        """Begin in front of the first op of `graph`."""
        self._graph = graph
        self._last: Op | None = None

    def constant(self, array: Array) -> Value:
        """A constant of the graph."""
        return self._graph.new_constant(array, "block_guard/constant")

    def checked_bias(self, block: int, bias: Array) -> Value:
        """A value of shape (1, len(bias), 1, 1) that is `bias`, computed by a kernel that refuses other block sizes."""
        channels = CHANNELS[block]
        noise = self._unfolded_numbers((1, channels, 1, 1))
        weight = self.constant(np.zeros((bias.size, channels, 1, 1), dtype=np.float32))
        operands = (noise, weight, self.constant(bias.astype(np.float32)))
        return self("Conv", operands, (1, bias.size, 1, 1), NAME.format(block), kernel_shape=(1, 1))

    def _unfolded_numbers(self, extents: tuple[int, ...]) -> Value:
        """A tensor that onnxruntime does not fold."""
        if self._graph.opsets[""] < _WITHOUT_RANDOM_KERNELS:
            return self("RandomUniform", (), extents, shape=extents, low=0.0, high=1.0, dtype=1)
        ones = self.constant(np.ones(extents, dtype=np.float32))
        sequence = self("SequenceConstruct", (ones,), None)
        return self("SequenceAt", (sequence, self.constant(np.asarray(0, dtype=np.int64))), extents)

    def __call__(
        self, kind: str, inputs: tuple[Value, ...], extents: tuple[int, ...] | None, name: str = "", **fields: Attribute
    ) -> Value:
        """The output of a new op: a float32 tensor, or a sequence if `extents` is None."""
        type = OpaqueType("sequence") if extents is None else TensorType(DType.FLOAT32, extents)
        result = self._graph.new_result(
            f"{DOMAIN}::Conv" if kind == "Conv" else kind,
            inputs,
            type,
            f"block_guard/{kind}",
            self._last,
            first=self._last is None,
            name=name,
            attributes=fields,
        )
        self._last = self._graph.producer(result)
        return result


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
            if op.op_type == "ReorderInput" and op.domain == DOMAIN and _depends_on_machine(op):
                y = op.outputs[0]
                assert y is not None
                if any(use.op.op_type != "Conv" or use.op.domain != DOMAIN for use in graph.uses(y)):
                    _declare(graph, op, y, NAME.format(context.block))


def _depends_on_machine(reorder: Op) -> bool:
    """Whether the channels of an image fill another number of channels in blocks of 8 than in blocks of 16."""
    x = reorder.inputs[0]
    assert x is not None and x.shape is not None
    channels = x.shape[3 if reorder.integer("channels_last", 0) else 1]
    return not isinstance(channels, int) or len({-(-channels // block) * block for block in BLOCKS}) > 1


def _declare(graph: Graph, reorder: Op, y: Value, name: str) -> None:
    """Let the readers of `y` read it behind a Reshape to its shape; 0 keeps an extent."""
    assert isinstance(y.type, TensorType) and y.shape is not None
    uses, shape = graph.uses(y), graph.new_constant(np.asarray([0, y.shape[1], 0, 0]), f"{y.name}/channels")
    declared = graph.new_result("Reshape", (y, shape), y.type, f"{y.name}/declared", reorder, name=name)
    graph.replace_uses(y, declared, uses)
