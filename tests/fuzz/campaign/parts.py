"""The table of parts. A new part is a module with a `PART`, and a line here; without one, it has the name of its module."""

import importlib
import importlib.util
from dataclasses import dataclass

from .part import Part


@dataclass(frozen=True)
class Entry:
    """A row of the table.

    Attributes:
        module: the module with the `PART`.
        share: the share of the time, relative to those of the other parts.
        package: an optional Python package that the part needs.
    """

    module: str
    share: int
    package: str = ""

    @property
    def is_installed(self) -> bool:
        """Whether the package that the part needs is there."""
        return not self.package or importlib.util.find_spec(self.package) is not None


PARTS = {
    "graphs": Entry("fuzz.graphs", 40),
    "mutants": Entry("fuzz.structure", 40),
    "files": Entry("fuzz.files", 5),
    "suite": Entry("fuzz.suite_cases", 5),
    "zoo": Entry("fuzz.whole_networks", 5),
    "faults": Entry("fuzz.injected_faults", 5),
    "nnsmith": Entry("fuzz.nnsmith_graphs", 5, "nnsmith"),
}


_SHARE = 10  # of a part that is not in the table


def entry(name: str) -> Entry | None:
    """The row of a name, or that of a module with a dot in its name; None if there is neither."""
    if name in PARTS:
        return PARTS[name]
    try:
        is_module = "." in name and importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return None
    return Entry(name, _SHARE) if is_module else None


def part(name: str) -> Part:
    """The part of a name, which has an `entry`."""
    row = entry(name)
    assert row is not None
    found = importlib.import_module(row.module).PART
    assert isinstance(found, Part)
    return found
