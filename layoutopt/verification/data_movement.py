"""The data movement in a trace of onnxruntime: Transposes and reorders of one run, with bytes.

Reshape, Flatten, Squeeze and Unsqueeze share the memory of their input in onnxruntime, so they are not counted. An op in the
body of a loop counts once per iteration.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from layoutopt.runtime.session import REORDERS, TRACED_RUN, is_kernel_event


@dataclass(frozen=True, slots=True)
class DataMovement:
    """The ops of one run that change only the order of the elements of a tensor.

    Attributes:
        ops: the number of executions by op type.
        nbytes: bytes read and written by all of them.
    """

    ops: Mapping[str, int]
    nbytes: int

    @property
    def count(self) -> int:
        """The number of executions."""
        return sum(self.ops.values())


def data_movement_of(events: Iterable[Mapping[str, Any]]) -> DataMovement:
    """The data movement of the last run in a trace of onnxruntime."""
    events = list(events)
    start = max((event["ts"] for event in events if event["name"] == TRACED_RUN), default=0)
    moving = [
        event["args"]
        for event in events
        if is_kernel_event(event) and event["ts"] >= start and event["args"]["op_name"] in REORDERS
    ]
    nbytes = sum(int(each["activation_size"]) + int(each["output_size"]) for each in moving)
    return DataMovement(dict(Counter(each["op_name"] for each in moving)), nbytes)


__all__ = ["DataMovement", "data_movement_of"]
