"""Ops that onnxruntime runs in blocked formats by itself, against the graphs that it runs."""

from collections.abc import Iterable
from pathlib import Path

import onnx
import pytest
from parsed_models import text_model

from layoutopt import inference, onnx_io
from layoutopt.cost_models import find_runtime, load_target
from layoutopt.dialects.onnxruntime.default_blocks import block_of
from layoutopt.ir.graph import Graph
from layoutopt.kernel_times.prices import default_signatures
from layoutopt.runtime.kernel_queries import blocked_channels
from layoutopt.runtime.session import inference_session

BLOCK = blocked_channels() or 0
NCHWC = "com.microsoft.nchwc"

pytestmark = pytest.mark.skipif(not BLOCK, reason="onnxruntime has no blocked kernels on this processor")


def predicted(graph: Graph) -> list[str]:
    """The op types that have a blocked operand, by the rules."""
    model = find_runtime("onnxruntime").restricted(load_target("cpu-avx512" if BLOCK == 16 else "cpu-avx2"))
    found = default_signatures(graph, model)
    return sorted(op.op_type for op, chosen in found if any(map(block_of, (*chosen.inputs, *chosen.outputs))))


def executed(nodes: Iterable[onnx.NodeProto]) -> list[str]:
    """The op types of the nodes that have a blocked operand, in a graph that onnxruntime has optimised."""
    blocked: set[str] = set()
    found = []
    for node in nodes:
        if node.op_type.startswith("Reorder"):
            blocked.update(node.output if node.op_type == "ReorderInput" else ())
        elif node.domain == NCHWC or blocked.intersection(node.input):
            blocked.update(node.output)
            found.append("Resize" if node.op_type == "Upsample" else node.op_type)
    return sorted(found)


def convolution(channels: int, filters: int, group: int = 1, rank: int = 4, body: str = "") -> str:
    """A convolution, and ops on its result a."""
    image = ",".join(["1", str(channels), *["14"] * (rank - 2)])
    filter = ",".join(map(str, (filters, channels // group, *[3] * (rank - 2))))
    result = "y" if body else "a"
    return f"g (float[{image}] x) => ({result}) <float[{filter}] w> {{ a = Conv<group={group}>(x, w) {body} }}"


ALONE = {
    f"{channels} to {filters}, {group} groups, rank {rank}": convolution(channels, filters, group, rank)
    for channels, filters, group, rank in (
        *((channels, filters, 1, 4) for channels in (3, 6, 12, 16, 20, 63) for filters in (6, 16, 65)),
        *((channels, channels, channels, 4) for channels in (4, 6, 12, 16)),
        *((48, 48, group, 4) for group in (2, 3, 4, 6)),
        (16, 32, 16, 4),
        (16, 16, 1, 3),
        (16, 16, 1, 5),
    )
}
POOLING = {
    f"{kind} of {channels}": f"g (float[1,{channels},14,14] x) => (a) {{ a = {kind} (x) }}"
    for channels in (4, 12, 16, 63)
    for kind in ("MaxPool<kernel_shape=[2,2]>", "AveragePool<kernel_shape=[3,3],ceil_mode=1>", "GlobalAveragePool")
}
BEHIND = {
    f"{body} behind {filters}": convolution(16, filters, body=body)
    for filters in (12, 16)
    for body in (
        "y = MaxPool<kernel_shape=[2,2]>(a)",
        "y = GlobalMaxPool (a)",
        "y = Concat<axis=1>(a, a)",
        "y = Concat<axis=2>(a, a)",
        "b = Tanh (a) y = Mul (a, b)",
        "y = Erf (a)",
        *(
            f'n = Constant<value_floats=[1.0, 1.0, {scale}]>() y = Resize<mode="{mode}", nearest_mode="{rounding}", '
            f'coordinate_transformation_mode="{way}">(a, , n)'
            for scale in ("2.0, 3.0", "1.5, 1.5")
            for mode, rounding, way in (
                ("nearest", "floor", "asymmetric"),
                ("nearest", "round_prefer_floor", "half_pixel"),
                ("linear", "floor", "half_pixel"),
                ("linear", "floor", "align_corners"),
                ("linear", "floor", "pytorch_half_pixel"),
            )
        ),
    )
}
COMPUTED = {"computed filter": "g (float[1,16,14,14] x, float[16,16,3,3] w) => (a) { a = Conv (x, w) }"}
INDICES = {"indices": "g (float[1,16,14,14] x) => (a, b) { a, b = MaxPool<kernel_shape=[2,2]>(x) }"}

CASES = ALONE | POOLING | BEHIND | COMPUTED | INDICES


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_the_same_ops_are_blocked_as_in_onnxruntime(text: str, tmp_path: Path) -> None:
    model = text_model(f'<ir_version: 9, opset_import: ["" : 17]> {text}')
    inference_session(model.SerializeToString(), saved=tmp_path / "executed.onnx")
    graph = inference.lift(onnx_io.from_message(model))
    assert predicted(graph) == executed(onnx.load(tmp_path / "executed.onnx").graph.node)
