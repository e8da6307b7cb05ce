"""The intermediate representation: a graph of ops with signatures and of logical tensors with formats."""

from layoutopt.ir.graph import Graph, Use
from layoutopt.ir.types import (
    DType,
    Function,
    Op,
    Opaque,
    OpaqueType,
    Padding,
    ReferenceAttribute,
    Signature,
    Slot,
    Storage,
    TensorType,
    Value,
)
from layoutopt.ir.verify import INVARIANTS, Violation, violations

__all__ = [
    "INVARIANTS",
    "DType",
    "Function",
    "Graph",
    "Op",
    "Opaque",
    "OpaqueType",
    "Padding",
    "ReferenceAttribute",
    "Signature",
    "Slot",
    "Storage",
    "TensorType",
    "Use",
    "Value",
    "Violation",
    "violations",
]
