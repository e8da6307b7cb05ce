"""The table of the data movement that remains: layout conversions, and Transposes and Reshapes that move bytes."""

from dataclasses import dataclass

from layoutopt.page.graphs import Node, PageGraph

CONVERSION = "layout conversion"
WEIGHT_CONVERSION = "weight conversion"
SHAPE_ONLY = "shape only"


@dataclass(frozen=True, slots=True)
class Remaining:
    """One row: an op that copies data, or a conversion that changes the shape only.

    Attributes:
        number: the number of the node.
        kind: "layout conversion", "weight conversion", "shape only" or the op type.
        name: the name of the tensor or op.
        source: the format that is read.
        target: the format that is written.
        seconds: estimated time of all runs.
        nbytes: bytes read and written.
        reason: the reason.
    """

    number: int
    kind: str
    name: str
    source: str
    target: str
    seconds: float
    nbytes: int
    reason: str


def remaining_rows(graph: PageGraph) -> list[Remaining]:
    """The rows, the longest estimated time first."""
    rows = [_row(number, node) for number, node in enumerate(graph.nodes) if node.kind in ("cast", "move")]
    return sorted(rows, key=lambda row: (-row.seconds, -row.nbytes, row.number))


def _row(number: int, node: Node) -> Remaining:
    kind = node.op_type
    if node.kind == "cast":
        is_weight = any(each.is_constant for each in node.inputs)
        kind = WEIGHT_CONVERSION if is_weight else CONVERSION if node.nbytes else SHAPE_ONLY
    source = next((each.format for each in node.inputs if each.format), "")
    target = next((each.format for each in node.outputs if each.format), "")
    return Remaining(number, kind, node.name, source, target, node.seconds, node.nbytes, node.reason)


__all__ = ["CONVERSION", "SHAPE_ONLY", "WEIGHT_CONVERSION", "Remaining", "remaining_rows"]
