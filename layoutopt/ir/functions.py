"""Model-local functions, and the attributes of their ops that take their values from the call."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from layoutopt.ir.graph import Graph


@dataclass(slots=True)
class Function:
    """A model-local function: a named graph of ops of the standard domain."""

    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[str, ...]
    body: "Graph"
    doc: str = ""
    overload: str = ""


@dataclass(slots=True)
class ReferenceAttribute:
    """The payload of an attribute inside a function body that takes its value from the call."""

    name: str
    kind: str = ""


__all__ = ["Function", "ReferenceAttribute"]
