"""Definitions of onnxruntime's blocked operators in standard ONNX operators, as functions that any machine runs.

Some operators exist on some machines only. A model with them runs elsewhere, after `define`, by their semantics:

    before: com.microsoft.nchwc.Conv(x, w)
    after:  layoutopt.nchwc.Conv_0(x, w), a function: unpack x and w -> Conv -> pack

Every call gets a function of its own, with its attributes as numbers. The operators are those of the domain
com.microsoft.nchwc, which exist with the block size of the machine.

Functions are written in ONNX's text format. Shapes are read at run time, so a definition serves every size; it fails where the
kernel refuses its operands, for channels that are no whole blocks. In the shape of a Reshape, 0 keeps an extent and -1 is the
one that is left. Integers are cast from floating-point constants, since Constant takes no integers before opset 9.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import onnx
from onnx import helper, parser

from layoutopt.onnx_io.messages import nodes
from layoutopt.runtime.kernel_queries import BLOCKED_DOMAIN

DEFINITION_DOMAIN = "layoutopt.nchwc"
"""The domain of the definitions, in a model that runs without the kernels."""

Attributes: TypeAlias = Mapping[str, Any]
_MAX_INPUTS = 4
Definition: TypeAlias = Callable[[Sequence[str], Attributes, int], str]
"""The nodes that compute y from the inputs x0, x1, ..., of which omitted ones are empty, by the attributes and the opset.

`BLOCK` is the number of channels per block, `LESS` one less. The node with the operator's own type gets its attributes.
"""

_CALLED = """
unpack_by (x, width) => (y) {
    keep_ = Constant <value = float[4] {0, -1, 0, 0}> ()
    keep = Cast <to = 7> (keep_)
    target = Concat <axis = 0> (keep, width)
    stored = Reshape (x, target)
    plain = Transpose <perm = [0, 1, 4, 2, 3]> (stored)
    shape = Shape (x)
    y = Reshape (plain, shape)
}

unpack (x) => (y) {
    block_ = Constant <value = float[1] {BLOCK}> ()
    block = Cast <to = 7> (block_)
    y = layoutopt.nchwc.unpack_by (x, block)
}

pack (x) => (y) {
    target_ = Constant <value = float[5] {0, 0, 0, -1, BLOCK}> ()
    target = Cast <to = 7> (target_)
    pixels = Transpose <perm = [0, 2, 3, 1]> (x)
    stored = Reshape (pixels, target)
    blocked = Transpose <perm = [0, 3, 1, 2, 4]> (stored)
    shape = Shape (x)
    y = Reshape (blocked, shape)
}
"""
"""Images (N, C, H, W) are stored as (N, C/b, H, W, b), after `unpack` and before `pack` in the plain format."""

_CONV = """
    block_ = Constant <value = float[1] {BLOCK}> ()
    block = Cast <to = 7> (block_)
    more_ = Constant <value = float[1] {LESS}> ()
    more = Cast <to = 7> (more_)
    one_ = Constant <value = float[1] {1}> ()
    one = Cast <to = 7> (one_)
    left = Neg (one_)
    outputs = Cast <to = 7> (left)
    kept_ = Constant <value = float[2] {0, 0}> ()
    kept = Cast <to = 7> (kept_)
    shape = Shape (x1)
    inputs = Gather (shape, one)
    blocks = Div (inputs, block)
    is_wide = Cast <to = 9> (blocks)
    added = Cast <to = 7> (is_wide)
    rest = Mul (added, more)
    width = Add (rest, one)
    outer = Div (inputs, width)
    target = Concat <axis = 0> (outputs, outer, kept, width, block)
    stored = Reshape (x1, target)
    ordered = Transpose <perm = [0, 5, 1, 4, 2, 3]> (stored)
    filter = Reshape (ordered, shape)
    image = layoutopt.nchwc.unpack_by (x0, WIDTH)
    product = Conv (OPERANDS)
    packed = layoutopt.nchwc.pack (product)
    sum = TOTAL
