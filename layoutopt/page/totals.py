"""Numbers, estimated time and bytes of the ops of each type, before and after planning."""

from dataclasses import dataclass

from layoutopt.page.graphs import PageGraph


@dataclass(slots=True)
class Total:
    """The ops of one type in one graph: their number, estimated seconds and bytes."""

    count: int = 0
    seconds: float = 0.0
    nbytes: int = 0


def op_type_totals(before: PageGraph | None, after: PageGraph) -> list[tuple[str, Total, Total]]:
    """Rows (op type, before, after), the longest estimated time first."""
    first, last = _by_type(before), _by_type(after)
    rows = [(kind, first.get(kind, Total()), last.get(kind, Total())) for kind in dict.fromkeys([*last, *first])]
    return sorted(rows, key=lambda row: -max(row[1].seconds, row[2].seconds))


def _by_type(graph: PageGraph | None) -> dict[str, Total]:
    totals: dict[str, Total] = {}
    for node in graph.nodes if graph is not None else ():
        if node.op is not None:
            total = totals.setdefault(node.op_type, Total())
            total.count += 1
            total.seconds += node.seconds
            total.nbytes += node.nbytes
    return totals


__all__ = ["Total", "op_type_totals"]
