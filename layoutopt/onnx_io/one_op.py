"""A model of one op, from ONNX's text form: Conv <pads=[1,1,1,1]> (float16[1,64,56,56] x, float16[64,64,3,3] w)."""

import re

import onnx
import onnx.checker
import onnx.defs
import onnx.parser
import onnx_ir as ir

from layoutopt.errors import ModelError

_IR_VERSION = 10
_NAMES = {"float32": "float", "float64": "double"}  # as the text form has them


def one_op(kind: str, attributes: str, inputs: str) -> ir.Model:
    """A model of one op, whose operands are its inputs.

    Args:
        kind: the op type, of the standard domain.
        attributes: the attributes in angle brackets, or nothing.
        inputs: the inputs with their types.

    Raises:
        ModelError: the text cannot be parsed, the op type does not exist, or the op does not accept these inputs.
    """
    if not onnx.defs.has(kind):
        raise ModelError("ONNX has no such operator", where=kind)
    try:
        typed = re.sub(r"\bfloat(32|64)\b", lambda match: _NAMES[match[0]], inputs)
        graph = onnx.parser.parse_graph(f"op ({typed}) => () {{ }}")
        names = ", ".join(value.name for value in graph.input)
        graph.node.append(onnx.parser.parse_node(f"result = {kind} {attributes} ({names})"))
        graph.output.add().name = "result"
        opsets = [onnx.helper.make_opsetid("", onnx.defs.onnx_opset_version())]
        model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except onnx.parser.ParseError as error:
        message = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise ModelError(" ".join(message.split()), where=kind) from None
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError) as error:
        raise ModelError(" ".join(str(error).split()), where=kind) from None
    return ir.from_proto(inferred)


__all__ = ["one_op"]
