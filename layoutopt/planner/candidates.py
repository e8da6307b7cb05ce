"""The candidates of the planner: the formats of every value, and the signatures of every op."""

from dataclasses import dataclass, field

from layoutopt.formats import Format
from layoutopt.ir.types import Op, Signature, Value
from layoutopt.ops import QdqGroups
from layoutopt.planner.region_tree import RegionTree, Unit
from layoutopt.planner.unit_signatures import Key


@dataclass(slots=True)
class Candidates:
    """The alternatives of the planner.

    Attributes:
        signatures: the signatures of every op and boundary value, one for each padding state.
        formats: the formats of every value by their key for its shape: formats with one key store the same bytes.
        notes: per op, the reasons why proposed signatures are illegal.
        cut: the number of formats and signatures beyond the limits.
    """

    signatures: dict[Unit, list[Signature]] = field(default_factory=dict)
    formats: dict[Value, dict[Key, Format]] = field(default_factory=dict)
    notes: dict[Op, list[str]] = field(default_factory=dict)
    cut: int = 0


@dataclass(slots=True)
class CandidateMemo:
    """The candidates of one graph, for plans at several prices; collecting them takes up to half of the time of a plan.

    Attributes:
        found: the graph with its regions, its QDQ groups and its candidates; None before they are collected, or if a limit has
            cut them: then they depend on prices, which only order them otherwise.
    """

    found: tuple[RegionTree, QdqGroups, Candidates] | None = None
