"""Operators of ONNX as terms: forms of all opsets become one, fused forms are written by their definition."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layoutopt.certificate.checker import index_map as maps
from layoutopt.certificate.checker.lemmas import ALGEBRAIC
from layoutopt.certificate.checker.model import MICROSOFT, NCHWC, Model, array_of, attributes
from layoutopt.certificate.checker.normal import general, make, reshaped, transposed
from layoutopt.certificate.checker.terms import (
    CONSTANT,
    FLOATS,
    GENERAL,
    NARY,
    REDUCTIONS,
    SAME_IN_BLOCKS,
    UNARY,
    Extent,
    Term,
    UnprovableError,
    constant,
    inferred,
)


@dataclass(frozen=True, slots=True)
class Call:
    """A node with terms for its operands.

    Attributes:
        op: the operator.
        args: terms of the operands; None for an omitted one.
        attributes: all attributes, with the defaults of the opset.
        opset: the version of the domain.
        block: channels per block of onnxruntime's blocked operators.
        is_blocked: whether the result is an array in blocks, which standard operators see as an image of four axes.
    """

    op: str
    args: tuple[Term | None, ...]
    attributes: dict[str, Any]
    opset: int
    block: int
    is_blocked: bool

    def __getitem__(self, index: int) -> Term:
        if (term := self.optional(index)) is None:
            raise UnprovableError(f"{self.op} lacks operand {index}")
        return term

    def optional(self, index: int) -> Term | None:
        """The operand; None if it is omitted."""
        return self.args[index] if index < len(self.args) else None

    def integers(self, index: int, name: str) -> tuple[int, ...] | None:
        """Integers that are an attribute in old opsets and a constant operand in newer ones; None if omitted."""
        if (term := self.optional(index)) is None:
            value = self.attributes.get(name)
            return None if value is None else tuple(value) if isinstance(value, list | tuple) else (value,)
        if term.op != CONSTANT:
            raise UnprovableError(f"{name} of {self.op} is not constant")
        return tuple(int(number) for number in term.elements.reshape(-1))


Meaning = Callable[[Call], Term]
MEANINGS: dict[str, Meaning] = {}


def meaning(*names: str) -> Callable[[Meaning], Meaning]:
    """Register the meaning of operators; those of other domains than ONNX's have the domain in their names."""

    def register(function: Meaning) -> Meaning:
        MEANINGS.update(dict.fromkeys(names, function))
        return function

    return register


def number(value: float, like: Term) -> Term:
    """A constant of one element and the type of `like`."""
    return constant(np.asarray(value, np.float64), like.dtype)


def normal_axis(axis: int, rank: int) -> int:
    """The axis, counted from the first one."""
    if not -rank <= axis < rank:
        raise UnprovableError(f"no axis {axis} of {rank}")
    return axis % rank


@meaning("Identity", "Dropout")
def _identity(call: Call) -> Term:
    if call.optional(2) is not None and (call[2].op != CONSTANT or np.any(call[2].elements)):
        raise UnprovableError("a Dropout that drops")
    return call[0]


@meaning("Constant")
def _constant(call: Call) -> Term:
    if (value := call.attributes.get("value")) is None:
        raise UnprovableError("a Constant that is no tensor")
    return constant(array_of(value), value.data_type)


@meaning("Transpose")
def _transpose(call: Call) -> Term:
    rank = len(call[0].shape)
    order = call.attributes.get("perm") or list(range(rank))[::-1]
    if sorted(order) != list(range(rank)):
        raise UnprovableError(f"{order} is no order of {rank} axes")
    return transposed(call[0], order)


@meaning("Reshape")
def _reshape(call: Call) -> Term:
    x, wanted = call[0], call.integers(1, "shape")
    extents: list[Extent | None] = []
    for position, extent in enumerate(wanted or ()):
        copies = extent == 0 and not call.attributes.get("allowzero")
        extents.append(x.shape[position] if copies else None if extent == -1 else extent)
    if extents.count(None) > 1:
        raise UnprovableError("a Reshape with two unknown extents")
    rest = maps.quotient(maps.volume(x.shape), maps.volume([extent for extent in extents if extent is not None]))
    if rest is None and None in extents:
        raise UnprovableError(f"{x.shape} has no shape {tuple(wanted or ())}")
    known = [rest if extent is None else extent for extent in extents]
    return reshaped(x, tuple(extent for extent in known if extent is not None))


