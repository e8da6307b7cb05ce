"""Definitions of operators that onnxruntime has on CUDA alone, as functions of standard ONNX operators.

    before: com.microsoft.NhwcConv(x, w)
    after:  layoutopt.cuda.NhwcConv(x, w), a function: Transpose x and w -> Conv -> Transpose

A model with these operators loads on the CPU up to the missing kernel. With the definitions it runs.
"""

import onnx
import onnx.parser

from layoutopt.onnx_io.reader.lossless import nodes

DEFINED_DOMAIN = "layoutopt.cuda"
"""The domain of the definitions in a model that runs without the kernels."""

_DOMAIN = "com.microsoft"
_NHWC_CONV = """<domain: "layoutopt.cuda", opset_import: ["" : {opset}]>
NhwcConv <auto_pad, dilations, group, kernel_shape, pads, strides> (x, w, b) => (y) {{
    image = Transpose <perm = [0, 3, 1, 2]> (x)
    filter = Transpose <perm = [0, 3, 1, 2]> (w)
    features = Conv <auto_pad : string = @auto_pad, dilations : ints = @dilations, group : int = @group,
        kernel_shape : ints = @kernel_shape, pads : ints = @pads, strides : ints = @strides> (image, filter, b)
    y = Transpose <perm = [0, 2, 3, 1]> (features)
}}"""

DEFINITIONS = {"NhwcConv": _NHWC_CONV}
"""By operator of the domain `com.microsoft`."""


def lacks_kernels(message: onnx.ModelProto) -> bool:
    """Whether a model has operators without a kernel on the CPU."""
    return any(node.domain == _DOMAIN and node.op_type in DEFINITIONS for node in nodes(message))


def define_cuda_ops(message: onnx.ModelProto) -> None:
    """Give the operators of a model that have no kernel on the CPU their definitions, in place."""
    opset = next((each.version for each in message.opset_import if each.domain in ("", "ai.onnx")), 1)
    used = dict.fromkeys(
        node.op_type for node in nodes(message) if node.domain == _DOMAIN and node.op_type in DEFINITIONS
    )
    for node in nodes(message):
        if node.domain == _DOMAIN and node.op_type in used:
            node.domain = DEFINED_DOMAIN
    message.functions.extend(onnx.parser.parse_function(DEFINITIONS[kind].format(opset=opset)) for kind in used)
    if used:
        message.opset_import.add(domain=DEFINED_DOMAIN, version=1)


__all__ = ["DEFINED_DOMAIN", "DEFINITIONS", "define_cuda_ops", "lacks_kernels"]
