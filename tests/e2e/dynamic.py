"""Real networks with symbolic batch, height and width, and the same networks at one size.

resnet50 and mobilenetv2 are those of the zoo with names for dimensions. segformer_b0 is traced with dynamic sizes, since its
Reshapes compute them: in `networks`, by torch.onnx of torch 2.13 with either exporter, from transformers 5.23, weights emptied
like those of the zoo. torch.export gives dimensions names of its own.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import zoo
from onnx import numpy_helper

FOLDER = Path(__file__).parent / "networks"
ZOO = ("resnet50", "mobilenetv2")
EXPORTED = tuple(sorted(path.stem for path in FOLDER.glob("*.onnx")))
NAMES = (*ZOO, *EXPORTED)


def load(name: str) -> onnx.ModelProto:
    """A network whose input is (batch, 3, height, width), all but the channels symbolic."""
    if name in ZOO:
        return with_names(zoo.load(name))
    return zoo.filled(onnx.load(FOLDER / f"{name}.onnx"))


def with_names(model: onnx.ModelProto) -> onnx.ModelProto:
    """A convolutional classifier with names for dimensions; the batch of 1 that its Reshapes have is copied instead."""
    rename(model, {0: "batch", 2: "height", 3: "width"})
    reshapes = [node for node in model.graph.node if node.op_type == "Reshape"]
    for node in reshapes:
        del node.attribute[:]  # allowzero, by which a 0 would not be a copy
    targets = {node.input[1] for node in reshapes}
    for tensor in model.graph.initializer:
        if tensor.name in targets:
            target = np.array(numpy_helper.to_array(tensor))
            assert target[0] == 1
            target[0] = 0
            tensor.CopyFrom(numpy_helper.from_array(target, tensor.name))
    return model


def rename(model: onnx.ModelProto, extents: Mapping[int, int | str]) -> onnx.ModelProto:
    """Set extents of the input to names or numbers, and remove the declared shapes of all other values."""
    dims = model.graph.input[0].type.tensor_type.shape.dim
    for axis, extent in extents.items():
        if isinstance(extent, int):
            dims[axis].dim_value = extent
        else:
            dims[axis].dim_param = extent
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    return model


def fixed(model: onnx.ModelProto, batch: int, height: int, width: int) -> onnx.ModelProto:
    """A copy of a network for one size."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return rename(copy, {0: batch, 2: height, 3: width})


def names(model: onnx.ModelProto) -> tuple[str, str, str]:
    """The names of the batch, height and width dimensions of a network."""
    batch, _, height, width = (dim.dim_param for dim in model.graph.input[0].type.tensor_type.shape.dim)
    return batch, height, width