@meaning("Squeeze", "Unsqueeze", "Flatten")
def _reshape_by_axes(call: Call) -> Term:
    shape, _ = inferred(call.op, call.args, {**frozen(call.attributes), "opset": call.opset})
    return reshaped(call[0], shape)


@meaning("Sub")
def _difference(call: Call) -> Term:
    x = call[0]
    return make("Add", x, make("Mul", call[1], number(-1, x))) if x.dtype in FLOATS else make("Sub", *call.args)


@meaning("Sum")
def _sum(call: Call) -> Term:
    x = call[0]
    for index in range(1, len(call.args)):
        x = make("Add", x, call[index])
    return x


@meaning("Clip")
def _clip(call: Call) -> Term:
    if call.opset < 11:
        return make("Clip", call[0], *(number(call.attributes[name], call[0]) for name in ("min", "max")))
    return make("Clip", *call.args)


@meaning("HardSwish")
def _hard_swish(call: Call) -> Term:
    return hard_swish(call[0])


def hard_swish(x: Term) -> Term:
    """x min(max(x / 6 + 1 / 2, 0), 1)."""
    return make("Mul", x, make("HardSigmoid", x, alpha=float(np.float32(1 / 6)), beta=0.5))


@meaning("Gelu", f"{MICROSOFT}.Gelu", f"{MICROSOFT}.BiasGelu")
def _gelu(call: Call) -> Term:
    """x (1 + erf(x / sqrt 2)) / 2."""
    x = make("Add", call[0], call[1]) if call.op.endswith("BiasGelu") else call[0]
    if call.attributes.get("approximate", "none") != "none" or x.dtype not in ALGEBRAIC:
        raise UnprovableError("a Gelu by Tanh, or in 16 bits")
    error = make("Erf", make("Mul", x, number(2**-0.5, x)))
    return make("Mul", make("Mul", x, make("Add", error, number(1, x))), number(0.5, x))


@meaning("BatchNormalization")
def _batch_normalization(call: Call) -> Term:
    x = call[0]
    if call.attributes.get("training_mode") or not call.attributes.get("spatial", 1):
        raise UnprovableError("a BatchNormalization in training mode")
    ones = (1,) * (len(x.shape) - 2)
    scale, shift, mean, variance = (reshaped(call[k], (1, *call[k].shape, *ones)) for k in range(1, 5))
    if any(each.op != CONSTANT for each in (scale, shift, mean, variance)) or x.dtype not in ALGEBRAIC:
        raise UnprovableError("a BatchNormalization without constants, or in 16 bits")
    if np.any(variance.elements < 0) or call.attributes["epsilon"] <= 0:
        raise UnprovableError("a BatchNormalization with a negative variance")
    factor = constant(scale.elements / np.sqrt(variance.elements + call.attributes["epsilon"]), x.dtype)
    centred = make("Add", x, constant(-mean.elements, x.dtype))
    return make("Add", make("Mul", centred, factor), shift)


@meaning("Gemm")
def _gemm(call: Call) -> Term:
    if call.attributes["alpha"] != 1 or call.attributes["beta"] != 1:
        raise UnprovableError("a Gemm with factors")
    x, y = (
        transposed(call[k], (1, 0)) if call.attributes[name] else call[k] for k, name in enumerate(("transA", "transB"))
    )
    product = make("MatMul", x, y)
    return product if call.optional(2) is None else make("Add", product, call[2])


@meaning(*REDUCTIONS)
def _reduce(call: Call) -> Term:
    x = call[0]
    given = call.integers(1, "axes")
    if not given and call.attributes.get("noop_with_empty_axes"):
        raise UnprovableError(f"{call.op} over no axis")
    axes = tuple(sorted({normal_axis(axis, len(x.shape)) for axis in given or range(len(x.shape))}))
    y = make(call.op, x, axes=axes)
    if call.attributes.get("keepdims", 1):
        return y
    return reshaped(y, tuple(extent for axis, extent in enumerate(x.shape) if axis not in axes))


@meaning("Softmax")
def _softmax(call: Call) -> Term:
    x, axis = call[0], normal_axis(call.attributes["axis"], len(call[0].shape))
    if call.opset >= 13:
        return make("Softmax", x, axis=axis)
    rows = reshaped(x, (maps.volume(x.shape[:axis]), maps.volume(x.shape[axis:])))
    return reshaped(make("Softmax", rows, axis=1), x.shape)


