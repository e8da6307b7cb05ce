"""Stamp: metadata of an optimised model, with the options of the run and a fingerprint of the result.

A second run with the same options leaves a model with a matching stamp unchanged. An edited model has another fingerprint.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from layoutopt.version import VERSION

KEY = "layoutopt"


@dataclass(frozen=True, slots=True)
class Stamp:
    """The options with which a model was optimised.

    Attributes:
        target: the name of the target, or of several targets.
        runtime: the name of the runtime.
        dialect: the name of the dialect.
        mode: "inference" or "training".
        pins: the formats of pins as text, by the name of the tensor.
        dims: the smallest and the largest size of symbolic dimensions, by name.
        max_growth: the limit of the growth of constants.
        portable: whether the result has a standard branch for machines without its blocks.
        sessions: "balanced" or "fast".
        pin_axes: the letters of the axes under which pins were read, where these are not the default ones. They follow from
            the pins and the model that was optimised, which a second run does not have.
    """

    target: str
    runtime: str
    dialect: str
    mode: str
    pins: tuple[tuple[str, str], ...]
    dims: tuple[tuple[str, tuple[int, int]], ...]
    max_growth: float
    portable: bool
    sessions: str
    pin_axes: tuple[tuple[str, str], ...] = ()

    def matches(self, metadata: Mapping[str, str], fingerprint: str) -> bool:
        """Whether metadata contains a stamp with this fingerprint and these options."""
        try:
            recorded = json.loads(metadata.get(KEY, "{}"))
        except ValueError:
            return False
        if not isinstance(recorded, dict):
            return False
        recorded.pop("pin_axes", None)
        return recorded == self._options(fingerprint)

    def text(self, fingerprint: str) -> str:
        """The stamp as JSON, the value of `KEY` in the model's metadata."""
        letters = {"pin_axes": dict(self.pin_axes)} if self.pin_axes else {}
        return json.dumps(self._options(fingerprint) | letters, sort_keys=True)

    def _options(self, fingerprint: str) -> dict[str, object]:
        options = asdict(self) | {"version": VERSION, "fingerprint": fingerprint}
        del options["pin_axes"]
        return options | {"pins": dict(self.pins), "dims": {name: list(range) for name, range in self.dims}}
