"""Stamp: the metadata of an optimised model, by which a second run recognises it and leaves it unchanged.

It contains the options of the run and a fingerprint of the result, which an edited model does not match.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from layoutopt.cost.size_growth import MAX_GROWTH
from layoutopt.version import VERSION

KEY = "layoutopt"


@dataclass(frozen=True, slots=True)
class Stamp:
    """The options with which a model was optimised."""

    target: str
    dialect: str
    mode: str
    pins: tuple[tuple[str, str], ...]
    dims: tuple[tuple[str, tuple[int, int]], ...] = ()
    max_growth: float = MAX_GROWTH

    def matches(self, metadata: Mapping[str, str], fingerprint: str) -> bool:
        """Whether the metadata is that of a model with this fingerprint that was optimised with these options."""
        return metadata.get(KEY) == self.text(fingerprint)

    def text(self, fingerprint: str) -> str:
        """The value in the model's metadata."""
        fields = {
            "version": VERSION,
            "target": self.target,
            "dialect": self.dialect,
            "mode": self.mode,
            "pins": dict(self.pins),
            "dims": {name: list(range) for name, range in self.dims},
            "max_growth": self.max_growth,
            "fingerprint": fingerprint,
        }
        return json.dumps(fields, sort_keys=True)
