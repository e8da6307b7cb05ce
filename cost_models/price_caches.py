"""Caches of a cost model: the kernels of ops by structure, and estimates, which all models of one target share.

Equal ops share prices. Prices at measured times are made many times for one graph, from the same estimates.
"""

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from layoutopt.cost_models.kernel_matching import BoundKernel
from layoutopt.formats import Format
from layoutopt.ir.types import DType, Op, Storage, TensorType, Value
from layoutopt.ops import OperandFormats, estimated_volume

Structure: TypeAlias = tuple[Any, ...]
Conversion: TypeAlias = tuple[TensorType, Storage, Storage]
OptionalFormats: TypeAlias = tuple[Format | None, ...]
"""The format of every operand and result; None for those without one."""

_SMALL = 64  # elements; smaller integer constants (axes, pads, sizes) are part of an op's structure


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels of all ops of one structure.

    Attributes:
        rows: the kernels.
        flops: the operations of the op.
        estimates: the seconds of the fastest kernel on operands in given formats; None if there is none.
    """

    rows: list[BoundKernel]
    flops: float
    estimates: dict[OptionalFormats, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SharedEstimates:
    """The estimates of one target, which all its models share: they do not depend on measured prices.

    Attributes:
        kernels: the kernels of ops, by structure.
        conversions: the seconds of conversions in one step.
    """

    kernels: dict[Structure, Kernels] = field(default_factory=dict)
    conversions: dict[Conversion, float] = field(default_factory=dict)


class PriceCache:
    """The cached properties of all ops of one structure, and their prices in one model."""

    __slots__ = ("estimates", "flops", "preferred_formats", "prices", "rows")

    def __init__(self, kernels: Kernels) -> None:
        """Begin without prices."""
        self.rows, self.flops, self.estimates = kernels.rows, kernels.flops, kernels.estimates
        self.preferred_formats: list[OperandFormats] | None = None
        self.prices: dict[OptionalFormats, float] = {}


def structure(op: Op) -> Structure:
    """The properties on which a price depends: op type, attributes, types, small constants, and which operands are constant."""
    return (
        op.kind,
        op.version,
        tuple(sorted(op.attributes.items(), key=lambda item: item[0])),
        tuple([_operand(value) for value in op.inputs]),
        tuple([value and value.type for value in op.outputs]),
    )


def _operand(value: Value | None) -> Structure | None:
    if value is None:
        return None
    if value.data is None:
        return (value.type,)
    integers = value.dtype in (DType.INT64, DType.INT32)
    small = integers and value.shape is not None and estimated_volume(value.shape) <= _SMALL
    return (value.type, value.data.numpy().tobytes() if small else True)


__all__ = ["Conversion", "Kernels", "OptionalFormats", "PriceCache", "SharedEstimates", "Structure", "structure"]
