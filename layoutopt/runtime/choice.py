"""ONNX Runtime's answers to what it makes of a model that the ONNX standard forbids."""

from functools import lru_cache
from os import PathLike

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from layoutopt.runtime.session import Session

_LARGEST = 1 << 16  # bytes; ONNX Runtime treats all larger initializers alike


def loads(model: str | PathLike[str] | bytes) -> bool:
    """Whether ONNX Runtime loads a model."""
    try:
        Session(model, optimised=False)
    except Exception:  # onnxruntime's exceptions have no common base
        return False
    return True


def runtime_uses(size: int, count: int = 2, *, has_constant: bool = False) -> int:
    """Which of several definitions of one value ONNX Runtime uses; 0 is the first.

    Version 1.31 uses the last initializer of a name, and the last but one of 128 bytes or more.

    Args:
        size: the size of the value in bytes.
        count: the number of definitions.
        has_constant: whether the last definition is a Constant node; if not, all are initializers.
    """
    return _probe(min(size, _LARGEST), count, has_constant)


@lru_cache(maxsize=1024)
def _probe(size: int, count: int, has_constant: bool) -> int:
    tensors = [numpy_helper.from_array(np.full(max(size, 1), number % 256, np.uint8), "w") for number in range(count)]
    output = helper.make_tensor_value_info("y", TensorProto.UINT8, None)
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "probe", [], [output])
    if has_constant:
        graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=tensors.pop()))
    graph.initializer.extend(tensors)
    model: onnx.ModelProto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)])
    (found,) = Session(model.SerializeToString(), optimised=False).run(None, {})
    return int(found.flat[0])