@meaning("LayerNormalization")
def _layer_normalization(call: Call) -> Term:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias."""
    x, epsilon = call[0], call.attributes["epsilon"]
    if epsilon <= 0 or x.dtype not in ALGEBRAIC:
        raise UnprovableError("a LayerNormalization without epsilon, or in 16 bits")
    axes = tuple(range(normal_axis(call.attributes["axis"], len(x.shape)), len(x.shape)))
    centred = make("Add", x, make("Mul", make("ReduceMean", x, axes=axes), number(-1, x)))
    variance = make("ReduceMean", make("Mul", centred, centred), axes=axes)
    y = make("Mul", make("Div", centred, make("Sqrt", make("Add", variance, number(epsilon, x)))), call[1])
    return y if call.optional(2) is None else make("Add", y, call[2])


@meaning("Concat")
def _concat(call: Call) -> Term:
    if call.is_blocked:
        return blocked(make("Concat", *(plain(call[k], call.block) for k in range(len(call.args))), axis=1), call.block)
    return make("Concat", *call.args, axis=normal_axis(call.attributes["axis"], len(call[0].shape)))


@meaning("Pad")
def _pad(call: Call) -> Term:
    if call.opset < 11 or call.optional(3) is not None:
        raise UnprovableError("a Pad of an opset before 11, or with axes")
    pads, value = call.integers(1, "pads"), call.optional(2)
    is_zero = value is None or (value.op == CONSTANT and not np.any((value.elements != 0) | np.signbit(value.elements)))
    return make("Pad", call[0], *([] if is_zero else [value]), mode=call.attributes["mode"], pads=pads)


def frozen(attributes: dict[str, Any]) -> dict[str, Any]:
    """All attributes, hashable."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in attributes.items()}


@meaning("Conv", f"{MICROSOFT}.FusedConv")
def _conv(call: Call) -> Term:
    y = convolution(call[0], call[1], call.optional(2), call.attributes)
    if call.optional(3) is not None:
        y = make("Add", y, call[3])
    return _activated(y, call)


def convolution(x: Term, filters: Term, bias: Term | None, attributes: dict[str, Any]) -> Term:
    """A convolution without bias, and the bias as a sum."""
    window = windows(filters.shape[2:], attributes)
    del window["kernel_shape"]
    group = attributes.get("group", 1)
    is_fitting = group > 0 and maps.volume([filters.shape[1], group]) == x.shape[1]
    if not is_fitting or maps.quotient(filters.shape[0], group) is None:
        raise UnprovableError(f"filters of {filters.shape} in {group} groups do not fit {x.shape}")
    y = make("Conv", x, filters, group=group, **window)
    if bias is None:
        return y
    return make("Add", y, reshaped(bias, (1, *bias.shape, *(1,) * (len(x.shape) - 2))))


def windows(kernel: tuple[Extent, ...], attributes: dict[str, Any]) -> dict[str, Any]:
    """Kernel shape, strides, dilations and pads."""
    rank = len(kernel)
    if tuple(attributes.get("kernel_shape") or kernel) != kernel:
        raise UnprovableError("the kernel shape is not that of the filters")
    if attributes.get("auto_pad", "NOTSET") != "NOTSET":
        raise UnprovableError("pads by auto_pad")
    defaults: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": (1,) * rank,
        "dilations": (1,) * rank,
        "pads": (0,) * 2 * rank,
    }
    return {name: tuple(attributes.get(name) or default) for name, default in defaults.items()}


@meaning(
    *(f"{domain}{name}" for domain in ("", f"{NCHWC}.") for name in ("MaxPool", "AveragePool")),
    *(f"{domain}{name}" for domain in ("", f"{NCHWC}.") for name in ("GlobalMaxPool", "GlobalAveragePool")),
)
def _pooling(call: Call) -> Term:
    domain, _, op = call.op.rpartition(".")
    x = plain(call[0], call.block) if domain else call[0]
    if op.startswith("Global"):
        y = make("ReduceMax" if op == "GlobalMaxPool" else "ReduceMean", x, axes=tuple(range(2, len(x.shape))))
    elif op == "AveragePool" and call.attributes.get("ceil_mode"):
        raise UnprovableError("an AveragePool with windows beyond the pads")
    else:
        window = windows(tuple(call.attributes["kernel_shape"]), call.attributes)
        if set(window["dilations"]) == {1}:
            del window["dilations"]  # which AveragePool has since opset 19
        window |= {name: 1 for name in ("ceil_mode", "count_include_pad") if call.attributes.get(name)}
        y = make(op, x, **window)
    return blocked(y, call.block) if domain else y


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
def _blocked_conv(call: Call) -> Term:
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


