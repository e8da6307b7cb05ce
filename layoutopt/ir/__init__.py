"""The intermediate representation: a graph of ops with signatures and of logical tensors with formats."""

from layoutopt.ir.graph import Graph, Use
from layoutopt.ir.types import (
    DType,
    Function,
    Op,
    Padding,
    Signature,
    Slot,
    Storage,
    TensorType,
    Value,
)
from layoutopt.ir.verify import INVARIANTS, violations
