"""A request for a comparison: pinned formats, observed values, test inputs, seed and time limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from layoutopt.formats import Format
from layoutopt.ir.types import Array
from layoutopt.sample_inputs import SampleInputs
from layoutopt.verification.observed_values import ObservedValue
from layoutopt.verification.original_runs import TimeLimits


@dataclass(frozen=True, slots=True)
class Request:
    """The conditions of a comparison.

    Attributes:
        pins: formats of the rewritten model's inputs and outputs, where these are not canonical.
        observed: further outputs of both models, which may have another name and format in the rewritten model.
        inputs: generator of test inputs, with the sizes of symbolic dimensions.
        seed: of the random inputs.
        limits: time limits.
        defers_spread: whether the rounding spread is measured only after a comparison without tolerance has failed.
    """

    pins: Mapping[str, Format] = field(default_factory=dict)
    observed: Sequence[ObservedValue] = ()
    inputs: SampleInputs = field(default_factory=SampleInputs)
    seed: int = 0
    limits: TimeLimits = field(default_factory=TimeLimits)
    defers_spread: bool = False

    @property
    def counterparts(self) -> "Counterparts":
        """The values that have another name, format or rank in the rewritten model."""
        pinned = {name: ObservedValue(name, name, format) for name, format in self.pins.items()}
        return Counterparts({**{each.original: each for each in self.observed}, **pinned})


@dataclass(frozen=True, slots=True)
class Counterparts:
    """The correspondence of values; values without an entry have the same name and format in both models.

    Attributes:
        by_name: the observed value of each name in the original.
    """

    by_name: Mapping[str, ObservedValue]

    def name(self, original: str) -> str:
        """The name of a value in the rewritten model."""
        return self.by_name[original].rewritten if original in self.by_name else original

    def pack(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        """Inputs of the original in the formats of the rewritten model, by the original's name."""
        return {name: self.by_name[name].packed(x) if name in self.by_name else x for name, x in feed.items()}

    def unpack(self, name: str, actual: Any, expected: Any) -> Any:
        """An output of the rewritten model as the logical tensor of the original's output `expected`."""
        return self.by_name[name].unpacked(actual, expected.shape) if name in self.by_name else actual


__all__ = ["Counterparts", "Request"]
