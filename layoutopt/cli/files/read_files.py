"""The files that the options of a command name for reading, which the command never replaces."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # --help imports this module, and not pydantic
    from layoutopt.cli.config import Config


def read_files(options: Mapping[str, Any], config: "Config | None" = None) -> tuple[Path, ...]:
    """The target files, inputs, profile, libraries and baseline among the values of options, and the configuration."""
    found = [] if config is None else [config.path]
    found += [Path(each) for each in str(options.get("target") or "").split(",") if each.endswith(".toml")]
    for name in ("inputs", "custom_ops", "profile", "baseline"):
        value = options.get(name) or ()
        found += [value] if isinstance(value, Path) else value
    return tuple(found)
