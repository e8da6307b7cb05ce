"""Operators of onnxruntime, by their definition in operators of ONNX.

Images of the domain `com.microsoft.nchwc` are terms (N, C/b, H, W, b), filters are stored as (O/b, I/b, H, W, b, b), or as
(O/b, I, H, W, b) if I is smaller than a block; the image is plain then, unless the convolution is depthwise.
"""

from layoutopt.certificate.checker import index_map as maps
from layoutopt.certificate.checker.model import MICROSOFT, NCHWC
from layoutopt.certificate.checker.normal import make, reshaped, transposed
from layoutopt.certificate.checker.operators import Call, gelu, hard_swish, meaning, number
from layoutopt.certificate.checker.terms import Extent, Term, UnprovableError
from layoutopt.certificate.checker.window_operators import convolution, pooling


def _blocks(extent: Extent, block: int) -> Extent:
    blocks = maps.quotient(extent, block)
    if blocks is None:
        raise UnprovableError(f"{extent} channels are no whole blocks of {block}")
    return blocks


def blocked(x: Term, block: int) -> Term:
    """(N, C, H, W) as (N, C/b, H, W, b)."""
    batch, channels, *image = x.shape
    return transposed(reshaped(x, (batch, _blocks(channels, block), block, *image)), (0, 1, 3, 4, 2))


def plain(x: Term, block: int) -> Term:
    """The image (N, C, H, W) that a blocked array is; an array of four axes is read as its buffer is."""
    if len(x.shape) != 5:
        batch, channels, *image = x.shape
        x = reshaped(x, (batch, _blocks(channels, block), *image, block))
    batch, blocks, *image, width = x.shape
    if width != block or len(image) != 2:
        raise UnprovableError(f"{x.shape} is no image in blocks of {block}")
    return reshaped(transposed(x, (0, 1, 4, 2, 3)), (batch, maps.volume([blocks, width]), *image))


@meaning(f"{NCHWC}.Conv")
def _conv(call: Call) -> Term:
    x, w, block = call[0], call[1], call.block
    outputs, inputs, *kernel = w.shape
    group = call.attributes.get("group", 1)
    if not isinstance(inputs, int) or not isinstance(outputs, int) or outputs % block or outputs % group:
        raise UnprovableError("a blocked convolution with filters that are no whole blocks")
    inner = 1 if inputs < block else block
    is_plain = inputs < block and (inputs > 1 or outputs // group > 1)
    filters = reshaped(w, (outputs // block, _blocks(inputs, inner), *kernel, inner, block))
    filters = reshaped(transposed(filters, (0, 5, 1, 4, 2, 3)), w.shape)
    y = convolution(x if is_plain else plain(x, block), filters, call.optional(2), call.attributes)
    if call.optional(3) is not None:
        y = make("Add", y, plain(call[3], block))
    return blocked(_activated(y, call), block)


def _activated(y: Term, call: Call) -> Term:
    name, values = call.attributes.get("activation") or "", list(call.attributes.get("activation_params") or ())
    if name == "":
        return y
    if name == "Clip":
        return make("Clip", y, *(number(value, y) for value in values))
    if name == "HardSwish":
        return hard_swish(y)
    if name not in _ACTIVATIONS:
        raise UnprovableError(f"the activation {name} has no definition here")
    return make(name, y, **dict(zip(_ACTIVATIONS[name], values, strict=True)))


_ACTIVATIONS = {"Relu": (), "Tanh": (), "Sigmoid": (), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}


@meaning(*(f"{NCHWC}.{name}" for name in ("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool")))
def _pool(call: Call) -> Term:
    x = plain(call[0], call.block)
    name = call.op.rpartition(".")[2]
    if name.startswith("Global"):
        return blocked(make("ReduceMax" if "Max" in name else "ReduceMean", x, axes=(2, 3)), call.block)
    return blocked(pooling(Call(name, (x,), call.attributes, call.opset, call.block, call.outputs)), call.block)


@meaning(f"{NCHWC}.ReorderInput", f"{NCHWC}.ReorderOutput")
def _reorder(call: Call) -> Term:
    x, last = call[0], call.attributes.get("channels_last", 0)
    if call.op.endswith("ReorderInput"):
        x = transposed(x, (0, 3, 1, 2)) if last else x
        missing = -int(x.shape[1]) % call.block
        return blocked(
            x if not missing else make("Pad", x, mode="constant", pads=(0, 0, 0, 0, 0, missing, 0, 0)), call.block
        )
    y, channels = plain(x, call.block), call.attributes["channels"]
    if y.shape[1] != channels:
        raise UnprovableError("channels that only pad a block")
    return transposed(y, (0, 2, 3, 1)) if last else y


@meaning(f"{MICROSOFT}.FusedConv")
def _fused_conv(call: Call) -> Term:
    y = convolution(call[0], call[1], call.optional(2), call.attributes)
    if call.optional(3) is not None:
        y = make("Add", y, call[3])
    return _activated(y, call)


@meaning(f"{MICROSOFT}.Gelu", f"{MICROSOFT}.BiasGelu")
def _gelu(call: Call) -> Term:
    x = call[0] if call.op.endswith(".Gelu") else make("Add", call[0], call[1])
    return gelu(Call("Gelu", (x,), {}, call.opset, call.block, 1))
