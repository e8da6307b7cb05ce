"""The light models of the onnx package, with random weights.

The package has weights from ConstantOfShape, with equal elements, for which a wrong order of channels has no effect. Here the
weights are random, of a magnitude that keeps activations in range.
"""

from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
from onnx import numpy_helper

FOLDER = Path(onnx.backend.test.__file__).parent / "data" / "light"
NAMES = sorted(path.stem for path in FOLDER.glob("light_*.onnx"))


def load(name: str) -> onnx.ModelProto:
    """A light model with every ConstantOfShape replaced by a random initializer."""
    model = onnx.load(FOLDER / f"{name}.onnx")
    graph = model.graph
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    variances = {node.input[4] for node in graph.node if node.op_type == "BatchNormalization"}
    generator = np.random.default_rng(0)
    kept = []
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = tuple(int(dim) for dim in shapes[node.input[0]])
        fan_in = int(np.prod(shape[1:])) or 1
        values = generator.normal(scale=fan_in**-0.5, size=shape)
        if node.output[0] in variances:
            values = generator.uniform(0.5, 1.5, size=shape)
        graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), node.output[0]))
    del graph.node[:]
    graph.node.extend(kept)
    model.ir_version = 8  # from 4 on, initializers need not be inputs
    names = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in names]
    del graph.input[:]
    graph.input.extend(inputs)
    return model
