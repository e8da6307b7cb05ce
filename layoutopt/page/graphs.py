"""Graphs as the page shows them: nodes with formats, estimated times and bytes, edges, and the regions of bodies.

Nodes are the inputs of the model, its ops (those of a body behind the op that has it) and its outputs, in topological order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from layoutopt.ir.graph import CAST, Graph, is_cast
from layoutopt.ir.sizes import Sizes
from layoutopt.ir.types import Op, Value
from layoutopt.ops import View, rule_of
from layoutopt.ops.region_ops import region_rule
from layoutopt.report.builder import LocatedOp, located_ops, physical_bytes
from layoutopt.report.facts import CANONICAL, output_format
from layoutopt.report.schema import CastReport, OpReport

NodeKind: TypeAlias = Literal["op", "view", "move", "cast", "input", "output"]
"""The role of a node: `view` is a metadata-only op, `move` a Transpose or Reshape that moves bytes."""


@dataclass(frozen=True, slots=True)
class Operand:
    """An input or output of a node.

    Attributes:
        name: the name of the value.
        type: its element type and logical shape.
        format: the format that the op reads or writes; empty if it has none.
        preferred: the format that the fastest kernel of the hardware requires; empty if none.
        is_constant: whether it is a constant.
    """

    name: str
    type: str
    format: str = ""
    preferred: str = ""
    is_constant: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """An op, or an input or output of the model.

    Attributes:
        kind: its role.
        name: the name of the op or value, as in the report.
        op_type: the op type with its domain.
        inputs: the operands that it reads.
        outputs: the operands that it writes.
        format: the format by which the legend counts the op; empty for nodes that the legend does not count.
        seconds: estimated time of all its runs.
        nbytes: bytes that one run reads and writes; 0 for metadata-only ops and ops with bodies.
        reason: the reason why bytes move, or why the op has no choice of formats.
        scope: the path of module names of the op, if the model has one; empty otherwise.
        region: the number of the region that contains the op: 0 is the main graph.
        op: the op; None for inputs and outputs.
    """

    kind: NodeKind
    name: str
    op_type: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    format: str = ""
    seconds: float = 0.0
    nbytes: int = 0
    reason: str = ""
    scope: tuple[str, ...] = ()
    region: int = 0
    op: Op | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """A value from the node that computes it to a node that reads it.

    Attributes:
        source: the number of the node that computes the value.
        target: the number of the node that reads it.
        operand: the value, as the source writes it.
    """

    source: int
    target: int
    operand: Operand


@dataclass(frozen=True, slots=True)
class Region:
    """A body.

    Attributes:
        owner: the number of the node that has the body.
        name: the attribute that holds it.
    """

    owner: int
    name: str


@dataclass(frozen=True, slots=True)
class PageGraph:
    """A graph before or after planning.

    Attributes:
        nodes: inputs, ops and outputs in topological order.
        edges: the values between nodes.
        regions: the bodies: region `n` of a node is entry `n - 1`.
    """

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    regions: tuple[Region, ...] = ()


def page_graph(
    graph: Graph, ops: Sequence[OpReport], casts: Sequence[CastReport], sizes: Sizes, scopes: Sequence[tuple[str, ...]]
) -> PageGraph:
    """A graph with the numbers of its report.

    Args:
        graph: the graph.
        ops: the reports of its ops but casts, in the order of `located_ops`.
        casts: the reports of its casts, in the same order.
        sizes: the sizes of symbolic dimensions.
        scopes: the path of module names of each op, in the order of `located_ops`.
    """
    return _Builder(graph, sizes).build(iter(ops), iter(casts), scopes)


@dataclass(slots=True)
class _Builder:
    graph: Graph
    sizes: Sizes
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)
    written: dict[Value, tuple[int, Operand]] = field(default_factory=dict)
    numbers: dict[Graph, int] = field(default_factory=dict)  # of regions

    def build(
        self, ops: Iterator[OpReport], casts: Iterator[CastReport], scopes: Sequence[tuple[str, ...]]
    ) -> PageGraph:
        self.numbers[self.graph] = 0
        for value in self.graph.inputs:
            operand = Operand(value.name, str(value.type), value.storage_text)
            self._add(Node("input", value.name, "input", (), (operand,)), [], [value])
        for located, scope in zip(located_ops(self.graph), scopes, strict=True):
            if is_cast(located.op):
                self._add_op(self._cast(located, next(casts), scope))
            else:
                self._add_op(self._op(located, next(ops), scope))
        for value in self.graph.outputs:
            operand = Operand(value.name, str(value.type), value.storage_text)
            self._add(Node("output", value.name, "output", (operand,), ()), [value], [])
        return PageGraph(tuple(self.nodes), tuple(self.edges), tuple(self.regions))

    def _op(self, located: LocatedOp, report: OpReport, scope: tuple[str, ...]) -> Node:
        op = located.op
        is_free = region_rule(op) is not None or (isinstance(rule_of(op), View) and not report.moves_data)
        kind: NodeKind = "move" if report.moves_data else "view" if isinstance(rule_of(op), View) else "op"
        operands = [value for value in dict.fromkeys((*op.inputs, *op.outputs)) if value is not None]
        return Node(
            kind,
            report.name,
            report.kind,
            tuple(_operands(op.inputs, report.inputs, report.input_axes, report.preferred_inputs)),
            tuple(_operands(op.outputs, report.outputs, report.output_axes, report.preferred_outputs)),
            output_format(report),
            report.seconds,
            0 if is_free else sum(physical_bytes(value, self.sizes) for value in operands),
            report.reason,
            scope,
            self.numbers[located.graph],
            op,
        )

    def _cast(self, located: LocatedOp, report: CastReport, scope: tuple[str, ...]) -> Node:
        op = located.op
        return Node(
            "cast",
            report.name,
            CAST,
            tuple(_operands(op.inputs, [report.src], [report.axes], [])),
            tuple(_operands(op.outputs, [report.dst], [report.axes], [])),
            "",
            report.seconds,
            report.bytes if report.moves_data else 0,
            report.reason,
            scope,
            self.numbers[located.graph],
            op,
        )

    def _add_op(self, node: Node) -> None:
        op = node.op
        assert op is not None
        number = len(self.nodes)
        for name, body in op.bodies.items():
            self.regions.append(Region(number, name))
            self.numbers[body] = len(self.regions)
        self._add(node, [value for value in op.inputs if value is not None], list(op.outputs))

    def _add(self, node: Node, reads: Sequence[Value], writes: Sequence[Value | None]) -> None:
        number = len(self.nodes)
        self.nodes.append(node)
        for value in dict.fromkeys(reads):
            if value in self.written:
                source, operand = self.written[value]
                self.edges.append(Edge(source, number, operand))
        for result, operand in zip(writes, node.outputs, strict=True):
            if result is not None:
                self.written[result] = number, operand


def _operands(
    values: Sequence[Value | None],
    formats: Sequence[str | None],
    axes: Sequence[str | None],
    preferred: Sequence[str | None],
) -> Iterator[Operand]:
    """The operands of one side; an absent one has no name."""
    for index, value in enumerate(values):
        if value is None:
            yield Operand("", "")
            continue
        text = formats[index] or ""
        yield Operand(
            value.name,
            str(value.type),
            f"{text} ({CANONICAL})" if text and text == axes[index] and len(text) > 1 else text,
            (preferred[index] or "") if preferred else "",
            value.is_constant,
        )


__all__ = ["Edge", "Node", "NodeKind", "Operand", "PageGraph", "Region", "page_graph"]
