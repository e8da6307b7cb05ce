"""The text form of a graph, for people and for golden tests: one line per op, formats where they matter.

    graph net(x: float32[1,8,4,4]) -> (y)
      const w: float32[8,8,1,1] OHWI
      x__NHWC: float32[1,8,4,4] NHWC = CastData(x)
      y__NHWC: float32[1,8,4,4] NHWC = Conv(x__NHWC, w) {strides=[1, 1]}
      y: float32[1,8,4,4] = CastData(y__NHWC)

A canonical format is not written.
"""

from collections.abc import Iterator

from layoutopt.ir.graph import Graph, Reference
from layoutopt.ir.types import Attribute, Op, Opaque, Value


def to_text(graph: Graph) -> str:
    """The graph as text, in topological order; the same graph gives the same text."""
    return "\n".join(_lines(graph)) + "\n"


def _lines(graph: Graph) -> Iterator[str]:
    inputs = ", ".join(_typed(value) for value in graph.inputs)
    outputs = ", ".join(value.name for value in graph.outputs)
    yield f"graph {graph.name}({inputs}) -> ({outputs})"
    for value in graph.values:
        if value.is_constant:
            yield f"  const {_typed(value)}"
    for op in graph.ops:
        yield f"  {_op(op)}"


def _op(op: Op) -> str:
    results = ", ".join("_" if value is None else _typed(value) for value in op.outputs)
    operands = ", ".join("_" if value is None else value.name for value in op.inputs)
    attributes = ", ".join(f"{name}={_attribute(value)}" for name, value in sorted(op.attributes.items()))
    captures = f" captures({', '.join(value.name for value in op.captures)})" if op.captures else ""
    kind = op.op_type if op.domain in ("", "layoutopt") else op.kind
    return f"{results} = {kind}({operands})" + (f" {{{attributes}}}" if attributes else "") + captures


def _typed(value: Value) -> str:
    storage = "" if value.storage is None or value.storage.format.is_canonical else f" {value.storage}"
    return f"{value.name}: {value.type}{storage}"


def _attribute(value: Attribute) -> str:
    if isinstance(value, Opaque):
        return f"@{value.payload.name}" if isinstance(value.payload, Reference) else f"<{value.kind}>"
    return str(list(value)) if isinstance(value, tuple) else repr(value)
