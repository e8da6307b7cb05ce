"""Queries of onnxruntime about invalid models: whether it loads them, and which of repeated definitions of a name it uses."""

from functools import lru_cache
from os import PathLike

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from layoutopt.runtime.session import Session

_LARGEST = 1 << 16  # bytes; onnxruntime treats all larger initializers alike


def loads(model: str | PathLike[str] | bytes, *, is_optimised: bool = False) -> bool:
    """Whether onnxruntime loads a model, without optimisations or at its default level."""
    try:
        Session(model, is_optimised=is_optimised)
    except Exception:  # onnxruntime's exceptions have no common base
        return False
    return True


def used_definition(size: int, count: int = 2, *, has_constant: bool = False) -> int:
    """The index of the definition that onnxruntime uses if one value has several.

    Version 1.31 uses the last initializer of a name, and the last but one of 128 bytes or more.

    Args:
        size: the size of the value in bytes.
        count: the number of definitions.
        has_constant: whether the last definition is a Constant node; if not, all are initializers.
    """
    return _query(min(size, _LARGEST), count, has_constant)


@lru_cache(maxsize=1024)
def _query(size: int, count: int, has_constant: bool) -> int:
    tensors = [numpy_helper.from_array(np.full(max(size, 1), number % 256, np.uint8), "w") for number in range(count)]
    output = helper.make_tensor_value_info("y", TensorProto.UINT8, None)
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "query", [], [output])
    if has_constant:
        graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=tensors.pop()))
    graph.initializer.extend(tensors)
    model: onnx.ModelProto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)])
    (found,) = Session(model.SerializeToString(), is_optimised=False).run(None, {})
    return int(found.flat[0])
