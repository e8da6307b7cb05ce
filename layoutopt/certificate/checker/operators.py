"""Operators of ONNX as terms: forms of all opsets become one, fused forms are written by their definition."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from layoutopt.certificate.checker import index_map as maps
from layoutopt.certificate.checker.lemma import ALGEBRAIC
from layoutopt.certificate.checker.model import array_of
from layoutopt.certificate.checker.normal import LARGEST_CONSTANT, broadcast, make, reshaped, transposed
from layoutopt.certificate.checker.tables import REDUCTIONS
from layoutopt.certificate.checker.terms import CONSTANT, FLOATS, Extent, Term, UnprovableError, constant

INT64 = 7


@dataclass(frozen=True, slots=True)
class Call:
    """A node with terms for its operands.

    Attributes:
        op: the operator.
        args: terms of the operands; None for an omitted one.
        attributes: all attributes, with the defaults of the opset.
        opset: the version of the domain.
        block: channels per block of onnxruntime's blocked operators.
        outputs: the number of outputs.
    """

    op: str
    args: tuple[Term | None, ...]
    attributes: dict[str, Any]
    opset: int
    block: int
    outputs: int

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


@meaning("Cast")
def _cast(call: Call) -> Term:
    x, to = call[0], call.attributes["to"]
    if x.op == CONSTANT and x.dtype not in FLOATS and to in ALGEBRAIC:
        return constant(np.asarray(x.elements, np.float32 if to == 1 else np.float64), to)
    return x if x.dtype == to else make("Cast", x, **frozen(call.attributes))


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
    x, shape = call[0], list(call[0].shape)
    if call.op == "Flatten":
        axis = call.attributes["axis"] + (len(shape) if call.attributes["axis"] < 0 else 0)
        return reshaped(x, (maps.volume(shape[:axis]), maps.volume(shape[axis:])))
    axes = call.integers(1, "axes")
    if call.op == "Squeeze":
        if axes is None:
            raise UnprovableError("a Squeeze without axes")
        chosen = [normal_axis(k, len(shape)) for k in axes]
        return reshaped(x, tuple(extent for k, extent in enumerate(shape) if k not in chosen))
    rank = len(shape) + len(axes or ())
    places = {normal_axis(axis, rank) for axis in axes or ()}
    rest = iter(shape)
    return reshaped(x, tuple(1 if k in places else next(rest) for k in range(rank)))


@meaning("Shape")
def _shape(call: Call) -> Term:
    if not call[0].is_static:
        raise UnprovableError("the Shape of a value with symbolic extents")
    stop = call.attributes.get("end")
    return constant(np.asarray(call[0].shape[call.attributes.get("start") or 0 : stop], np.int64), INT64)


@meaning("Sub", "Neg", "Sum", "Pow", "Max", "Min")
def _arithmetic(call: Call) -> Term:
    x = call[0]
    if call.op in ("Sum", "Max", "Min"):
        for index in range(1, len(call.args)):
            x = make("Add" if call.op == "Sum" else call.op, x, call[index])
        return x
    if x.dtype not in FLOATS:
        return make(call.op, *call.args)
    if call.op == "Sub":
        return make("Add", x, make("Mul", call[1], number(-1, x)))
    if call.op == "Neg":
        return make("Mul", x, number(-1, x))
    exponent = call[1]
    is_two = exponent.op == CONSTANT and bool(np.all(exponent.elements == 2))
    is_square = x.dtype in ALGEBRAIC and is_two and broadcast([x.shape, exponent.shape]) == x.shape
    return make("Mul", x, x) if is_square else make("Pow", x, exponent)


@meaning("ConstantOfShape")
def _constant_of_shape(call: Call) -> Term:
    value = call.attributes.get("value")
    array, shape = np.zeros(1, np.float32) if value is None else array_of(value), call.integers(0, "shape") or ()
    if min(shape, default=1) < 1 or np.prod(shape, dtype=float) > LARGEST_CONSTANT:
        raise UnprovableError("a ConstantOfShape without elements, or with too many")
    return constant(np.broadcast_to(array, shape), 1 if value is None else value.data_type)


def scaled_by(x: Term, factor: float) -> Term:
    """x times a number; x itself if that is 1."""
    return x if factor == 1 else make("Mul", x, number(factor, x))


@meaning("Clip")
def _clip(call: Call) -> Term:
    bounds = [call.optional(1), call.optional(2)]
    if call.opset < 11:
        bounds = [number(call.attributes[name], call[0]) for name in ("min", "max")]
    return make("Clip", call[0], *bounds)


@meaning("HardSwish")
def _hard_swish(call: Call) -> Term:
    return hard_swish(call[0])


def hard_swish(x: Term) -> Term:
    """x min(max(x / 6 + 1 / 2, 0), 1)."""
    return make("Mul", x, make("HardSigmoid", x, alpha=float(np.float32(1 / 6)), beta=0.5))


@meaning("Gelu")
def gelu(call: Call) -> Term:
    """x (1 + erf(x / sqrt 2)) / 2."""
    x = call[0]
    if call.attributes.get("approximate", "none") != "none" or x.dtype not in ALGEBRAIC:
        raise UnprovableError("a Gelu by Tanh, or in 16 bits")
    error = make("Erf", make("Mul", x, number(2**-0.5, x)))
    return make("Mul", make("Mul", x, make("Add", error, number(1, x))), number(0.5, x))


@meaning("BatchNormalization")
def _batch_normalization(call: Call) -> Term:
    x = call[0]
    if call.outputs > 1 or call.attributes.get("training_mode") or not call.attributes.get("spatial", 1):
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
    x, y = (
        transposed(call[k], (1, 0)) if call.attributes[name] else call[k] for k, name in enumerate(("transA", "transB"))
    )
    product = scaled_by(make("MatMul", x, y), call.attributes["alpha"])
    return product if call.optional(2) is None else make("Add", product, scaled_by(call[2], call.attributes["beta"]))


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
    if call.opset >= 13 or axis == len(x.shape) - 1:
        return make(call.op, x, axis=axis)
    rows = reshaped(x, (maps.volume(x.shape[:axis]), maps.volume(x.shape[axis:])))
    return reshaped(make(call.op, rows, axis=1), x.shape)


@meaning("LayerNormalization")
def _layer_normalization(call: Call) -> Term:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias."""
    x, epsilon = call[0], call.attributes["epsilon"]
    if call.outputs > 1 or epsilon <= 0 or x.dtype not in ALGEBRAIC:
        raise UnprovableError("a LayerNormalization with three outputs, without epsilon, or in 16 bits")
    axes = tuple(range(normal_axis(call.attributes["axis"], len(x.shape)), len(x.shape)))
    centred = make("Add", x, make("Mul", make("ReduceMean", x, axes=axes), number(-1, x)))
    variance = make("ReduceMean", make("Mul", centred, centred), axes=axes)
    y = make("Mul", make("Div", centred, make("Sqrt", make("Add", variance, number(epsilon, x)))), call[1])
    return y if call.optional(2) is None else make("Add", y, call[2])


