"""Knobs: decisions that the compiler takes by an estimate, with their other settings, which tuning tries.

price of conversions, of kernels of one class      0.25, 0.5, 1, 2, 4 times the price of the target
the cheapest plan                                  the 2nd to the 6th cheapest one
Winograd                                           from never to where it is estimated to be no slower
a pass that decides by a threshold, a fused op     on, off
the formats of one op                              as planned, others
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from layoutopt.cost.scaled import KernelClass, PlannedConversion, PlannedKernel, PriceFactors
from layoutopt.dialects.onnxruntime.passes.winograd import MachineRates

ChangedRates: TypeAlias = Callable[[MachineRates], MachineRates]


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a variant to planning and rewriting.

    Attributes:
        conversion: the factor of the price of layout conversions.
        kernels: the factors of kernels in other formats than the canonical ones, by class.
        planned: the factors of single ops in one choice of formats.
        conversions: the factors of single conversions.
        rank: the number of cheaper plans that the planner passes over.
        is_new_plan: whether it passes over the plans of earlier variants, too.
        omitted: the names of passes that do not run.
        unfused: the fused ops that are not made.
        winograd: the change of the rates by which Winograd is decided; None for no change.
        has_target_prices: whether the prices are those of the target, not those of kernels timed on this machine.
    """

    conversion: float = 1.0
    kernels: Mapping[KernelClass, float] = field(default_factory=dict)
    planned: Mapping[PlannedKernel, float] = field(default_factory=dict)
    conversions: Mapping[PlannedConversion, float] = field(default_factory=dict)
    rank: int = 0
    is_new_plan: bool = False
    omitted: frozenset[str] = frozenset()
    unfused: frozenset[str] = frozenset()
    winograd: ChangedRates | None = None
    has_target_prices: bool = False

    def __or__(self, other: "Changes") -> "Changes":
        """Both changes."""
        return Changes(
            self.conversion * other.conversion,
            {**self.kernels, **other.kernels},
            {**self.planned, **other.planned},
            {**self.conversions, **other.conversions},
            other.rank or self.rank,
            self.is_new_plan or other.is_new_plan,
            self.omitted | other.omitted,
            self.unfused | other.unfused,
            other.winograd or self.winograd,
            self.has_target_prices or other.has_target_prices,
        )

    @property
    def factors(self) -> PriceFactors:
        """The factors of prices."""
        return PriceFactors(self.conversion, self.kernels, self.planned, self.conversions)

    @property
    def has_factors(self) -> bool:
        """Whether a price is scaled."""
        return self.factors != PriceFactors()

    @property
    def besides_plan(self) -> Hashable:
        """A key of the changes that act otherwise than by the plan."""
        return self.omitted, self.unfused, self.winograd, self.has_target_prices


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a knob: its description, and its changes."""

    text: str
    changes: Changes = Changes()


@dataclass(frozen=True, slots=True, eq=False)
class Knob:
    """A decision.

    Attributes:
        settings: in order.
        default: the index of the compiler's own setting.
        weight: the share of a run that the decision is expected to concern; knobs with larger weights are tried first.
        is_ordered: whether neighbouring settings have similar effects, so that a loss ends a direction. If not, each setting
            behind the default is tried by itself, in order, with the weight divided by its number, until one is not possible.
    """

    settings: tuple[Setting, ...]
    default: int
    weight: float
    is_ordered: bool = True


_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
_ORDINALS = ("2nd", "3rd", "4th", "5th", "6th")
_FEWER = 2.0  # the factor of the price of an op in its planned formats, which makes the planner try others


def target_prices(weight: float) -> Knob:
    """The prices of the target, where those of the first plan come from kernels timed on this machine."""
    settings = (
        Setting("prices of kernels timed on this machine"),
        Setting("prices of the target", Changes(has_target_prices=True)),
    )
    return Knob(settings, 0, weight)


def conversion_price(weight: float) -> Knob:
    """The price of layout conversions."""
    settings = [Setting(f"conversions at {factor:g}x their price", Changes(factor)) for factor in _FACTORS]
    return Knob(tuple(settings), _FACTORS.index(1.0), weight)


def kernel_price(kernels: KernelClass, weight: float) -> Knob:
    """The price of a class of kernels in other formats than the canonical ones."""
    family, variant = kernels
    name = f"{variant} {family}".strip().replace("_", " ")
    settings = [
        Setting(
            f"kernels of {name} outside the canonical format at {factor:g}x their price",
            Changes(kernels={kernels: factor}),
        )
        for factor in _FACTORS
    ]
    return Knob(tuple(settings), _FACTORS.index(1.0), weight)


def op_formats(op: str, formats: str, weight: float) -> Knob:
    """The formats of one op: as in the first plan, or others."""
    other = Setting(f"other formats for {op}", Changes(planned={(op, formats): _FEWER}))
    return Knob((Setting(f"{op} as planned"), other), 0, weight)


def plan_rank(weight: float) -> Knob:
    """The cheapest plan, or one of those that follow it."""
    others = [Setting(f"{each} cheapest plan", Changes(rank=rank)) for rank, each in enumerate(_ORDINALS, 1)]
    return Knob((Setting("cheapest plan"), *others), 0, weight, is_ordered=False)


def learnt_prices(changes: Changes, count: int) -> Knob:
    """The prices as given, or those learnt from a number of runs, with the cheapest plan that no earlier variant has."""
    text = f"plan at prices learnt from {count} run{'s' if count > 1 else ''}"
    settings = (Setting("prices as given"), Setting(text, replace(changes, is_new_plan=True)))
    return Knob(settings, 0, 1.0, is_ordered=False)


def with_rank(knob: Knob, rank: int) -> Knob:
    """The knob with settings for the plan of a rank in place of those for a plan that no earlier variant has."""
    if not any(each.changes.is_new_plan for each in knob.settings):
        return knob
    settings = (
        replace(each, changes=replace(each.changes, rank=rank, is_new_plan=False)) if each.changes.is_new_plan else each
        for each in knob.settings
    )
    return replace(knob, settings=tuple(settings))


def pass_runs(name: str, weight: float) -> Knob:
    """A pass that decides by a threshold: it runs, or not."""
    return Knob(
        (Setting(f"with {name}"), Setting(f"without the pass {name}", Changes(omitted=frozenset([name])))), 0, weight
    )


def op_fusion(op: str, weight: float) -> Knob:
    """A fused op: made, or not."""
    name = op.rpartition("::")[2]
    return Knob((Setting(f"{name} fused"), Setting(f"no {name}", Changes(unfused=frozenset([op])))), 0, weight)


def winograd_threshold(weight: float) -> Knob:
    """The estimated or measured speed-up of a convolution from which it is computed by Winograd."""
    settings = (
        Setting("no Winograd", Changes(omitted=frozenset(["winograd"]))),
        Setting("Winograd from a gain of 1.5x", Changes(winograd=_with_speedup(1.5))),
        Setting("Winograd at the threshold of the target"),
        Setting("Winograd from a gain of 1.0x", Changes(winograd=_with_speedup(1.0))),
        Setting("Winograd as on a processor of half the arithmetic rate", Changes(winograd=_at_half_the_rate)),
    )
    return Knob(settings, 2, weight)


def _with_speedup(speedup: float) -> ChangedRates:
    return lambda rates: replace(rates, min_speedup=speedup, min_measured_speedup=speedup)


def _at_half_the_rate(rates: MachineRates) -> MachineRates:
    return replace(rates, flops=rates.flops / 2, min_speedup=1.0, min_measured_speedup=1.0)


__all__ = [
    "ChangedRates",
    "Changes",
    "Knob",
    "Setting",
    "conversion_price",
    "kernel_price",
    "learnt_prices",
    "op_formats",
    "op_fusion",
    "pass_runs",
    "plan_rank",
    "target_prices",
    "winograd_threshold",
    "with_rank",
]
