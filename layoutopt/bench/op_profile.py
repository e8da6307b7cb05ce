"""Time per op type, from the profile that onnxruntime writes."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from layoutopt.bench.bench_report import OpTime, Profile
from layoutopt.runtime.session import REORDERS, TRACED_RUN, is_kernel_event

Event: TypeAlias = Mapping[str, Any]

_ONNX = """Concat DepthToSpace Expand Flatten Gather GatherElements GatherND Identity MemcpyFromHost MemcpyToHost Pad
ReorderInput ReorderOutput Reshape ScatterElements ScatterND Slice SpaceToDepth Split Squeeze Tile Transpose Unsqueeze"""
_OPENVINO = "Broadcast Concatenation Reorder ScatterUpdate ShuffleChannels StridedSlice"

DATA_MOVEMENT_OPS = frozenset([*_ONNX.split(), *_OPENVINO.split()])
"""Data-movement ops: every element of the result is an element of an input or a constant. A Cast is none."""

_REORDERS = REORDERS | {"Reorder"}  # the last one is OpenVINO's


def profile_of(ops: Iterable[OpTime], runs: int) -> Profile:
    """The profile of ops: the shares of data movement, and the ops with the slowest first."""
    ordered = sorted(ops, key=lambda each: (-each.seconds, each.op))
    total = sum(each.seconds for each in ordered)
    moving = sum(each.seconds for each in ordered if each.moves_data)
    reordering = sum(each.seconds for each in ordered if each.op in _REORDERS)
    return Profile(
        runs=runs,
        seconds=total,
        movement_share=moving / total if total else 0.0,
        reorder_share=reordering / total if total else 0.0,
        ops=ordered,
    )


def by_op(kernels: Iterable[tuple[str, float]], runs: int) -> list[OpTime]:
    """The time per run of every op type, from (op type, seconds) of every executed node."""
    found: dict[str, list[float]] = defaultdict(list)
    for op, seconds in kernels:
        found[op].append(seconds)
    return [
        OpTime(op=op, nodes=len(each) / runs, seconds=sum(each) / runs, moves_data=op in DATA_MOVEMENT_OPS)
        for op, each in found.items()
    ]


def read_profile(events: Sequence[Event], skipped: int) -> Profile:
    """The profile of all runs but the first `skipped`.

    Args:
        events: Chrome trace events of onnxruntime, in microseconds.
        skipped: the number of runs to leave out.
    """
    runs = sorted((each["ts"], each["ts"] + each["dur"]) for each in events if each["name"] == TRACED_RUN)[skipped:]
    nodes = filter(is_kernel_event, events)
    counted = [each for each in nodes if runs and runs[0][0] <= each["ts"] <= runs[-1][1]]
    return profile_of(by_op(_own_times(counted), len(runs)), len(runs))


def _own_times(nodes: Iterable[Event]) -> Iterator[tuple[str, float]]:
    """Op type and seconds of every node, without the time of nodes in its subgraphs: an If includes its branch."""
    own: list[tuple[Event, list[int]]] = []
    around: dict[Any, list[tuple[int, list[int]]]] = defaultdict(list)  # unfinished nodes per thread: end, own time
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
