"""Operators of onnxruntime, by their definition in operators of ONNX.

Images of the domain `com.microsoft.nchwc` are terms (N, C/b, H, W, b), filters are stored as (O/b, I/b, H, W, b, b), or as
(O/b, I, H, W, b) if I is smaller than a block; the image is plain then, unless the convolution is depthwise.
"""

from layoutopt.certificate.checker import index_map as maps
from layoutopt.certificate.checker.normal import make, reshaped, transposed
from layoutopt.certificate.checker.operators import (
    Call,
    gelu,
    layer_normalization,
    meaning,
    number,
)
from layoutopt.certificate.checker.terms import Extent, Term, UnprovableError
from layoutopt.certificate.checker.window_operators import convolution, pooling

NCHWC, MICROSOFT = "com.microsoft.nchwc", "com.microsoft"
_BLOCKED_RANK = 5


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
    if len(x.shape) != _BLOCKED_RANK:
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
        return make("Mul", y, make("HardSigmoid", y, alpha=_SIXTH, beta=0.5))
    names = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}.get(name, ())
    if name not in ("Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid"):
        raise UnprovableError(f"the activation {name} has no definition here")
    return make(name, y, **dict(zip(names, values, strict=True)))


_SIXTH = 0.1666666716337204  # 1/6 in float32


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
        y = make("Slice", y, axes=(1,), starts=(0,), ends=(channels,), steps=(1,))
    return transposed(y, (0, 2, 3, 1)) if last else y


@meaning(f"{MICROSOFT}.FusedConv")
def _fused_conv(call: Call) -> Term:
    y = convolution(call[0], call[1], call.optional(2), call.attributes)
    if call.optional(3) is not None:
        y = make("Add", y, call[3])
    return _activated(y, call)


@meaning(f"{MICROSOFT}.Gelu", f"{MICROSOFT}.BiasGelu", f"{MICROSOFT}.QuickGelu")
def _gelu(call: Call) -> Term:
    x = call[0] if call.op.endswith(".Gelu") or call.op.endswith("QuickGelu") else make("Add", call[0], call[1])
    if call.op.endswith("QuickGelu"):
        return make("Mul", x, make("Sigmoid", make("Mul", x, number(call.attributes.get("alpha", 1.702), x))))
    return gelu(Call("Gelu", (x,), {}, call.opset, call.block, 1))


@meaning(f"{MICROSOFT}.FusedMatMul")
def _fused_matmul(call: Call) -> Term:
    if call.attributes.get("transBatchA") or call.attributes.get("transBatchB"):
        raise UnprovableError("a FusedMatMul with transposed batch axes")
    x, y = (_swapped(call[k]) if call.attributes.get(name) else call[k] for k, name in enumerate(("transA", "transB")))
    return make("Mul", make("MatMul", x, y), number(call.attributes.get("alpha", 1.0), x))


def _swapped(x: Term) -> Term:
    rank = len(x.shape)
    return transposed(x, (*range(rank - 2), rank - 1, rank - 2))


@meaning(f"{MICROSOFT}.SkipLayerNormalization")
def _skip_layer_normalization(call: Call) -> Term:
    if call.outputs > 1:
        raise UnprovableError("a SkipLayerNormalization with more than one output")
    parts = [term for term in (call[0], call[1], call.optional(4)) if term is not None]
    return layer_normalization(make("Add", *parts), call[2], call.optional(3), call.attributes.get("epsilon", 1e-12))


@meaning(f"{MICROSOFT}.MultiHeadAttention")
def _attention(call: Call) -> Term:
    if any(term is not None for term in call.args[3:]) or call.outputs > 1 or call.attributes.get("unidirectional"):
        raise UnprovableError("a MultiHeadAttention with a bias, a mask or a cache")
    heads: int = call.attributes["num_heads"]
    q, k, v = (_heads(call[index], heads) for index in range(3))
    width = q.shape[-1]
    scale = call.attributes.get("scale") or (float(width) ** -0.5 if isinstance(width, int) else 0.0)
    if not scale:
        raise UnprovableError("the scale of an attention is not known for all sizes")
    scores = make("Mul", make("MatMul", q, _swapped(k)), number(scale, q))
    y = transposed(make("MatMul", make("Softmax", scores, axis=3), v), (0, 2, 1, 3))
    return reshaped(y, (*y.shape[:2], maps.volume(y.shape[2:])))


def _heads(x: Term, heads: int) -> Term:
    if len(x.shape) == 4:
        return x
    batch, length, width = x.shape
    return transposed(reshaped(x, (batch, length, heads, _blocks(width, heads))), (0, 2, 1, 3))
