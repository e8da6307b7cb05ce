"""Models in onnx's notation with constants."""

from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser


def parsed(text: str, seed: int = 0, **constants: Any) -> onnx.ModelProto:
    """A model with these initializers: arrays or numbers, and random weights of the shapes that are given as tuples."""
    model = parser.parse_model(text)
    generator = np.random.default_rng(seed)
    for name, given in constants.items():
        if isinstance(given, tuple):
            given = generator.normal(size=given, scale=(prod(given[1:]) or 1) ** -0.5).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(given), name))
    return model
