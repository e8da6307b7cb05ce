"""Sample ops between two convolutions with blocked kernels: the optimised model is equivalent under every plan.

The laws of layout rules test one op under one signature, in the portable dialects. Here a target chooses the signatures,
and the dialect of onnxruntime's blocked kernels is tested, too.
"""

import zlib

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from test_rules_handmade import Sample, random
from test_rules_samples import written
from tiers import tiered

import layoutopt
from layoutopt.cost_models.registry import host_target

KINDS = (
    *("MaxPool", "AveragePool", "LpPool", "Upsample", "Resize", "Conv", "ConvTranspose", "BatchNormalization", "LRN"),
    *("Pad", "PRelu", "Clip", "Dropout", "Concat", "Split", "Slice", "Sum", "Max", "Softmax", "ReduceMean", "Gather"),
    "com.microsoft::FusedConv",
)
TARGETS = ("gpu-hopper", "ascend-910b", "cpu" if str(host_target()).startswith("cpu-avx") else "cpu-neon")
_CHANNELS = 8


def sandwiched(sample: Sample) -> onnx.ModelProto | None:
    """A convolution, the node on its result, and a convolution of the node's result; None if these tensors are no images."""
    (node,), (feed,) = sample.model.graph.node, sample.feeds
    x = feed[node.input[0]]
    if x.ndim != 4 or x.dtype != np.float32 or x.shape[1] < 4 or x.size == 0:
        return None
    model = onnx.ModelProto()
    model.CopyFrom(sample.model)
    graph = model.graph
    weights = {"before": random((x.shape[1], _CHANNELS, 3, 3), f"{sample} before") / 8}
    nodes = [helper.make_node("Conv", ["image", "before"], [node.input[0]], pads=[1, 1, 1, 1]), *graph.node]
    result = graph.output[0]
    shape = [dim.dim_value for dim in result.type.tensor_type.shape.dim]
    if len(shape) == 4 and all(shape) and result.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
        weights["after"] = random((_CHANNELS, shape[1], 1, 1), f"{sample} after") / 8
        nodes.append(helper.make_node("Conv", [result.name, "after"], ["image_after"]))
        graph.output.add().CopyFrom(helper.make_tensor_value_info("image_after", 1, [shape[0], _CHANNELS, *shape[2:]]))
        del graph.output[0]
    weights |= {name: array for name, array in feed.items() if name != node.input[0]}
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    image = helper.make_tensor_value_info("image", 1, [x.shape[0], _CHANNELS, *x.shape[2:]])
    del graph.input[:], graph.node[:]
    graph.input.append(image)
    graph.node.extend(nodes)
    return model


@pytest.mark.parametrize("count", tiered([2, None], 1))
@pytest.mark.parametrize("kind", KINDS)
def test_between_convolutions(kind: str, count: int | None) -> None:
    every = sorted(written(kind), key=lambda sample: zlib.crc32(sample.name.encode()))
    models = [(sample, model) for sample in every if (model := sandwiched(sample)) is not None]
    assert models
    for number, (sample, model) in enumerate(models[:count]):
        targets = TARGETS if count is None else (TARGETS[number % len(TARGETS)],)
        for target in targets:
            result = layoutopt.optimize(model, target)
            assert result.report.verification.status == "passed", (
                f"{sample} for {target}: {result.report.verification.reason}"
            )
