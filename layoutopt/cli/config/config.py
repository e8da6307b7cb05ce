"""A configuration: the options and the budgets of each model."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from layoutopt.cli.config.schema import ConfigTable, ModelOptions, Table

_PATHS = ("profile", "inputs")
"""The options with files, which are relative to the folder of the configuration."""


@dataclass(frozen=True, slots=True)
class Config:
    """The content of a configuration file.

    Attributes:
        path: the file.
        table: its content.
    """

    path: Path
    table: ConfigTable

    def options_for(self, model: Path) -> dict[str, object]:
        """The options of a model by name, such as `max-growth`: those of all models, then those of each matching pattern.

        A later pattern replaces the values of earlier ones. Files are relative to the folder of the configuration.
        """
        options = _values(self.table)
        for each in self._matching(model):
            options |= _values(each)
        return {name: self._located(name, value) for name, value in options.items()}

    def budgets_for(self, model: Path) -> dict[str, float]:
        """The budgets of a model by name, such as `max-transposes`, with the rules of `options_for`."""
        budgets = _values(self.table.budgets)
        for each in self._matching(model):
            budgets |= _values(each.budgets)
        return budgets

    def _matching(self, model: Path) -> Iterator[ModelOptions]:
        """The tables whose patterns match a model, in the order of the file.

        A pattern is compared with the path below the folder of the configuration, or with the name if it contains no slash;
        `*` also matches slashes.
        """
        folder = os.path.dirname(os.path.abspath(self.path))
        relative = Path(os.path.relpath(os.path.abspath(model), folder)).as_posix()
        for pattern, options in self.table.models.items():
            if fnmatchcase(relative if "/" in pattern else model.name, pattern.removeprefix("./")):
                yield options

    def _located(self, name: str, value: Any) -> Any:
        """A value with absolute paths."""
        if name in _PATHS:
            return [self._path(each) for each in value] if isinstance(value, list) else self._path(value)
        if name == "target":  # names and files, separated by commas
            return ",".join(str(self._path(each)) if each.endswith(".toml") else each for each in value.split(","))
        return value

    def _path(self, name: str) -> Path:
        return self.path.parent / name


def _values(table: Table) -> dict[str, Any]:
    """The values of a table that the file contains, by key; without the inner tables."""
    inner = {"budgets", "models"}
    return table.model_dump(by_alias=True, exclude_unset=True, exclude=inner)
