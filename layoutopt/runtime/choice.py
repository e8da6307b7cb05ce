"""ONNX Runtime's answers to what it makes of a model that the ONNX standard forbids."""

from functools import lru_cache
from os import PathLike
from typing import Literal

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


def runtime_uses(size: int, *, has_constant: bool = False) -> Literal["first", "last"]:
    """Which of two definitions of one value ONNX Runtime uses.

    Version 1.31 uses the last of two small initializers, and the first of two initializers of 128 bytes or more.

    Args:
        size: the size of the value in bytes.
        has_constant: whether the definitions are an initializer and then a Constant node; if not, two initializers.
    """
    return _probe(min(size, _LARGEST), has_constant)


@lru_cache(maxsize=1024)
def _probe(size: int, has_constant: bool) -> Literal["first", "last"]:
    first, last = (numpy_helper.from_array(np.full(max(size, 1), number, np.uint8), "w") for number in (1, 2))
    output = helper.make_tensor_value_info("y", TensorProto.UINT8, None)
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "probe", [], [output], [first])
    if has_constant:
        graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=last))
    else:
        graph.initializer.append(last)
    model: onnx.ModelProto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)])
    (found,) = Session(model.SerializeToString(), optimised=False).run(None, {})
    return "first" if found.flat[0] == 1 else "last"
