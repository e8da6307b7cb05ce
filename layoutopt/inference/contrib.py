"""What operators of onnxruntime are to onnx's inference: functions of standard operators that give results of the same types.

onnx knows nothing of the domain com.microsoft, so behind such an operator it knows no shape, and models that a quantiser has
written or that onnxruntime has saved are full of them. The functions stand in the copy of a model that is inferred and nowhere
else; they compute nothing of interest.
"""

from collections.abc import Callable, Sequence
from typing import Any

import onnx
import onnx.helper
import onnx.parser

from layoutopt.onnx_io.reader.lossless import nested

DOMAIN = "com.microsoft"
_EXPLAINED = "layoutopt.explained"
_OPSET = 21

Body = Callable[[onnx.NodeProto], str | None]


def explain(model: onnx.ModelProto, domain: str = DOMAIN) -> bool:
    """Give the operators of a domain in the main graph and its subgraphs bodies, in place. Returns whether there were any.

    Operators that the model itself defines, and those of which nothing is known, stay as they are.

    Args:
        model: the message.
        domain: com.microsoft, or "" for the standard operators that onnx itself does not infer.
    """
    bodies = _BODIES if domain == DOMAIN else _STANDARD
    own = {(function.domain, function.name) for function in model.functions}
    known: dict[str, str] = {}
    for node in (node for graph in nested([model.graph]) for node in graph.node):
        make = bodies.get(node.op_type) if node.domain == domain and (domain, node.op_type) not in own else None
        text = make(node) if make is not None else None
        if text is None:
            continue
        name = known.setdefault(text, f"{node.op_type}_{len(known)}")
        node.domain, node.op_type = _EXPLAINED, name
        del node.attribute[:]
    for text, name in known.items():
        header = f'<domain: "{_EXPLAINED}", opset_import: ["" : {_OPSET}]> {name} '
        model.functions.append(onnx.parser.parse_function(header + text))
    if known and all(opset.domain != _EXPLAINED for opset in model.opset_import):
        model.opset_import.add(domain=_EXPLAINED, version=1)
    return bool(known)


def _attributes(node: onnx.NodeProto, *names: str) -> dict[str, Any]:
    given = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    return {name: given[name] for name in names if name in given}


def _written(attributes: dict[str, Any]) -> str:
    """Attributes in onnx's notation."""
    items = ((name, value.decode() if isinstance(value, bytes) else value) for name, value in attributes.items())
    texts = (f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {_listed(value)}" for name, value in items)
    return f"<{', '.join(texts)}>" if attributes else ""


def _listed(value: Any) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list | tuple) else str(value)


def _function(node: onnx.NodeProto, *lines: str, outputs: Sequence[str] = ("o",)) -> str:
    """A body that reads i0, i1, ... and computes o, or other outputs."""
    inputs = ", ".join(f"i{index}" for index in range(len(node.input)))
    return f"({inputs}) => ({', '.join(outputs)}) {{ {' '.join(lines)} }}"


def _is_single(node: onnx.NodeProto) -> bool:
    return len([name for name in node.output if name]) == 1


def _as(index: int) -> Body:
    """The type and shape of an input."""
    return lambda node: _function(node, f"o = Identity (i{index})") if _is_single(node) else None


def _broadcast(*indices: int) -> Body:
    """Of several inputs, broadcast; the element type of the first."""

    def body(node: onnx.NodeProto) -> str:
        first, second = indices
        lines = [f"a = Cast <to = 1> (i{first})", f"b = Cast <to = 1> (i{second})", "s = Add (a, b)"]
        return _function(node, *lines, f"o = CastLike (s, i{first})")

    return body


def _skip_normalized(node: onnx.NodeProto) -> str:
    """The normalised sum, its mean and inverse deviation along the last axis, and the sum, which has the first input's type."""
    lines = {
        "o": "o = Identity (i0)",
        "m": "f = Cast <to = 1> (i0) a = Constant <value_ints = [-1]> () m = ReduceMean (f, a)",
        "v": "g = Cast <to = 1> (i0) b = Constant <value_ints = [-1]> () v = ReduceMean (g, b)",
        "s": "s = Identity (i0)",
    }
    outputs = list(lines)[: len(node.output)]
    return _function(node, *(lines[name] for name in outputs), outputs=outputs)


def _where(node: onnx.NodeProto) -> str:
    lines = ("a = Cast <to = 1> (i1)", "b = Cast <to = 1> (i4)", "s = Where (i0, a, b)", "o = CastLike (s, i1)")
    return _function(node, *lines)


def _concat(node: onnx.NodeProto) -> str:
    pieces = [f"i{index}" for index in range(2, len(node.input), 3)]
    return _function(node, f"o = Concat {_written(_attributes(node, 'axis'))} ({', '.join(pieces)})")


_WINDOW = ("auto_pad", "dilations", "kernel_shape", "pads", "strides")


