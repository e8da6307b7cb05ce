"""Scaled prices: a cost model whose prices of conversions and of kernels are multiplied by factors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from layoutopt.cost.model import CostModel, CostModelWrapper, emulation_conversions
from layoutopt.ir.types import Op, Signature, Storage, Value
from layoutopt.ops import canonical_signature, is_canonical, rule_of

KernelClass: TypeAlias = tuple[str, str]
"""The family and the variant of layout rules, such as ("convolution", "depthwise")."""

PlannedKernel: TypeAlias = tuple[str, str]
"""The name of an op, or of its first output if it has none, and the text of its formats."""

PlannedConversion: TypeAlias = tuple[str, str, str]
"""The name of a tensor, and the texts of the formats before and after a conversion."""


def kernel_class(op: Op) -> KernelClass:
    """The class of an op's kernels; two empty texts for an op without a layout rule."""
    rule = rule_of(op)
    return ("", "") if rule is None else (rule.family, rule.variant(op))


@dataclass(frozen=True, slots=True)
class PriceFactors:
    """Factors of prices; 1 for everything that is not named.

    Attributes:
        conversion: the factor of layout conversions.
        kernels: the factors of kernels in other formats than the canonical ones, by class.
        planned: the factors of single ops in one choice of formats.
        conversions: the factors of single conversions, which multiply `conversion`.
    """

    conversion: float = 1.0
    kernels: Mapping[KernelClass, float] = field(default_factory=dict)
    planned: Mapping[PlannedKernel, float] = field(default_factory=dict)
    conversions: Mapping[PlannedConversion, float] = field(default_factory=dict)

    @property
    def largest(self) -> float:
        """The largest factor of a price; that of an emulated op contains conversions."""
        kernel = max([1.0, self.conversion, *self.kernels.values()]) * max([1.0, *self.planned.values()])
        return max(kernel, self.conversion * max([1.0, *self.conversions.values()]))


class ScaledCostModel(CostModelWrapper):
    """A cost model whose prices are multiplied by factors.

    The price of an emulated op consists of the canonical kernel, whose price stays, and conversions, whose price is scaled.
    """

    def __init__(self, model: CostModel, factors: PriceFactors) -> None:
        """Scale the prices of `model`."""
        super().__init__(model)
        self._factors = factors

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        """Estimated seconds of the op under a signature, scaled."""
        seconds = self._model.kernel_seconds(op, signature)
        if not is_canonical(signature):
            if emulation_conversions(self._model, op, signature):
                canonical = min(seconds, self._model.kernel_seconds(op, canonical_signature(op)))
                seconds = canonical + self._factors.conversion * (seconds - canonical)
            else:
                seconds *= self._factors.kernels.get(kernel_class(op), 1.0)
        return seconds * self._planned_factor(op, signature)

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        """Estimated seconds of a conversion, scaled."""
        factor = self._factors.conversion
        if self._factors.conversions:
            factor *= self._factors.conversions.get(planned_conversion(value, src, dst), 1.0)
        return factor * self._model.conversion_seconds(value, src, dst)

    def _planned_factor(self, op: Op, signature: Signature) -> float:
        if not self._factors.planned:
            return 1.0
        return self._factors.planned.get(planned_kernel(op, signature), 1.0)


def planned_kernel(op: Op, signature: Signature) -> PlannedKernel:
    """The key of an op in one choice of formats."""
    output = next((value.tensor for value in op.outputs if value is not None), "")
    return op.name or output, formats_text(signature)


def planned_conversion(value: Value, src: Storage, dst: Storage) -> PlannedConversion:
    """The key of a conversion of a tensor."""
    return value.tensor, str(src.format), str(dst.format)


def formats_text(signature: Signature) -> str:
    """The formats of a signature as text, without padding states."""
    storages = (*signature.inputs, *signature.outputs)
    return ", ".join("-" if each is None else str(each.format) for each in storages)


__all__ = [
    "KernelClass",
    "PlannedConversion",
    "PlannedKernel",
    "PriceFactors",
    "ScaledCostModel",
    "formats_text",
    "kernel_class",
    "planned_conversion",
    "planned_kernel",
]
