"""Function calls of one domain replaced by what they do: layoutopt's own models are read like any other."""

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from layoutopt.onnx_io.beside import inherit


def inline(model: ir.Model, domain: str) -> ir.Model:
    """The model without functions of `domain`; the model itself where it has none."""
    if not any(function.domain == domain for function in model.functions.values()):
        return model
    copy = model.clone()
    inherit(copy, model)
    InlinePass(lambda function: function.domain == domain)(copy)
    copy.graph.opset_imports.pop(domain, None)
    return copy
