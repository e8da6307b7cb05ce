"""Models with native operators of another machine: they run here with each such operator replaced by its definition.

The definitions are exact (`runtime.definitions`), so a comparison covers formats, packed weights and attributes. It does
not cover the kernels of the other machine.
"""

from layoutopt.dialects.onnxruntime.blocked_passes import packed_block
from layoutopt.onnx_io.messages import nodes
from layoutopt.runtime.definitions import BLOCKED, define
from layoutopt.runtime.kernel_queries import BLOCKED_DOMAIN, blocked_channels
from layoutopt.verification.runnable import Runnable


def defined_block(block: int | None) -> int:
    """The block size that a model is packed for if its operators run here by definition; 0 if kernels run."""
    return 0 if block is None or block == blocked_channels() else block


def with_definitions(model: Runnable) -> Runnable:
    """The model with definitions of its native operators; the model itself if the kernels of this machine run it."""
    try:
        message = model.message()
    except Exception:  # not a valid ModelProto: loading it in onnxruntime reports the error
        return model
    block = packed_block(node.name for node in message.graph.node)
    if block is None or not defined_block(block):
        return model
    if not {node.op_type for node in nodes(message) if node.domain == BLOCKED_DOMAIN} <= set(BLOCKED.definitions):
        return model  # of another version of layoutopt; its block-size check refuses to run
    define(message, BLOCKED, block)
    return model.edited(message)


def block_of(model: Runnable) -> int | None:
    """Channels per block that a model is packed for, by its block-size check; None for a model that cannot be read."""
    try:
        return packed_block(node.name for node in model.message().graph.node)
    except Exception:  # not a valid ModelProto: loading it in onnxruntime reports the error
        return None


__all__ = ["block_of", "defined_block", "with_definitions"]
