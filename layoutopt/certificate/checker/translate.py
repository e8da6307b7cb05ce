"""Values of a model as terms over claimed values."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from layoutopt.certificate.checker import fused_operators as fused
from layoutopt.certificate.checker.model import Model, array_of, attributes, without_captured_names
from layoutopt.certificate.checker.normal import NARY, RANDOM, UNARY, make
from layoutopt.certificate.checker.operators import MEANINGS, Call, frozen
from layoutopt.certificate.checker.terms import Term, UnprovableError, apply, constant

LARGEST_SEGMENT = 400  # nodes between claimed values
_READS_BLOCKS = frozenset({"Reshape", "Concat", "Sum", "Sub", "Identity", "Gelu", "QuickGelu"}) | UNARY | NARY


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
        self._randoms = 0

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
        output = list(node.output).index(name)
        given = attributes(node, opset)
        if any(isinstance(value, onnx.GraphProto) for value in given.values()):
            if any(is_blocked(self._model, each) for each in node.input):
                raise UnprovableError(f"{op} reads an array in blocks")
            return self._control_flow(name, op, args, given, output)
        call = Call(op, args, given, opset, self._block, len([each for each in node.output if each]))
        if (
            domain != fused.NCHWC
            and node.op_type not in _READS_BLOCKS
            and any(is_blocked(self._model, each) for each in node.input)
        ):
            raise UnprovableError(f"{node.name or name}: {op} reads an array in blocks")
        if domain != fused.NCHWC and any(is_blocked(self._model, each) for each in node.input):
            _check_blocks(call)
        self._terms[name] = self._meaning(call, node, output)
        return self._terms[name]

    def _meaning(self, call: Call, node: onnx.NodeProto, output: int) -> Term:
        if call.op in MEANINGS and output == 0:
            return MEANINGS[call.op](call)
        if call.op == "Constant":
            return _constant(call)
        if call.op in UNARY | NARY:
            return make(call.op, *call.args, **frozen(call.attributes))
        if call.op in RANDOM:
            return self._random(call)
        if "." in call.op:
            raise UnprovableError(f"{call.op} has no definition here")
        count = len(node.output)
        extra: dict[str, Any] = {"output": output, "outputs": count} if count > 1 else {}
        return make(call.op, *call.args, **frozen(call.attributes), **extra)

    def _control_flow(
        self, name: str, op: str, args: tuple[Term | None, ...], given: dict[str, Any], output: int
    ) -> Term:
        """The term of a control-flow operator: its bodies have to be equal, and the values that they read."""
        captured: list[Term | None] = []
        for key, value in given.items():
            if isinstance(value, onnx.GraphProto):
                given[key], names = without_captured_names(value)
                if any(is_blocked(self._model, each) for each in names):
                    raise UnprovableError(f"the body of {op} reads an array in blocks")
                captured += [self.term(each) for each in names]
        shape, dtype = self._model.types.get(name, ((), 0))
        if not dtype or any(isinstance(extent, str) for extent in shape):
            raise UnprovableError(f"the shape of {name} is not known")
        self._terms[name] = apply(op, (*args, *captured), shape, dtype, output=output, **frozen(given))
        return self._terms[name]

    def _random(self, call: Call) -> Term:
        """Random numbers equal no other ones, so every evaluation has a name of its own."""
        if "shape" not in call.attributes:
            raise UnprovableError(f"{call.op} of a shape that is computed")
        self._randoms += 1
        name = f"{id(self)} {self._randoms}"
        return apply(call.op, (), tuple(call.attributes["shape"]), call.attributes.get("dtype", 1), name=name)


def _check_blocks(call: Call) -> None:
    """Check that an operator that sees an array in blocks as an image of four axes does the same to one of five axes.

    Raises:
        UnprovableError: it need not.
    """
    shapes = {arg.shape for arg in call.args if arg is not None and set(arg.shape) - {1}}
    if call.op == "Concat":
        is_same = call.attributes["axis"] in (0, 1)
    elif call.op == "Reshape":
        is_same = 0 not in (call.integers(1, "shape") or ())
    else:
        is_same = len(shapes) <= 1
    if not is_same:
        raise UnprovableError(f"{call.op} of an array in blocks along its axes")


def is_blocked(model: Model, name: str) -> bool:
    """Whether a value of the result is an array in blocks, which standard operators see as an image of four axes."""
    pending, seen = [name], set()
    while pending:
        each = pending.pop()
        if each in seen or each not in model.producers:
            continue
        seen.add(each)
        node = model.nodes[model.producers[each]]
        if node.domain == fused.NCHWC:
            if node.op_type != "ReorderOutput":
                return True
        elif node.op_type in _READS_BLOCKS - {"Reshape"}:
            pending += node.input
    return False


def _constant(call: Call) -> Term:
    for name, value in call.attributes.items():
        if name == "value":
            return constant(array_of(value), value.data_type)
        if name in ("value_int", "value_ints", "value_float", "value_floats"):
            array = np.asarray(value, np.int64 if "int" in name else np.float32)
            return constant(array, helper.np_dtype_to_tensor_dtype(array.dtype))
    raise UnprovableError("a Constant of sparse or text values")
