"""Broadcasting: ops that broadcast their operands as numpy does, and ops that do nothing else."""


class BroadcastingOp:
    """Every operand is broadcast to the shape of the result, aligned with its last axes."""


class PureBroadcast:
    """The op does nothing but broadcast its first input, or repeats it along axes where no reader could broadcast it."""


__all__ = ["BroadcastingOp", "PureBroadcast"]