@meaning(f"{NCHWC}.ReorderInput", f"{NCHWC}.ReorderOutput")
def _reorder(call: Call) -> Term:
    x, last = call[0], call.attributes.get("channels_last", 0)
    if call.op.endswith("ReorderInput"):
        return blocked(transposed(x, (0, 3, 1, 2)) if last else x, call.block)
    y, channels = plain(x, call.block), call.attributes["channels"]
    if y.shape[1] != channels:
        raise UnprovableError("channels that only pad a block")
    return transposed(y, (0, 2, 3, 1)) if last else y


LARGEST_SEGMENT = 400  # nodes between claimed values


class SegmentError(UnprovableError):
    """There are too many nodes from claimed values to a value."""


class Translator:
    """Terms of the values of a model.

    Args:
        model: the model.
        leaves: terms of the values at which a term ends.
        block: channels per block of onnxruntime's blocked operators.
        limit: the largest number of nodes of a term.
    """

    def __init__(self, model: Model, leaves: Mapping[str, Term], block: int, limit: int = LARGEST_SEGMENT) -> None:
        self._model, self._leaves, self._block, self._limit = model, leaves, block, limit
        self._terms: dict[str, Term] = {}
        self.nodes: set[int] = set()
        self.reached: set[str] = set()

    def term(self, name: str) -> Term:
        """The term of a value.

        Raises:
            UnprovableError: a node on the way has no term, or a value is neither computed nor a leaf.
        """
        if name in self._terms:
            return self._terms[name]
        if name in self._leaves:
            self.reached.add(name)
            return self._leaves[name]
        if (tensor := self._model.constants.get(name)) is not None:
            if name not in self._model.constant_terms:
                self._model.constant_terms[name] = constant(array_of(tensor), tensor.data_type)
            return self._model.constant_terms[name]
        if (position := self._model.producers.get(name)) is None:
            raise UnprovableError(f"{name} is no claimed value")
        return self._computed(name, position)

    def _computed(self, name: str, position: int) -> Term:
        node = self._model.nodes[position]
        self.nodes.add(position)
        if len(self.nodes) > self._limit:
            raise SegmentError(f"more than {self._limit} nodes from claimed values to {name}")
        args = tuple(self.term(each) if each else None for each in node.input)
        while args and args[-1] is None:
            args = args[:-1]
        domain = "" if node.domain == "ai.onnx" else node.domain
        opset = self._model.opsets.get(domain, 1)
        op = f"{domain}.{node.op_type}" if domain else node.op_type
        if node.output[0] != name or (len(node.output) > 1 and op != "Dropout"):
            raise UnprovableError(f"{op} with several outputs has no definition here")
        call = Call(op, args, attributes(node, opset), opset, self._block, name in self._model.blocked)
        if domain != NCHWC and any(each in self._model.blocked for each in node.input):
            others = [arg for each, arg in zip(node.input, args, strict=False) if each not in self._model.blocked]
            _check_blocks(call, others)
        self._terms[name] = _meaning(call)
        return self._terms[name]


def _meaning(call: Call) -> Term:
    if call.op in MEANINGS:
        return MEANINGS[call.op](call)
    if call.op in UNARY | NARY | {"MatMul"}:
        return make(call.op, *call.args, **frozen(call.attributes))
    if call.op in GENERAL:
        return general(call.op, call.args, {**frozen(call.attributes), "opset": call.opset})
    raise UnprovableError(f"{call.op} has no definition here")


def _check_blocks(call: Call, others: Sequence[Term | None]) -> None:
    """Check that an operator that sees an array in blocks as an image of four axes does the same to one of five axes.

    Raises:
        UnprovableError: it need not.
    """
    is_same = call.op.rpartition(".")[2] in SAME_IN_BLOCKS and all(arg is None or arg.shape == () for arg in others)
    if call.op == "Reshape":  # of the buffer, so the result is in no blocks
        is_same = 0 not in (call.integers(1, "shape") or (0,))
    elif call.op == "Flatten":
        is_same = call.attributes["axis"] == 1
    elif call.op == "Concat":
        is_same = not others and call.attributes["axis"] == 1
    else:
        is_same = is_same and len({arg.shape for arg in call.args if arg is not None and arg.shape != ()}) == 1
    if not is_same:
        raise UnprovableError(f"{call.op} of an array in blocks along its axes")