def _last(rank: int) -> tuple[str, str]:
    """Transposes from channels last to channels first, and back."""
    to = [0, rank - 1, *range(1, rank - 1)]
    back = [0, *range(2, rank), 1]
    return f"Transpose <perm = {_listed(to)}>", f"Transpose <perm = {_listed(back)}>"


def _windowed(kind: str, *names: str, likes: int = 0, weight: int | None = None, last: bool = False) -> Body:
    """A window over an image, whose channels may be last; the result has the element type of an input."""

    def body(node: onnx.NodeProto) -> str | None:
        given = _attributes(node, *_WINDOW, *names)
        is_last = last or bool(_attributes(node, "channels_last").get("channels_last"))
        sides = given.get("kernel_shape")
        if is_last and sides is None:
            return None
        first, back = _last(len(sides) + 2) if is_last and sides is not None else ("Identity", "Identity")
        lines = ["a = Cast <to = 1> (i0)", f"b = {first} (a)"]
        operands = "b"
        if weight is not None:
            lines.append(f"w = Cast <to = 1> (i{weight})")
            operands = "b, w"
        lines += [f"c = {kind} {_written(given)} ({operands})", f"d = {back} (c)", f"o = CastLike (d, i{likes})"]
        return _function(node, *lines)

    return body


def _global_pool(node: onnx.NodeProto) -> str | None:
    if _attributes(node, "channels_last").get("channels_last"):
        return None
    return _function(node, "a = Cast <to = 1> (i0)", "b = GlobalAveragePool (a)", "o = CastLike (b, i0)")


def _product(first: int, second: int, likes: int, *names: str) -> Body:
    """Of two inputs; the result has the element type of a third."""

    def body(node: onnx.NodeProto) -> str:
        kind = "Gemm" if names else "MatMul"
        lines = [f"a = Cast <to = 1> (i{first})", f"b = Cast <to = 1> (i{second})"]
        lines.append(f"c = {kind} {_written(_attributes(node, *names))} (a, b)")
        if likes >= len(node.input) or not node.input[likes]:
            return _function(node, *lines, "o = Identity (c)")
        return _function(node, *lines, f"o = CastLike (c, i{likes})")

    return body


def _packed(node: onnx.NodeProto) -> str | None:
    sides = _attributes(node, "K", "N")
    if len(sides) != 2:
        return None
    lines = (f"s = Constant <value_ints = {_listed([sides['K'], sides['N']])}> ()", "z = ConstantOfShape (s)")
    return _function(node, *lines, "w = CastLike (z, i0)", "o = MatMul (i0, w)")


def _quantize(node: onnx.NodeProto) -> str:
    if len(node.input) > 2 and node.input[2]:
        return _function(node, "o = CastLike (i0, i2)")
    return _function(node, "o = Cast <to = 2> (i0)")


def _fused_product(node: onnx.NodeProto) -> str | None:
    given = _attributes(node, "transA", "transB", "transBatchA", "transBatchB")
    return _function(node, "o = MatMul (i0, i1)") if not any(given.values()) else None


_LIKE_THE_FIRST = (
    "BiasAdd",
    "BiasGelu",
    "BiasSoftmax",
    "FastGelu",
    "Gelu",
    "GroupNorm",
    "Inverse",
    "LayerNormalization",
    "QuickGelu",
    "RotaryEmbedding",
    "SimplifiedLayerNormalization",
    "Trilu",
)
"""Operators of one output, which has the type and shape of the first input."""

_BODIES: dict[str, Body] = {
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), _broadcast(0, 3)),
    **dict.fromkeys(("QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax"), _as(0)),
    "QLinearWhere": _where,
    "QLinearConcat": _concat,
    "QLinearConv": _windowed("Conv", "group", likes=7, weight=3),
    "QLinearAveragePool": _windowed("AveragePool", "ceil_mode", "count_include_pad"),
    "QLinearGlobalAveragePool": _global_pool,
    "NhwcMaxPool": _windowed("MaxPool", "ceil_mode", last=True),
    "QGemm": _product(0, 3, 8, "transA", "transB"),
    "DynamicQuantizeMatMul": _product(0, 1, 0),
    "MatMulIntegerToFloat": _product(0, 1, 2),
    "MatMulNBits": _packed,
    "MatMulBnb4": _packed,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": lambda node: _function(node, "o = CastLike (i0, i1)"),
    "FusedConv": _windowed("Conv", "group", weight=1),
    "NhwcFusedConv": _windowed("Conv", "group", weight=1, last=True),
    "FusedGemm": _product(0, 1, 0, "transA", "transB"),
    "FusedMatMul": _fused_product,
    "TransposeMatMul": _fused_product,
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), _skip_normalized),
    **dict.fromkeys(_LIKE_THE_FIRST, _as(0)),
}

_STANDARD: dict[str, Body] = {"GroupNormalization": _as(0)}

__all__ = ["explain"]
