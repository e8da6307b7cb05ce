"""Values of a model as terms over claimed values."""

from collections.abc import Mapping, Sequence
from itertools import count

import numpy as np
from onnx import helper

from layoutopt.certificate.checker.fused_operators import blocked, plain
from layoutopt.certificate.checker.model import NCHWC, Model, array_of, attributes
from layoutopt.certificate.checker.normal import general, make
from layoutopt.certificate.checker.operators import MEANINGS, Call, frozen
from layoutopt.certificate.checker.tables import GENERAL, NARY, RANDOM, SAME_IN_BLOCKS, UNARY
from layoutopt.certificate.checker.terms import Term, UnprovableError, apply, constant

_EVALUATIONS = count()
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
        call = Call(op, args, attributes(node, opset), opset, self._block, len([each for each in node.output if each]))
        if domain != NCHWC and any(each in self._model.blocked for each in node.input):
            others = [arg for each, arg in zip(node.input, args, strict=False) if each not in self._model.blocked]
            _check_blocks(call, node.op_type, others)
        self._terms[name] = _meaning(call, list(node.output).index(name), len(node.output), name in self._model.blocked)
        return self._terms[name]


def _meaning(call: Call, output: int, outputs: int, is_blocked: bool) -> Term:
    if is_blocked and call.op == "Concat":
        return blocked(make("Concat", *(plain(call[k], call.block) for k in range(len(call.args))), axis=1), call.block)
    if call.op in MEANINGS and output == 0:
        return MEANINGS[call.op](call)
    if call.op == "Constant":
        return _constant(call)
    if call.op in UNARY | NARY | {"MatMul"} and output == 0:
        return make(call.op, *call.args, **frozen(call.attributes))
    if call.op in RANDOM:
        return _random(call)
    if call.op not in GENERAL:
        raise UnprovableError(f"{call.op} has no definition here")
    extra = {"output": output, "outputs": outputs} if outputs > 1 else {}
    return general(call.op, call.args, {**frozen(call.attributes), **extra, "opset": call.opset})


def _random(call: Call) -> Term:
    """Random numbers equal no other ones, so every evaluation has a name of its own."""
    if not all(abs(call.attributes[name]) < 2.0**64 for name in ("low", "high")):
        raise UnprovableError("random numbers that are not finite")
    shape, dtype = tuple(call.attributes["shape"]), call.attributes["dtype"]
    return apply(call.op, (), shape, dtype, name=next(_EVALUATIONS))


def _check_blocks(call: Call, op_type: str, others: Sequence[Term | None]) -> None:
    """Check that an operator that sees an array in blocks as an image of four axes does the same to one of five axes.

    Raises:
        UnprovableError: it need not.
    """
    is_same = op_type in SAME_IN_BLOCKS and all(arg is None or arg.shape == () for arg in others)
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


def _constant(call: Call) -> Term:
    for name, value in call.attributes.items():
        if name == "value":
            return constant(array_of(value), value.data_type)
        if name in ("value_int", "value_ints", "value_float", "value_floats"):
            array = np.asarray(value, np.int64 if "int" in name else np.float32)
            return constant(array, helper.np_dtype_to_tensor_dtype(array.dtype))
    raise UnprovableError("a Constant of sparse or text values")
