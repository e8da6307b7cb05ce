"""Declares the padded channels of reordered images, so that machines with other blocks load the model.

before: x -> ReorderInput -> Mul
after:  x -> ReorderInput -> Reshape(0, 24, 0, 0) -> Mul

When onnxruntime loads a model it infers that a ReorderInput pads the channels to the blocks of the machine. 20 channels are 24
where a block is 8, and 32 where it is 16; an operator with another operand of the declared extent then fails
at session creation, before the block-size check runs, even in a branch of a portable model that is never taken. The Reshape
fails when it runs, so its name is the message of that check. It moves no data and takes 1 us. Blocked convolutions do not
require it, since onnxruntime does not infer from their channels.
"""

from dataclasses import dataclass

import numpy as np

from layoutopt.dialects.onnxruntime.arrays import BLOCKS, DOMAIN
from layoutopt.dialects.onnxruntime.passes.check_block_size import NAME
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, TensorType, Value
from layoutopt.passes.base import Pass, PassContext


@dataclass(frozen=True, slots=True)
class DeclarePaddedChannels(Pass):
    """Write a Reshape behind a ReorderInput whose number of padded channels depends on the machine."""

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
