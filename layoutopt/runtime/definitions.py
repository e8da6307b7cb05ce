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
from onnx import helper

from layoutopt.onnx_io.messages import nodes
from layoutopt.runtime.kernel_queries import BLOCKED_DOMAIN

DEFINITION_DOMAIN = "layoutopt.nchwc"
"""The domain of the definitions, in a model that runs without the kernels."""

_CONSTANT_HAS_INTEGERS = 9
_ALLOW_ZERO = 14  # the opset from which Reshape takes extents of 0 literally

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

    def constant(self, values: Sequence[float] | float, dtype: int) -> str:
        """A constant with one axis, or none for a single number."""
        shape = [] if isinstance(values, int | float) else [len(values)]
        numbers = [values] if isinstance(values, int | float) else values
        return self("Constant", value=helper.make_tensor("value", dtype, shape, numbers))

    def ints(self, *values: int) -> str:
        """A constant list of int64."""
        if self.opset < _CONSTANT_HAS_INTEGERS:
            return self("Cast", self.constant(values, onnx.TensorProto.FLOAT), to=onnx.TensorProto.INT64)
        return self.constant(values, onnx.TensorProto.INT64)

    def extents(self, value: str) -> list[str]:
        """The four extents of a tensor, each as a list of one."""
        shape = self("Shape", value)
        return [self("Gather", shape, self.ints(axis)) for axis in range(4)]

    def shaped(self, value: str, *extents: str) -> str:
        """A Reshape to extents, each a list of one or more."""
        shape = self("Concat", *extents, axis=0) if len(extents) > 1 else extents[0]
        return self("Reshape", value, shape, **({"allowzero": 1} if self.opset >= _ALLOW_ZERO else {}))


Definition: TypeAlias = Callable[[Body, Sequence[str], Attributes], tuple[str, ...]]
"""Adds the nodes that compute an operator from its inputs (an empty name is an omitted input), and returns its outputs."""


# Definitions of onnxruntime's blocked operators, the domain `com.microsoft.nchwc`.
#
# Shapes are read at run time, so a definition serves every size; it fails where the kernel refuses its operands, for
# channels that are no whole blocks.
#
# Images (N, C, H, W) are stored as (N, C/b, H, W, b). Filters (O, I, H, W) are stored as (O/b, I/b, H, W, b, b), inputs
# before outputs in a block, or as (O/b, I, H, W, b) if I is smaller than a block. Then the image is stored in the plain
# format, unless the convolution is depthwise.

_CLIP_HAS_INPUTS = 11  # the opset from which bounds of Clip are inputs
_HARD_SWISH_SINCE = 14  # the opset that adds HardSwish
_SLICE_HAS_INPUTS = 10
_UPSAMPLE_HAS_INPUTS = 9
_RESIZE_SINCE = 10  # the opset that adds Resize
_RESIZE_HAS_COORDINATES = 11
_MAX_INPUTS = 4
_NOT_IN_CONV = ("activation", "activation_params")


def _is_less(body: Body, first: str, second: str) -> str:
    """Whether one integer is less than another one, both in lists of one."""
    operands = (body("Cast", each, to=onnx.TensorProto.FLOAT) for each in (first, second))
    return body("Less", *operands)


def _width(body: Body, is_plain: str) -> str:
    """The extent of the innermost axis: 1 for a value in the plain format, otherwise the block, as a list of one."""
    plain = body("Cast", is_plain, to=onnx.TensorProto.INT64)
    return body("Sub", body.ints(body.block), body("Mul", plain, body.ints(body.block - 1)))


def _unpacked(body: Body, image: str, width: str | None = None) -> str:
    """A blocked image in the plain format; `width` is the extent of its innermost axis, by default the block."""
    width = width or body.ints(body.block)
    batch, channels, height, columns = body.extents(image)
    blocks = body.shaped(image, batch, body("Div", channels, width), height, columns, width)
    return body.shaped(body("Transpose", blocks, perm=[0, 1, 4, 2, 3]), body("Shape", image))


def _packed(body: Body, image: str) -> str:
    """An image in the plain format as a blocked one."""
    batch, channels, height, columns = body.extents(image)
    block = body.ints(body.block)
    blocks = body.shaped(image, batch, body("Div", channels, block), block, height, columns)
    return body.shaped(body("Transpose", blocks, perm=[0, 1, 3, 4, 2]), body("Shape", image))


def _conv(body: Body, inputs: Sequence[str], attributes: Attributes) -> tuple[str, ...]:
    """activation(conv(x, w) + bias + sum); the sum is blocked as the result is."""
    x, w, bias, addend = (*inputs, *[""] * (4 - len(inputs)))
    block, outputs, per_group = body.ints(body.block), *body.extents(w)[:2]
    is_small = _is_less(body, per_group, block)
    groups = body.ints(attributes.get("group", 1))
    is_wide = [body("Not", _is_less(body, each, body.ints(2))) for each in (per_group, body("Div", outputs, groups))]
    is_plain = body("And", is_small, body("Or", *is_wide))
    inner = _width(body, is_small)
    kernel = body.extents(w)[2:]
    filters = body.shaped(w, body("Div", outputs, block), body("Div", per_group, inner), *kernel, inner, block)
    filters = body.shaped(body("Transpose", filters, perm=[0, 5, 1, 4, 2, 3]), body("Shape", w))
    plain = {name: value for name, value in attributes.items() if name not in _NOT_IN_CONV}
    operands = [_unpacked(body, x, _width(body, is_plain)), filters, *([bias] if bias else [])]
    y = _packed(body, body("Conv", *operands, **plain))
    y = body("Add", y, addend) if addend else y
    activation = attributes.get("activation", b"").decode()
    return (_activated(body, y, activation, attributes.get("activation_params", ())) if activation else y,)


