"""Definitions of onnxruntime's blocked operators in standard ONNX operators, as functions that any machine runs.

Some operators exist on some machines only. A model with them runs elsewhere, after `define`, by their semantics:

    before: com.microsoft.nchwc.Conv(x, w)
    after:  layoutopt.nchwc.Conv_0(x, w), a function: unpack x and w -> Conv -> pack

Every distinct call gets a function of its own, with its attributes as numbers. The operators are those of the domain
com.microsoft.nchwc, which exist with the block size of the machine.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import onnx
from onnx import TensorProto, helper

from layoutopt.onnx_io.messages import nodes
from layoutopt.runtime.kernel_queries import BLOCKED_DOMAIN

DEFINITION_DOMAIN = "layoutopt.nchwc"
"""The domain of the definitions, in a model that runs without the kernels."""

Attributes: TypeAlias = Mapping[str, Any]


@dataclass(slots=True)
class Body:
    """The nodes of one definition.

    Attributes:
        opset: the version of the standard operators.
        block: channels per block; 1 for a placeholder.
        nodes: the nodes so far.
    """

    opset: int
    block: int = 1
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def __call__(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output, and return the output's name."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], **attributes))
        return name

    def floats(self, *values: float, shape: Sequence[int] | None = None) -> str:
        """A constant of float32, by default with one axis."""
        shape = (len(values),) if shape is None else shape
        return self("Constant", value=helper.make_tensor("value", TensorProto.FLOAT, shape, values))

    def ints(self, *values: int) -> str:
        """A constant list of int64, by a Cast, since Constant takes no integers before opset 9."""
        return self("Cast", self.floats(*values), to=TensorProto.INT64)


Definition: TypeAlias = Callable[[Body, Sequence[str], Attributes], str]
"""Adds the nodes that compute an operator from its inputs (an empty name is an omitted input), and returns its output."""


# Definitions of onnxruntime's blocked operators, the domain `com.microsoft.nchwc`.
#
# Shapes are read at run time, so a definition serves every size; it fails where the kernel refuses its operands, for
# channels that are no whole blocks. In the shape of a Reshape, 0 keeps an extent and -1 is the one that is left.
#
# Images (N, C, H, W) are stored as (N, C/b, H, W, b). Filters (O, I, H, W) are stored as (O/b, I/b, H, W, b, b), inputs
# before outputs in a block, or as (O/b, I, H, W, b) if I is smaller than a block. Then the image is stored in the plain
# format, unless the convolution is depthwise.

_NOT_IN_CONV = ("activation", "activation_params")
_MAX_INPUTS = 4


def _unpacked(body: Body, image: str, width: str | None = None) -> str:
    """A blocked image in the plain format; `width` is the extent of its innermost axis, by default the block."""
    target = body("Concat", body.ints(0, -1, 0, 0), width or body.ints(body.block), axis=0)
    blocks = body("Transpose", body("Reshape", image, target), perm=[0, 1, 4, 2, 3])
    return body("Reshape", blocks, body("Shape", image))


def _packed(body: Body, image: str) -> str:
    """An image in the plain format as a blocked one."""
    pixels = body("Transpose", image, perm=[0, 2, 3, 1])
    blocks = body("Reshape", pixels, body.ints(0, 0, 0, -1, body.block))
    return body("Reshape", body("Transpose", blocks, perm=[0, 3, 1, 2, 4]), body("Shape", image))


def _conv(body: Body, inputs: Sequence[str], attributes: Attributes) -> str:
    """activation(conv(x, w) + bias + sum); the sum is blocked as the result is."""
    x, w, bias, addend = (*inputs, *[""] * (_MAX_INPUTS - len(inputs)))
    per_group = body("Gather", body("Shape", w), body.ints(1))
    blocks = body("Cast", body("Div", per_group, body.ints(body.block)), to=TensorProto.BOOL)
    added = body("Mul", body("Cast", blocks, to=TensorProto.INT64), body.ints(body.block - 1))
    width = body("Add", body.ints(1), added)  # the block, or 1 for fewer channels than a block
    target = body(
        "Concat", body.ints(-1), body("Div", per_group, width), body.ints(0, 0), width, body.ints(body.block), axis=0
    )
    filters = body("Transpose", body("Reshape", w, target), perm=[0, 5, 1, 4, 2, 3])
    filters = body("Reshape", filters, body("Shape", w))
    image = _unpacked(body, x, width if attributes.get("group", 1) == 1 else None)
    plain = {name: value for name, value in attributes.items() if name not in _NOT_IN_CONV}
    y = _packed(body, body("Conv", image, filters, *([bias] if bias else []), **plain))
    y = body("Add", y, addend) if addend else y
    activation = attributes.get("activation", b"").decode()
    return _activated(body, y, activation, attributes.get("activation_params", ())) if activation else y


def _activated(body: Body, x: str, activation: str, parameters: Sequence[float]) -> str:
    if activation == "Clip" and body.opset >= 11:
        return body("Clip", x, *(body.floats(number, shape=()) for number in parameters))
    if activation == "HardSwish":
        return body("Mul", x, body("HardSigmoid", x, alpha=1 / 6, beta=0.5))
    names = {"Clip": ("min", "max"), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}.get(activation, ())
    return body(activation, x, **dict(zip(names, parameters, strict=True)))


def _pool(op_type: str) -> Definition:
    """The definition of a pooling, which treats every channel alike."""
    return lambda body, inputs, attributes: _packed(body, body(op_type, _unpacked(body, inputs[0]), **attributes))


def _reorder_input(body: Body, inputs: Sequence[str], attributes: Attributes) -> str:
    """Plain to blocked format; channels are padded with zeros to whole blocks."""
    (x,) = inputs
    if attributes.get("channels_last", 0):
        x = body("Transpose", x, perm=[0, 3, 1, 2])
    shape, blocks = body("Shape", x), body.ints(1, body.block, 1, 1)
    padded = body("Mul", body("Div", body("Add", shape, body.ints(0, body.block - 1, 0, 0)), blocks), blocks)
    missing = body("Sub", padded, body("Mul", shape, body.ints(0, 1, 0, 0)))
    zeros = body("Tile", body.floats(0.0, shape=(1, 1, 1, 1)), missing)
    return _packed(body, body("Concat", x, zeros, axis=1))


def _reorder_output(body: Body, inputs: Sequence[str], attributes: Attributes) -> str:
    """Blocked to plain format, without the padding of the channels."""
    y = body("Gather", _unpacked(body, inputs[0]), body.ints(*range(attributes["channels"])), axis=1)
    return body("Transpose", y, perm=[0, 2, 3, 1]) if attributes.get("channels_last", 0) else y


def _upsample(body: Body, inputs: Sequence[str], attributes: Attributes) -> str:
    """Resize by whole scales."""
    x, mode = _unpacked(body, inputs[0]), attributes.get("mode", b"nearest").decode()
    factors = [float(scale) for scale in attributes["scales"]]
    if body.opset < 9:
        return _packed(body, body("Upsample", x, mode=mode, scales=factors))
    scales = body.floats(*factors)
    if body.opset < 11:
        return _packed(body, body("Upsample" if body.opset < 10 else "Resize", x, scales, mode=mode))
    coordinates = attributes.get("coordinate_transformation_mode", b"asymmetric").decode()
    fields = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": "floor"}
    return _packed(body, body("Resize", x, body.floats(), scales, **fields))


DEFINITIONS: Mapping[str, Definition] = {
    "Conv": _conv,
    "MaxPool": _pool("MaxPool"),
    "AveragePool": _pool("AveragePool"),
    "GlobalMaxPool": _pool("GlobalMaxPool"),
    "GlobalAveragePool": _pool("GlobalAveragePool"),
    "ReorderInput": _reorder_input,
    "ReorderOutput": _reorder_output,
    "Upsample": _upsample,
}
"""By operator of the domain `com.microsoft.nchwc`."""


def placeholder(op_type: str, opset: int) -> onnx.FunctionProto:
    """A function with the name of a blocked operator, with which a model loads where onnxruntime does not have the operator.

    It returns an image of zeros as it is, and stops with an error on any other one: its first numbers become extents of a
    Reshape. onnxruntime does not infer the shape of the result, so it finds no contradiction to shapes that the model declares.
    """
    body = Body(opset)
    numbers = body("Gather", body("Reshape", "x0", body.ints(-1)), body.ints(0, 0, 0, 0))
    result = body("Reshape", "x0", body("Cast", numbers, to=TensorProto.INT64))
    inputs = [f"x{index}" for index in range(_MAX_INPUTS)]
    imports = [helper.make_opsetid("", opset)]
    return helper.make_function(BLOCKED_DOMAIN, op_type, inputs, [result], body.nodes, imports)


def define(message: onnx.ModelProto, block: int) -> None:
    """Replace every blocked operator in a model by a call of its definition, in place.

    Args:
        message: the model.
        block: channels per block.
    """
    opset = next((each.version for each in message.opset_import if each.domain in ("", "ai.onnx")), 1)
    functions: dict[tuple[Any, ...], onnx.FunctionProto] = {}
    for node in nodes(message):
        if node.domain == BLOCKED_DOMAIN and node.op_type in DEFINITIONS:
            key = _signature(node)
            if key not in functions:
                body = Body(opset, block)
                functions[key] = _definition(node, body, f"{node.op_type}_{len(functions)}")
            node.domain, node.op_type = DEFINITION_DOMAIN, functions[key].name
    message.functions.extend(functions.values())
    if functions:
        message.opset_import.add(domain=DEFINITION_DOMAIN, version=1)


def _definition(node: onnx.NodeProto, body: Body, name: str) -> onnx.FunctionProto:
    """The definition of one call, as a function with a name."""
    names = [f"x{index}" if name else "" for index, name in enumerate(node.input)]
    attributes = {attr.name: helper.get_attribute_value(attr) for attr in node.attribute}
    result = DEFINITIONS[node.op_type](body, names, attributes)
    inputs = [f"x{index}" for index in range(len(names))]
    imports = [helper.make_opsetid("", body.opset)]
    return helper.make_function(DEFINITION_DOMAIN, name, inputs, [result], body.nodes, imports)


def _signature(node: onnx.NodeProto) -> tuple[Any, ...]:
    """Equal for calls that share a definition: operator, attributes, present inputs."""
    attributes = sorted(attr.SerializeToString(deterministic=True) for attr in node.attribute)
    return node.op_type, tuple(attributes), tuple(map(bool, node.input))
