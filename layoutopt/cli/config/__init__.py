"""Configuration: `layoutopt.toml`, or `[tool.layoutopt]` of a `pyproject.toml`, with options and budgets of models."""

from layoutopt.cli.config.config import Config
from layoutopt.cli.config.files import find_config, load_config

__all__ = ["Config", "find_config", "load_config"]
