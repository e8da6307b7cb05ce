"""The options that determine the result of a model, of `optimize` and `ci`; a configuration can set each of them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.options import assignments

if TYPE_CHECKING:  # --help imports this module, and no large library
    from layoutopt.driver.result import Result

FOR_ONE_MODEL = ("pin", "inputs", "external_data")
"""The options that name tensors or files of one model, so that they are refused for several."""


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The options of one model; the fields have the names of the options."""

    target: str
    runtime: str | None = None
    dialect: str | None = None
    mode: Literal["inference", "training"] = "inference"
    pin: Sequence[str] = ()
    dim: Sequence[str] = ()
    inputs: Sequence[Path] = ()
    verify: bool = True
    allow_unverified: bool = False
    measure: bool = True
    threads: int = 1
    calibrate: bool = True
    profile: Path | None = None
    time_limit: float | None = None
    max_growth: float | None = None
    portable: bool = False
    sessions: Literal["balanced", "fast"] = "balanced"
    least: bool = False
    strict: bool = False
    custom_ops: Sequence[Path] = ()
    external_data: str | None = None

    def values(self) -> dict[str, Any]:
        """The options by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def updated(self, values: dict[str, Any]) -> "ModelSettings":
        """These options with other values, which are checked.

        Raises:
            UsageError: a value is wrong.
        """
        settings = replace(self, **values)
        settings.check()
        return settings

    def check(self) -> None:
        """Check the values that do not depend on a model.

        Raises:
            UsageError: a value is wrong.
        """
        if self.time_limit is not None and not self.time_limit > 0:
            raise UsageError("not a time", where=f"--time-limit {self.time_limit:g}", hint="give a number above 0")
        if self.max_growth is not None and not self.max_growth >= 1:
            raise UsageError("not a growth factor", where=f"--max-growth {self.max_growth:g}", hint="give 1 or more")
        assignments.parse_pins(self.pin)
        assignments.parse_dim_ranges(self.dim)

    def arguments(self) -> dict[str, Any]:
        """These options as arguments of `layoutopt.optimize`, except the inputs."""
        from layoutopt.driver.options import Options

        same = (
            *(
                "target",
                "runtime",
                "dialect",
                "mode",
                "verify",
                "allow_unverified",
                "time_limit",
                "sessions",
                "portable",
            ),
            *("measure", "threads", "calibrate", "profile", "strict", "custom_ops"),
        )
        return {name: getattr(self, name) for name in same} | {
            "pins": assignments.parse_pins(self.pin),
            "dims": assignments.parse_dim_ranges(self.dim),
            "max_growth": Options.max_growth if self.max_growth is None else self.max_growth,
            "count_moves": self.least,
        }

    def run(self, model: Path | bytes, **callbacks: Any) -> "Result":
        """The result of `layoutopt.optimize` with these options; `callbacks` are its callables, such as `watch`."""
        from layoutopt import api
        from layoutopt.sample_inputs import read_inputs

        inputs = [read_inputs(path) for path in self.inputs]
        return api.optimize(model, **self.arguments(), inputs=inputs, **callbacks)
