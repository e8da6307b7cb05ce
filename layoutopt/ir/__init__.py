"""The intermediate representation: a graph of ops with signatures and of logical tensors with formats."""

from layoutopt.ir.def_use import Use
from layoutopt.ir.functions import Function, ReferenceAttribute
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