"""
"""Filters (O, I, H, W) are stored as (O/b, I/b, H, W, b, b), inputs before outputs in a block, or as (O/b, I, H, W, b) if I is
smaller than a block: `width` is b or 1. Then the image is stored in the plain format, unless there are groups."""

_PADDED = """
    before_ = Constant <value = float[4] {0, LESS, 0, 0}> ()
    before = Cast <to = 7> (before_)
    blocks_ = Constant <value = float[4] {1, BLOCK, 1, 1}> ()
    blocks = Cast <to = 7> (blocks_)
    channels_ = Constant <value = float[4] {0, 1, 0, 0}> ()
    channels = Cast <to = 7> (channels_)
    shape = Shape (x)
    more = Add (shape, before)
    count = Div (more, blocks)
    padded = Mul (count, blocks)
    present = Mul (shape, channels)
    missing = Sub (padded, present)
    zero = Constant <value = float[1,1,1,1] {0}> ()
    zeros = Tile (zero, missing)
    whole = Concat <axis = 1> (x, zeros)
    y = layoutopt.nchwc.pack (whole)
"""


def _conv(inputs: Sequence[str], attributes: Attributes, opset: int) -> str:
    """activation(conv(x, w) + bias + sum); the sum is blocked as the result is."""
    _, _, bias, addend = (*inputs, *[""] * (_MAX_INPUTS - len(inputs)))
    return _CONV.replace("WIDTH", "width" if attributes.get("group", 1) == 1 else "block").replace(
        "OPERANDS", f"image, filter, {bias}" if bias else "image, filter"
    ).replace("TOTAL", f"Add (packed, {addend})" if addend else "Identity (packed)") + _activation(attributes, opset)


def _activation(attributes: Attributes, opset: int) -> str:
    kind = attributes.get("activation", b"Identity").decode()
    parameters = [f"{float(each)!r}" for each in attributes.get("activation_params", ())]
    if kind == "Clip" and opset >= 11:
        low, high = (f"Constant <value = float {{{each}}}> ()" for each in parameters)
        return f"low = {low} high = {high} y = Clip (sum, low, high)"
    if kind == "HardSwish":
        return f"gate = HardSigmoid <alpha = {1 / 6}, beta = 0.5> (sum) y = Mul (sum, gate)"
    names = {"Clip": ("min", "max"), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}.get(kind, ())
    given = ", ".join(f"{name} = {each}" for name, each in zip(names, parameters, strict=True))
    return f"y = {kind} <{given}> (sum)" if given else f"y = {kind} (sum)"


def _pool(op_type: str) -> Definition:
    """The definition of a pooling, which treats every channel alike."""
    text = f"plain = layoutopt.nchwc.unpack (x0) pooled = {op_type} (plain) y = layoutopt.nchwc.pack (pooled)"
    return lambda inputs, attributes, opset: text


def _reorder_input(inputs: Sequence[str], attributes: Attributes, opset: int) -> str:
    """Plain to blocked format; channels are padded with zeros to whole blocks."""
    is_last = attributes.get("channels_last", 0)
    return ("x = Transpose <perm = [0, 3, 1, 2]> (x0)" if is_last else "x = Identity (x0)") + _PADDED


def _reorder_output(inputs: Sequence[str], attributes: Attributes, opset: int) -> str:
    """Blocked to plain format, without the padding of the channels."""
    count, is_last = attributes["channels"], attributes.get("channels_last", 0)
    return f"""
        channels_ = Constant <value = float[{count}] {{{", ".join(map(str, range(count)))}}}> ()
        channels = Cast <to = 7> (channels_)
        whole = layoutopt.nchwc.unpack (x0)
        plain = Gather <axis = 1> (whole, channels)
        y = {"Transpose <perm = [0, 2, 3, 1]>" if is_last else "Identity"} (plain)"""


def _upsample(inputs: Sequence[str], attributes: Attributes, opset: int) -> str:
    """Resize by whole scales."""
    scales, mode = ", ".join(f"{each}.0" for each in attributes["scales"]), attributes.get("mode", b"nearest").decode()
    coordinates = attributes.get("coordinate_transformation_mode", b"asymmetric").decode()
    if opset < 9:
        resized = f'Upsample <mode = "{mode}", scales = [{scales}]> (plain)'
    elif opset < 11:
        resized = f'{"Upsample" if opset < 10 else "Resize"} <mode = "{mode}"> (plain, scales)'
    else:
        fields = f'coordinate_transformation_mode = "{coordinates}", nearest_mode = "floor"'
        resized = f'Resize <mode = "{mode}", {fields}> (plain, roi, scales)'
    return f"""
        scales = Constant <value = float[4] {{{scales}}}> ()
        roi = Constant <value = float[0] {{}}> ()
        plain = layoutopt.nchwc.unpack (x0)
        resized = {resized}
        y = layoutopt.nchwc.pack (resized)"""


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


def _functions(text: str, opset: int, block: int, domain: str = DEFINITION_DOMAIN) -> list[onnx.FunctionProto]:
    """The functions of a text."""
    head = f'<domain: "{domain}", opset_import: ["" : {opset}, "{DEFINITION_DOMAIN}" : 1]>'
    filled = text.replace("BLOCK", str(block)).replace("LESS", str(block - 1))
    return [parser.parse_function(head + each) for each in filled.strip().split("\n\n")]


def placeholder(op_type: str, opset: int) -> onnx.FunctionProto:
    """A function with the name of a blocked operator, with which a model loads where onnxruntime does not have the operator.

    It returns an image of zeros as it is, and stops with an error on any other one: its first numbers become extents of a
    Reshape. onnxruntime does not infer the shape of the result, so it finds no contradiction to shapes that the model declares.
    """
    text = f"""{op_type} (x0, x1, x2, x3) => (y) {{
        flat_ = Constant <value = float[1] {{-1}}> ()
        flat = Cast <to = 7> (flat_)
        first_ = Constant <value = float[4] {{0, 0, 0, 0}}> ()
        first = Cast <to = 7> (first_)
        elements = Reshape (x0, flat)
        found = Gather (elements, first)
        extents = Cast <to = 7> (found)
        y = Reshape (x0, extents)
    }}"""
    (function,) = _functions(text, opset, 1, BLOCKED_DOMAIN)
    del function.opset_import[1:]
    return function


def define(message: onnx.ModelProto, block: int) -> None:
    """Replace every blocked operator in a model by a call of its definition, in place.

    Args:
        message: the model.
        block: channels per block.
    """
    opset = next((each.version for each in message.opset_import if each.domain in ("", "ai.onnx")), 1)
    functions: list[onnx.FunctionProto] = []
    for node in nodes(message):
        if node.domain == BLOCKED_DOMAIN and node.op_type in DEFINITIONS:
            functions.append(_definition(node, opset, block, f"{node.op_type}_{len(functions)}"))
            node.domain, node.op_type = DEFINITION_DOMAIN, functions[-1].name
    if functions:
        message.functions.extend([*functions, *_functions(_CALLED, opset, block)])
        message.opset_import.add(domain=DEFINITION_DOMAIN, version=1)


def _definition(node: onnx.NodeProto, opset: int, block: int, name: str) -> onnx.FunctionProto:
    """The definition of one call, as a function with a name."""
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    parameters = [f"x{index}" for index in range(len(node.input))]
    inputs = [parameter if name else "" for parameter, name in zip(parameters, node.input, strict=True)]
    body = DEFINITIONS[node.op_type](inputs, attributes, opset)
    (function,) = _functions(f"{name} ({', '.join(parameters)}) => (y) {{ {body} }}", opset, block)
    for each in function.node:
        if each.op_type == node.op_type and not each.attribute:
            each.attribute.extend(attr for attr in node.attribute if not attr.name.startswith("activation"))
    return function
