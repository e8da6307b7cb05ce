"""The text form of a graph, for people and for golden tests: one line per op, formats where they matter.

    graph net(x: float32[1,8,4,4]) -> (y)
      const w: float32[8,8,1,1] OHWI
      x__NHWC: float32[1,8,4,4] NHWC = CastData(x)
      y__NHWC: float32[1,8,4,4] NHWC = Conv(x__NHWC, w) {strides=[1, 1]}
      y: float32[1,8,4,4] = CastData(y__NHWC)

A canonical format is not written. The bodies of an op stand below it; behind the bar is what they read of the graph around:

      y: float32[1,8,4,4] = If(c | a)
        then_branch yes(a: float32[1,8,4,4]) -> (t)
          t: float32[1,8,4,4] = Identity(a)
"""

from collections.abc import Iterator

from layoutopt.ir.functions import Reference
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Attribute, Op, Opaque, Value


def to_text(graph: Graph) -> str:
    """The graph as text, in topological order; the same graph gives the same text."""
    return "\n".join(_lines(graph)) + "\n"


def _lines(graph: Graph) -> Iterator[str]:
    pending: list[tuple[str, str | Op | Graph]] = [("", graph)]  # how far to the right, and what
    while pending:
        margin, item = pending.pop()
        if isinstance(item, Op):
            yield margin + _op(item)
            bodies = [(f"{margin}  {name} ", body) for name, body in sorted(item.bodies.items())]
            pending += reversed(bodies)
        elif isinstance(item, Graph):
            yield _head(margin or "graph ", item)
            inner = " " * (len(margin) - len(margin.lstrip()) + 2)
            inside = [f"const {_typed(value)}" for value in item.values if value.is_constant]
            pending += reversed([*((inner, line) for line in inside), *((inner, op) for op in item.ops)])
        else:
            yield margin + item


def _head(title: str, graph: Graph) -> str:
    inputs = ", ".join(_typed(value) for value in graph.inputs)
    outputs = ", ".join(value.name for value in graph.outputs)
    return f"{title}{graph.name}({inputs}) -> ({outputs})"


def _op(op: Op) -> str:
    results = ", ".join("_" if value is None else _typed(value) for value in op.outputs)
    names = ["_" if value is None else value.name for value in op.inputs]
    own, captured = ", ".join(names[: op.own_inputs]), ", ".join(names[op.own_inputs :])
    operands = f"{own} | {captured}".lstrip() if captured else own
    attributes = ", ".join(f"{name}={_attribute(value)}" for name, value in sorted(op.attributes.items()))
    kind = op.op_type if op.domain in ("", "layoutopt") else op.kind
    return f"{results} = {kind}({operands})" + (f" {{{attributes}}}" if attributes else "")


def _typed(value: Value) -> str:
    storage = "" if value.storage is None or value.storage.format.is_canonical else f" {value.storage_text}"
    return f"{value.name}: {value.type}{storage}"


def _attribute(value: Attribute) -> str:
    if isinstance(value, Opaque):
        return f"@{value.payload.name}" if isinstance(value.payload, Reference) else f"<{value.kind}>"
    return str(list(value)) if isinstance(value, tuple) else repr(value)
