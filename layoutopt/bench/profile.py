"""Which ops the kernels' time goes to, from the profile that onnxruntime writes."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from layoutopt.bench.report import OpTime, Profile

Event: TypeAlias = Mapping[str, Any]

_ONNX = """Concat DepthToSpace Expand Flatten Gather GatherElements GatherND Identity MemcpyFromHost MemcpyToHost Pad
ReorderInput ReorderOutput Reshape ScatterElements ScatterND Slice SpaceToDepth Split Squeeze Tile Transpose Unsqueeze"""
_OPENVINO = "Broadcast Concatenation Reorder ScatterUpdate ShuffleChannels StridedSlice"

MOVERS = frozenset([*_ONNX.split(), *_OPENVINO.split()])
"""Ops that compute nothing: every element of the result is one of an input or a constant. A Cast computes."""

REORDERS = frozenset(["Transpose", "ReorderInput", "ReorderOutput", "Reorder"])
"""Those of them that only give the same tensor another order; the last is OpenVINO's."""

_KERNEL = "_kernel_time"


def summary(ops: Iterable[OpTime], runs: int) -> Profile:
    """The shares of data movement, and the slowest ops first."""
    ordered = sorted(ops, key=lambda each: (-each.seconds, each.op))
    total = sum(each.seconds for each in ordered)
    moving = sum(each.seconds for each in ordered if each.moves_data)
    reordering = sum(each.seconds for each in ordered if each.op in REORDERS)
    return Profile(
        runs=runs,
        seconds=total,
        movement_share=moving / total if total else 0.0,
        reorder_share=reordering / total if total else 0.0,
        ops=ordered,
    )


def by_op(kernels: Iterable[tuple[str, float]], runs: int) -> list[OpTime]:
    """(op, seconds) of every node that was run, added up by op and divided by the number of runs."""
    found: dict[str, list[float]] = defaultdict(list)
    for op, seconds in kernels:
        found[op].append(seconds)
    return [
        OpTime(op=op, nodes=len(each) / runs, seconds=sum(each) / runs, moves_data=op in MOVERS)
        for op, each in found.items()
    ]


def read_profile(events: Sequence[Event], skipped: int) -> Profile:
    """The profile of all runs but the first few.

    Args:
        events: what onnxruntime has written: Chrome's trace events, in microseconds.
        skipped: how many runs do not count.
    """
    runs = sorted((each["ts"], each["ts"] + each["dur"]) for each in events if each["name"] == "model_run")[skipped:]
    nodes = (each for each in events if each.get("cat") == "Node" and each["name"].endswith(_KERNEL))
    counted = [each for each in nodes if runs and runs[0][0] <= each["ts"] <= runs[-1][1]]
    return summary(by_op(_own_times(counted), len(runs)), len(runs))


def _own_times(nodes: Iterable[Event]) -> Iterator[tuple[str, float]]:
    """The op and the seconds of every node, without those of the nodes within it: an If takes as long as its branch."""
    own: list[tuple[Event, list[int]]] = []
    around: dict[Any, list[tuple[int, list[int]]]] = defaultdict(list)  # per thread, what is not over: end, own time
    for node in sorted(nodes, key=lambda each: (each["ts"], -each["dur"])):
        stack, begin, passed = around[node["tid"]], node["ts"], node["dur"]
        while stack and stack[-1][0] <= begin:
            stack.pop()
        if stack:
            stack[-1][1][0] -= passed
        time = [passed]
        stack.append((begin + passed, time))
        own.append((node, time))
    for node, (microseconds,) in own:
        yield node["args"]["op_name"], microseconds * 1e-6
