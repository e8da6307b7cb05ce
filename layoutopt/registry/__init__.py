"""Registries of named objects: the built-in ones and those that installed packages add through entry points."""

from layoutopt.registry.entry_points import EntryPoints, instance_of, registered_by
from layoutopt.registry.registry import Registry

__all__ = ["EntryPoints", "Registry", "instance_of", "registered_by"]
