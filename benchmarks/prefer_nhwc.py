"""Transposes that `--runtime onnxruntime-cuda` writes, and those that onnxruntime's option `prefer_nhwc` leaves, without a GPU.

    python benchmarks/prefer_nhwc.py [NETWORK ...]

With the option, onnxruntime's CUDA execution provider puts Transposes around every operator that has a kernel for NHWC
(`cuda_nhwc_onnx_ops` in its source), and its own optimiser moves and cancels them, but not past Resize, whose CUDA kernel has
NCHW. Here a stand-in with the same shapes, which the optimiser does not look into, takes the place of every such operator, and
onnxruntime's optimiser runs on the CPU. That differs from the option in one way: it moves a Transpose only where it estimates a
gain. Files for `onnxruntime-cuda` are counted as they are written.

Prints a Markdown table: Transposes and the bytes that they read and write, with the option, and in the result.
"""

import sys
import tempfile
from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import zoo

import layoutopt

LAYOUT_SENSITIVE = frozenset(
    (
        "AveragePool",
        "BatchNormalization",
        "Conv",
        "ConvTranspose",
        "DepthToSpace",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "LRN",
        "MaxPool",
        "SpaceToDepth",
    )
)
"""Operators that have kernels for NHWC in onnxruntime's CUDA execution provider, without GridSample."""


def optimised(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model after the optimisations of onnxruntime that come before layouts are chosen, and with inferred shapes."""
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(Path(folder) / "model.onnx")
        options.log_severity_level = 3
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return onnx.shape_inference.infer_shapes(onnx.load(options.optimized_model_filepath))


def shapes_of(model: onnx.ModelProto) -> dict[str, list[int]]:
    """The shapes of all values whose extents are known, by name."""
    found = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        found[value.name] = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    return found


def with_stand_ins(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a stand-in between Transposes for every layout-sensitive operator, and one without for every Resize."""
    shapes, nodes = shapes_of(model), []
    for node in model.graph.node:
        if node.op_type in LAYOUT_SENSITIVE and not node.domain and len(shapes[node.input[0]]) > 2:
            nodes.extend(_stand_in(model, node.input[0], node.output[0], shapes))
        elif node.op_type == "Resize":
            x, y = node.input[0], node.output[0]
            nodes.append(_einsum(model, x, y, shapes[x], shapes[y]))
        else:
            nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def _stand_in(model: onnx.ModelProto, x: str, y: str, shapes: dict[str, list[int]]) -> Iterator[onnx.NodeProto]:
    """An Einsum from x to y, channels last."""
    rank = len(shapes[x])
    first, last = [0, *range(2, rank), 1], [0, rank - 1, *range(1, rank - 1)]
    extents = [[shapes[name][axis] for axis in first] for name in (x, y)]
    yield helper.make_node("Transpose", [x], [f"{y}/x"], perm=first)
    yield _einsum(model, f"{y}/x", f"{y}/y", *extents)
    yield helper.make_node("Transpose", [f"{y}/y"], [y], perm=last)


def _einsum(model: onnx.ModelProto, x: str, y: str, before: list[int], after: list[int]) -> onnx.NodeProto:
    """An Einsum from one shape to another one; the batch is kept."""
    source, target = "abcde"[: len(before)], "a" + "vwxyz"[: len(after) - 1]
    names = [f"{y}/stand-in {axis}" for axis in range(1, len(before))]
    for name, extents in zip(names, zip(before[1:], after[1:], strict=True), strict=True):
        model.graph.initializer.append(numpy_helper.from_array(np.zeros(extents, dtype=np.float32), name))
    matrices = ",".join(map("".join, zip(source[1:], target[1:], strict=True)))
    return helper.make_node("Einsum", [x, *names], [y], equation=f"{source},{matrices}->{target}")


def transposes(model: onnx.ModelProto) -> tuple[int, int]:
    """The number of Transposes that move elements, and the bytes that they read and write in float32."""
    shapes = shapes_of(model)
    perms = [
        (node, helper.get_node_attr_value(node, "perm")) for node in model.graph.node if node.op_type == "Transpose"
    ]
    moving = [shapes[node.input[0]] for node, perm in perms if not _is_view(shapes[node.input[0]], perm)]
    return len(moving), sum(8 * prod(shape) for shape in moving)


def _is_view(shape: list[int], perm: list[int]) -> bool:
    """Whether a Transpose moves axes of one element only."""
    order = [axis for axis in perm if shape[axis] != 1]
    return order == sorted(order)


def main(*networks: str) -> None:
    print("| network | `prefer_nhwc` | MB | `onnxruntime-cuda` | MB |")
    print("|---|---|---|---|---|")
    for network in networks or zoo.NAMES:
        model = zoo.load(network)
        before, moved = transposes(optimised(with_stand_ins(optimised(model))))
        result = layoutopt.optimize(model, "gpu-hopper", runtime="onnxruntime-cuda", verify=False).proto
        after, written = transposes(result)
        print(f"| {network} | {before} | {moved / 1e6:.1f} | {after} | {written / 1e6:.1f} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
