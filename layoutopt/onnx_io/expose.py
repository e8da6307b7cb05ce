"""A model with some of its inner values as further outputs, to look inside."""

from collections.abc import Sequence

import onnx_ir as ir

from layoutopt.onnx_io.serialize import to_bytes


def to_bytes_exposing(model: ir.Model, names: Sequence[str]) -> bytes:
    """The file of the model, with the named values behind its outputs; the model is unchanged afterwards.

    Names that no node of the main graph computes are left out.
    """
    outputs = model.graph.outputs
    present = {value.name for value in outputs}
    values = {value.name: value for node in model.graph for value in node.outputs}
    count = len(outputs)
    outputs.extend(values[name] for name in names if name in values and name not in present)
    try:
        return to_bytes(model)
    finally:
        while len(outputs) > count:
            outputs.pop()
