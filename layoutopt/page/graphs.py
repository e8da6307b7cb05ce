"""Graphs as the page shows them: nodes with formats, estimated times and bytes, edges, and the bodies of ops.

Nodes are the inputs of the model, its ops (those of a body behind the op that has it) and its outputs, in topological order.
Nodes, operands and edges are tuples, whose order `template/model.js` has too.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct, field

from layoutopt import inference
from layoutopt.cost import CostModel, priced_with
from layoutopt.cost_models import RuntimeSpec
from layoutopt.ir.graph import CAST, Graph, is_cast
from layoutopt.ir.sizes import NO_SIZES, Sizes
from layoutopt.ir.types import Op, Value
from layoutopt.ops import View, rule_of
from layoutopt.ops.region_ops import boundary
from layoutopt.page.scopes import Scope, op_scopes
from layoutopt.passes.base import Pass
from layoutopt.report.builder import graph_report, located_ops, physical_bytes, planned_ops
from layoutopt.report.facts import CANONICAL, output_format
from layoutopt.report.schema import CastReport, OpReport, Report

NodeKind: TypeAlias = Literal["op", "view", "move", "cast", "input", "output"]
"""The role of a node: `view` is a metadata-only op, `move` a Transpose or Reshape that moves bytes."""


class Operand(NamedTuple):
    """An input or output of a node.

    Attributes:
        name: the name of the value; empty if it is absent.
        type: its element type and logical shape.
        format: the format that the op reads or writes; empty if it has none.
        is_constant: whether it is a constant.
    """

    name: str
    type: str
    format: str = ""
    is_constant: bool = False


class Node(NamedTuple):
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
        device: the device of a platform that runs it; empty if there is none.
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
    scope: Scope = ()
    region: int = 0
    device: str = ""


class PageGraph(Struct):
    """A graph before or after planning.

    Attributes:
        nodes: inputs, ops and outputs in topological order.
        ops: the op of each node; None for inputs and outputs.
        edges: the number of the node that computes a value, that of a node that reads it, and the value as it is computed.
        regions: the number of the node that has a body, and the attribute: region `n` of a node is entry `n - 1`.
    """

    nodes: list[Node] = field(default_factory=list)
    ops: list[Op | None] = field(default_factory=list)
    edges: list[tuple[int, int, Operand]] = field(default_factory=list)
    regions: list[tuple[int, str]] = field(default_factory=list)

    def counterparts(self, other: "PageGraph") -> list[int]:
        """Per node, the number of the node of another graph that is the same op, else has the same name; -1 without one."""
        by_op = {op: number for number, op in enumerate(other.ops) if op is not None}
        counts = Counter(map(_key, other.nodes))
        by_name = {_key(node): number for number, node in enumerate(other.nodes) if counts[_key(node)] == 1}
        named = (by_name.get(_key(node), -1) for node in self.nodes)
        return [number if op is None else by_op.get(op, number) for op, number in zip(self.ops, named, strict=True)]


def _key(node: Node) -> Hashable:
    is_interface = node.kind in ("input", "output")
    return (node.kind if is_interface else "op", node.op_type, node.name, node.region)


def page_graph(
    graph: Graph, ops: Iterable[OpReport], casts: Iterable[CastReport], sizes: Sizes, scopes: Sequence[Scope]
) -> PageGraph:
    """A graph with the numbers of its report.

    Args:
        graph: the graph.
        ops: the reports of its ops but casts, in the order of `located_ops`.
        casts: the reports of its casts, in the same order.
        sizes: the sizes of symbolic dimensions.
        scopes: the path of module names of each op, in the order of `located_ops`.
    """
    found, numbers = PageGraph(), {graph: 0}
    written: dict[Value, tuple[int, Operand]] = {}
    reports, cast_reports = iter(ops), iter(casts)

    def add(node: Node, op: Op | None, reads: Sequence[Value | None], writes: Sequence[Value | None]) -> None:
        number = len(found.nodes)
        found.nodes.append(node)
        found.ops.append(op)
        for source, read in (written[value] for value in dict.fromkeys(reads) if value in written):
            found.edges.append((source, number, read))
        written.update((value, (number, made)) for value, made in zip(writes, node.outputs, strict=True) if value)

    def operand(value: Value) -> Operand:
        return Operand(value.name, str(value.type), value.storage_text)

    for value in graph.inputs:
        add(Node("input", value.name, "input", (), (operand(value),)), None, (), (value,))
    for located, scope in zip(located_ops(graph), scopes, strict=True):
        op, region = located.op, numbers[located.graph]
        for name, body in op.bodies.items():
            found.regions.append((len(found.nodes), name))
            numbers[body] = len(found.regions)
        node = _cast(op, next(cast_reports)) if is_cast(op) else _op(op, next(reports), sizes)
        add(node._replace(scope=scope, region=region, device=op.device), op, op.inputs, op.outputs)
    for value in graph.outputs:
        add(Node("output", value.name, "output", (operand(value),), ()), None, (value,), ())
    return found


def _op(op: Op, report: OpReport, sizes: Sizes) -> Node:
    is_view = isinstance(rule_of(op), View)
    is_free = boundary(op) is not None or (is_view and not report.moves_data)
    operands = [value for value in dict.fromkeys((*op.inputs, *op.outputs)) if value is not None]
    return Node(
        "move" if report.moves_data else "view" if is_view else "op",
        report.name,
        report.kind,
        tuple(_operands(op.inputs, report.inputs, report.input_axes)),
        tuple(_operands(op.outputs, report.outputs, report.output_axes)),
        output_format(report),
        report.seconds,
        0 if is_free else sum(physical_bytes(value, sizes) for value in operands),
        report.reason,
    )


def _cast(op: Op, report: CastReport) -> Node:
    sides = ((op.inputs, report.src), (op.outputs, report.dst))
    inputs, outputs = (tuple(_operands(values, [text], [report.axes])) for values, text in sides)
    nbytes = report.bytes if report.moves_data else 0
    return Node("cast", report.name, CAST, inputs, outputs, "", report.seconds, nbytes, report.reason)


def _operands(
    values: Sequence[Value | None],
    formats: Sequence[str | None],
    axes: Sequence[str | None],
) -> Iterator[Operand]:
    """The operands of one side; an absent one has no name."""
    for value, format, canonical in zip(values, formats, axes, strict=True):
        if value is None:
            yield Operand("", "")
            continue
        text = f"{format} ({CANONICAL})" if format and format == canonical and len(format) > 1 else format or ""
        yield Operand(value.name, str(value.type), text, value.is_constant)


class OriginalGraph:
    """A pass callback that records the graph before the first pass, with its estimated times in canonical formats.

    Args:
        hardware: the cost model of the target.
        runtime: the program that runs the result.

    Attributes:
        sizes: the sizes that the model is planned for.
        ops: the ops; empty if no pass has run.
        reports: their reports.
        graph: the graph as the page shows it; None if no pass has run.
    """

    def __init__(self, hardware: CostModel, runtime: RuntimeSpec) -> None:
        self._hardware, self._runtime = hardware, runtime
        self._scopes: dict[Op, Scope] = {}
        self.sizes = NO_SIZES
        self.ops: list[Op] = []
        self.reports: list[OpReport] = []
        self.graph: PageGraph | None = None

    def set_sizes(self, sizes: Sizes) -> None:
        """Store the sizes that the model is planned for."""
        self.sizes = sizes

    def __call__(self, moment: str, current: Pass, graph: Graph) -> None:
        """Record the graph when the first pass begins."""
        if self.graph is not None:
            return
        sizes, runtime = inference.evaluate_extents(graph, self.sizes), self._runtime
        prices = priced_with(runtime.restricted(self._hardware), sizes=sizes, epilogues=runtime.epilogues(graph))
        reports, casts = graph_report(graph, prices, sizes)
        ops = located_ops(graph)
        scopes = op_scopes(ops)
        self._scopes = {located.op: scope for located, scope in zip(ops, scopes, strict=True)}
        self.ops, self.reports = planned_ops(graph), reports
        self.graph = page_graph(graph, reports, casts, sizes, scopes)

    def planned(self, graph: Graph, report: Report) -> PageGraph:
        """The graph after planning, with the numbers of its report; its ops are in the modules of the original."""
        scopes = op_scopes(located_ops(graph), self._scopes)
        return page_graph(graph, report.ops, report.casts, inference.evaluate_extents(graph, self.sizes), scopes)
