"""Model-local functions, which a model carries along, and the attributes in them that calls set."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from layoutopt.ir.graph import Graph


@dataclass(slots=True)
class Function:
    """A model-local function: a named body that a model carries along, made of ops of the standard domain."""

    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[str, ...]
    body: "Graph"
    doc: str = ""
    overload: str = ""


@dataclass(slots=True)
class Reference:
    """The payload of an attribute inside a function body that takes its value from the call."""

    name: str
    kind: str = ""


__all__ = ["Function", "Reference"]