def _activated(body: Body, x: str, activation: str, parameters: Sequence[float]) -> str:
    if activation == "Clip" and body.opset >= _CLIP_HAS_INPUTS:
        return body("Clip", x, *(body.constant(number, onnx.TensorProto.FLOAT) for number in parameters))
    if activation == "HardSwish" and body.opset < _HARD_SWISH_SINCE:
        return body("Mul", x, body("HardSigmoid", x, alpha=1 / 6, beta=0.5))
    names = {"Clip": ("min", "max"), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}.get(activation, ())
    return body(activation, x, **dict(zip(names, parameters, strict=True)))


def _pool(op_type: str) -> Definition:
    """The definition of a pooling, which treats every channel alike."""

    def define(body: Body, inputs: Sequence[str], attributes: Attributes) -> tuple[str, ...]:
        return (_packed(body, body(op_type, _unpacked(body, inputs[0]), **attributes)),)

    return define


def _reorder_input(body: Body, inputs: Sequence[str], attributes: Attributes) -> tuple[str, ...]:
    """Plain to blocked format; channels are padded with zeros to whole blocks."""
    (x,) = inputs
    if attributes.get("channels_last", 0):
        x = body("Transpose", x, perm=[0, 3, 1, 2])
    batch, channels, *image = body.extents(x)
    block = body.ints(body.block)
    blocks = body("Div", body("Add", channels, body.ints(body.block - 1)), block)
    missing = body("Sub", body("Mul", blocks, block), channels)
    zero = body("Constant", value=helper.make_tensor("value", onnx.TensorProto.FLOAT, [1, 1, 1, 1], [0.0]))
    zeros = body("Tile", zero, body("Concat", batch, missing, *image, axis=0))
    return (_packed(body, body("Concat", x, zeros, axis=1)),)


def _reorder_output(body: Body, inputs: Sequence[str], attributes: Attributes) -> tuple[str, ...]:
    """Blocked to plain format, without the padding of the channels."""
    channels = attributes["channels"]
    x = _unpacked(body, inputs[0])
    if body.opset < _SLICE_HAS_INPUTS:
        y = body("Slice", x, axes=[1], starts=[0], ends=[channels])
    else:
        y = body("Slice", x, body.ints(0), body.ints(channels), body.ints(1))
    return (body("Transpose", y, perm=[0, 2, 3, 1]) if attributes.get("channels_last", 0) else y,)


def _upsample(body: Body, inputs: Sequence[str], attributes: Attributes) -> tuple[str, ...]:
    """Resize by whole scales."""
    x, mode = _unpacked(body, inputs[0]), attributes.get("mode", b"nearest").decode()
    factors = [float(scale) for scale in attributes["scales"]]
    if body.opset < _UPSAMPLE_HAS_INPUTS:
        return (_packed(body, body("Upsample", x, mode=mode, scales=factors)),)
    scales = body.constant(factors, onnx.TensorProto.FLOAT)
    if body.opset < _RESIZE_SINCE:
        return (_packed(body, body("Upsample", x, scales, mode=mode)),)
    if body.opset < _RESIZE_HAS_COORDINATES:
        return (_packed(body, body("Resize", x, scales, mode=mode)),)
    coordinates = attributes.get("coordinate_transformation_mode", b"asymmetric").decode()
    fields = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": "floor"}
    return (_packed(body, body("Resize", x, body.constant((), onnx.TensorProto.FLOAT), scales, **fields)),)


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
    numbers = body("Gather", body.shaped("x0", body.ints(-1)), body.ints(0, 0, 0, 0))
    result = body("Reshape", "x0", body("Cast", numbers, to=onnx.TensorProto.INT64))
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
            _drop_omitted(node)
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
    results = DEFINITIONS[node.op_type](body, names, attributes)[: len(node.output)]
    inputs = [f"x{index}" for index in range(len(names))]
    imports = [helper.make_opsetid("", body.opset)]
    return helper.make_function(DEFINITION_DOMAIN, name, inputs, results, body.nodes, imports)


def _signature(node: onnx.NodeProto) -> tuple[Any, ...]:
    """Equal for calls that share a definition: operator, attributes, present inputs, number of outputs."""
    attributes = sorted(attr.SerializeToString(deterministic=True) for attr in node.attribute)
    return (node.op_type, tuple(attributes), tuple(bool(name) for name in node.input), len(node.output))


def _drop_omitted(node: onnx.NodeProto) -> None:
    """Drop omitted inputs and outputs at the end."""
    for names in (node.input, node.output):
        while names and not names[-1]:
            del names[-1]
