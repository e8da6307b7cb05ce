"""The table of parts. A new part is a module with a `PART`, and a line here."""

import importlib
import importlib.util
from dataclasses import dataclass

from .part import Part


@dataclass(frozen=True)
class Entry:
    """A row of the table.

    Attributes:
        module: the module with the `PART`, relative to `fuzz`.
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
    "graphs": Entry("graphs", 40),
    "mutants": Entry("structure", 40),
    "files": Entry("files", 5),
    "suite": Entry("suite_cases", 5),
    "zoo": Entry("whole_networks", 5),
    "faults": Entry("injected_faults", 5),
    "nnsmith": Entry("nnsmith_graphs", 5, "nnsmith"),
}


def part(name: str) -> Part:
    """The part of a name in `PARTS`."""
    found = importlib.import_module(f"{__package__.rpartition('.')[0]}.{PARTS[name].module}").PART
    assert isinstance(found, Part)
    return found
