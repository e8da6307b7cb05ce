"""Conversion of messages of onnx's checker and inference to one-line errors."""

import re

import onnx_ir as ir

from layoutopt.errors import ModelError
from layoutopt.ir.types import Op

NODE = re.compile(r"\(op_type:([^,)]*)(?:, node name: (.*?))?\): ")
"""The text of a node in onnx's messages: its operator and its name."""

_TOLERATED = (
    "Input to 'Range' op should be scalars",
    "Input 0 expected to have rank 2 but has rank 1",
    "Integer overflow",
)
"""Errors for models that ONNX Runtime loads: Range of tensors with one element, as in ONNX's own body of AffineGrid; Gemm of a
vector, which it reads as a matrix of one row; extents that no tensor can have."""

_CONTEXT = re.compile(r"Name: (?P<where>.*?) OpType: ", re.DOTALL)
_TAG = re.compile(r"\[\w*Error\] ?|Inference error\(s\): ?")
_ELEMENT = re.compile(r"(elem type.*?)\((\d+)\) vs \((\d+)\)")


def display_name(op: Op) -> str:
    """The name of an op in errors: its own, or else its op type and first output."""
    return op.name or f"{op.op_type} -> {next((value.name for value in op.outputs if value is not None), '?')}"


def is_tolerated(text: str) -> bool:
    """Whether runtimes tolerate the fault that an error message of onnx states."""
    return any(each in text for each in _TOLERATED)


def model_error(error: Exception, default: str = "") -> ModelError:
    """The first error of a message of onnx, located at the innermost node that it names.

    If the message names no node, the error is located at `default`, else at the node's operator, else at "model".
    """
    text = str(error).strip()
    first = text.split("\n")[0]
    chain = [name for _, name in NODE.findall(first) if name]
    operators = ["model", *(operator for operator, _ in NODE.findall(first))]
    context = _CONTEXT.search(text)
    where = chain[-1] if chain else context["where"].strip() if context else ""
    what = _TAG.sub("", NODE.split(first)[-1]).strip()
    what = _ELEMENT.sub(lambda found: f"{found[1]}{_element(found[2])} vs {_element(found[3])}", what)
    what = what[:1].lower() + what[1:].rstrip(".")
    return ModelError(what, where=where or default or operators[-1], hint="export the model again")


def _element(code: str) -> str:
    number = int(code)
    return ir.DataType(number).name.lower() if number in set(ir.DataType) else code


__all__ = ["NODE", "display_name", "is_tolerated", "model_error"]
