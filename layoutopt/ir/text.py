"""The text form of a graph, for people and for golden tests: one line per op, with formats that are not canonical.

    graph net(x: float32[1,8,4,4]) -> (y)
      const w: float32[8,8,1,1] OHWI
      x__NHWC: float32[1,8,4,4] NHWC = CastData(x)
      y__NHWC: float32[1,8,4,4] NHWC = Conv(x__NHWC, w) {strides=[1, 1]}
      y: float32[1,8,4,4] = CastData(y__NHWC)

Below an op follow its bodies. The operands behind `|` are the values of the outer graph that they capture:

      y: float32[1,8,4,4] = If(c | a)
        then_branch yes(a: float32[1,8,4,4]) -> (t)
          t: float32[1,8,4,4] = Identity(a)
"""

from collections.abc import Iterator

from layoutopt.ir.functions import ReferenceAttribute
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Attribute, Op, Opaque, Value


def to_text(graph: Graph) -> str:
    """The graph as text, with ops in topological order; equal graphs have equal texts."""
    return "\n".join(_lines(graph)) + "\n"


def _lines(graph: Graph) -> Iterator[str]:
    pending: list[tuple[str, str | Op | Graph]] = [("", graph)]  # indentation and item; the last one is the next
    while pending:
        indent, item = pending.pop()
        if isinstance(item, Op):
            yield indent + _op_text(item)
            bodies = [(f"{indent}  {name} ", body) for name, body in sorted(item.bodies.items())]
            pending += reversed(bodies)
        elif isinstance(item, Graph):
            yield _header(indent or "graph ", item)
            body_indent = " " * (len(indent) - len(indent.lstrip()) + 2)
            constants = [f"const {_declaration(value)}" for value in item.values if value.is_constant]
            pending += reversed([*((body_indent, line) for line in constants), *((body_indent, op) for op in item.ops)])
        else:
            yield indent + item


def _header(title: str, graph: Graph) -> str:
    inputs = ", ".join(_declaration(value) for value in graph.inputs)
    outputs = ", ".join(value.name for value in graph.outputs)
    return f"{title}{graph.name}({inputs}) -> ({outputs})"


def _op_text(op: Op) -> str:
    results = ", ".join("_" if value is None else _declaration(value) for value in op.outputs)
    names = ["_" if value is None else value.name for value in op.inputs]
    own, captured = ", ".join(names[: op.uncaptured_input_count]), ", ".join(names[op.uncaptured_input_count :])
    operands = f"{own} | {captured}".lstrip() if captured else own
    attributes = ", ".join(f"{name}={_attribute_text(value)}" for name, value in sorted(op.attributes.items()))
    kind = op.op_type if op.domain in ("", "layoutopt") else op.kind
    return f"{results} = {kind}({operands})" + (f" {{{attributes}}}" if attributes else "")


def _declaration(value: Value) -> str:
    storage = "" if value.storage is None or value.storage.format.is_canonical else f" {value.storage_text}"
    return f"{value.name}: {value.type}{storage}"


def _attribute_text(value: Attribute) -> str:
    if isinstance(value, Opaque):
        return f"@{value.payload.name}" if isinstance(value.payload, ReferenceAttribute) else f"<{value.kind}>"
    return str(list(value)) if isinstance(value, tuple) else repr(value)
