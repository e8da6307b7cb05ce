"""Checks of attributes that the standard restricts, and that neither onnx's checker nor its inference checks."""

from collections.abc import Callable, Mapping

from layoutopt.errors import ModelError
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op
from layoutopt.onnx_io.onnx_messages import display_name


def check_attributes(graph: Graph) -> None:
    """Check the attributes of all ops against the types of their operands, in bodies too.

    Raises:
        ModelError: an attribute is invalid; the error names the op.
    """
    for each in graph.regions():
        for op in each.ops:
            wrong = _CHECKS[op.kind](op) if op.kind in _CHECKS else ""
            if wrong:
                raise ModelError(wrong, where=display_name(op), hint="export the model again")


def _permutation_fault(op: Op) -> str:
    x, perm = op.inputs[0], op.integers("perm")
    if x is None or x.rank is None or "perm" not in op.attributes or sorted(perm) == list(range(x.rank)):
        return ""
    return f"perm is {list(perm)}, but there are {x.rank} axes"


_CHECKS: Mapping[str, Callable[[Op], str]] = {"Transpose": _permutation_fault}
