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
        offered: the number of signatures that are offered to the solver, of units that have more; these come first.
        unexamined: the number of formats of values, and of operands to combine with others, that were not examined.
        open_units: the units that may have signatures that were not examined.
    """

    signatures: dict[Unit, list[Signature]] = field(default_factory=dict)
    formats: dict[Value, dict[Key, Format]] = field(default_factory=dict)
    notes: dict[Op, list[str]] = field(default_factory=dict)
    offered: dict[Unit, int] = field(default_factory=dict)
    unexamined: int = 0
    open_units: set[Unit] = field(default_factory=set)

    @property
    def examined(self) -> int:
        """The number of signatures that are examined, but not offered."""
        return sum(len(self.signatures[unit]) - offered for unit, offered in self.offered.items())

    @property
    def is_complete(self) -> bool:
        """Whether no limit has cut candidates. Then they do not depend on prices, which only order them."""
        return not self.offered and not self.unexamined


@dataclass(slots=True)
class CandidateMemo:
    """The candidates of one graph, for plans at several prices; collecting them takes up to half of the time of a plan.

    Attributes:
        found: the graph with its regions, its QDQ groups and its candidates; None before they are collected, or if a limit has
            cut them.
    """

    found: tuple[RegionTree, QdqGroups, Candidates] | None = None
