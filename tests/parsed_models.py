"""Models in ONNX's text syntax, with given constants or random ones."""

from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser


def parsed(text: str, seed: int = 0, **constants: Any) -> onnx.ModelProto:
    """A model with these initializers: arrays, floats, integers, or random weights of the shapes that are given as tuples."""
    model = parser.parse_model(text)
    generator = np.random.default_rng(seed)
    for name, given in constants.items():
        if isinstance(given, tuple):
            given = generator.normal(size=given, scale=(prod(given[1:]) or 1) ** -0.5).astype(np.float32)
        array = np.asarray(given, np.float32 if isinstance(given, float) else None)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


# Models in ONNX's text syntax whose constants have random elements.


def text_model(text: str) -> onnx.ModelProto:
    """The model of a text, with random elements for the constants that it declares without elements.

    Vectors are positive, filters have outputs of about the size of the inputs, and integers have all values.
    """
    model: onnx.ModelProto = parser.parse_model(text)
    random = np.random.default_rng(0)
    for info in model.graph.value_info:
        shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        if np.issubdtype(dtype, np.integer):
            array = random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape)
        elif len(shape) < 2:
            array = random.uniform(0.5, 1.5, shape)
        else:
            array = random.normal(size=shape, scale=prod(shape[1:]) ** -0.5)
        model.graph.initializer.append(numpy_helper.from_array(array.astype(dtype), info.name))
    del model.graph.value_info[:]
    return model
