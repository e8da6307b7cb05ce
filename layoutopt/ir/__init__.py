"""The graph that everything works on: logical tensors with formats, ops with signatures."""

from layoutopt.ir.def_use import Use
from layoutopt.ir.functions import Function, Reference
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType, Op, Opaque, OpaqueType, Padding, Signature, Slot, Storage, TensorType, Value
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
    "Reference",
    "Signature",
    "Slot",
    "Storage",
    "TensorType",
    "Use",
    "Value",
    "Violation",
    "violations",
]
