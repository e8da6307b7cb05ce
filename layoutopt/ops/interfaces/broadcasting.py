"""Broadcasting: ops that broadcast their operands as numpy does, and ops that do nothing else."""


class BroadcastingOp:
    """Every operand is broadcast to the shape of the result, aligned with its last axes."""


class PureBroadcast:
    """The op only broadcasts its first input, or repeats it along axes along which its readers do not broadcast."""


__all__ = ["BroadcastingOp", "PureBroadcast"]