@meaning("Concat")
def _concat(call: Call) -> Term:
    return make("Concat", *call.args, axis=normal_axis(call.attributes["axis"], len(call[0].shape)))


@meaning("Pad")
def _pad(call: Call) -> Term:
    x, pads, axes = call[0], call.integers(1, "pads") or (), call.integers(3, "axes")
    rank = len(x.shape)
    value = call.optional(2)
    if call.opset < 11:
        value = number(call.attributes["value"], x)
    if axes is not None:
        full = [0] * 2 * rank
        for place, axis in enumerate(axes):
            full[normal_axis(axis, rank)], full[rank + normal_axis(axis, rank)] = pads[place], pads[len(axes) + place]
        pads = tuple(full)
    is_zero = value is None or (value.op == CONSTANT and not np.any((value.elements != 0) | np.signbit(value.elements)))
    return make("Pad", x, *([] if is_zero else [value]), mode=call.attributes["mode"], pads=tuple(pads))


@meaning("Slice")
def _slice(call: Call) -> Term:
    x, starts, ends = call[0], call.integers(1, "starts") or (), call.integers(2, "ends") or ()
    axes = tuple(normal_axis(axis, len(x.shape)) for axis in call.integers(3, "axes") or range(len(starts)))
    steps = call.integers(4, "steps") or (1,) * len(starts)
    if not len(axes) == len(starts) == len(ends) == len(steps) == len(set(axes)) or 0 in steps:
        raise UnprovableError("a Slice of other axes than it has numbers for")
    return make("Slice", x, axes=axes, starts=starts, ends=ends, steps=steps)


def frozen(attributes: dict[str, Any]) -> dict[str, Any]:
    """All attributes, hashable."""
    return {name: _hashable(value) for name, value in attributes.items() if value is not None}


def _hashable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_hashable(each) for each in value)
    return value.SerializeToString(deterministic=True) if isinstance(value, onnx.TensorProto) else value
