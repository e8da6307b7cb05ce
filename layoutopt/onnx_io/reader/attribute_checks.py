"""Checks of attributes that the standard restricts, and that neither onnx's checker nor its inference checks."""

from collections.abc import Callable, Mapping

from layoutopt.errors import ModelError
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op


def check_attributes(graph: Graph) -> None:
    """Look at attributes together with the types of operands, in bodies too.

    Raises:
        ModelError: names the node.
    """
    for each in graph.regions():
        for op in each.ops:
            wrong = _CHECKS[op.kind](op) if op.kind in _CHECKS else ""
            if wrong:
                where = (
                    op.name or f"{op.kind} -> {next((value.name for value in op.outputs if value is not None), '?')}"
                )
                raise ModelError(wrong, where=where, hint="export the model again")


def _permutes(op: Op) -> str:
    x, perm = op.inputs[0], op.integers("perm")
    if x is None or x.rank is None or "perm" not in op.attributes or sorted(perm) == list(range(x.rank)):
        return ""
    return f"perm is {list(perm)}, but there are {x.rank} axes"


_CHECKS: Mapping[str, Callable[[Op], str]] = {"Transpose": _permutes}
