"""Objects by name: the built-in ones, and those of installed packages."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

from layoutopt.registry.entry_points import EntryPoints

T = TypeVar("T")


class Registry(Mapping[str, T]):
    """Built-in objects by name, then those of the entry points of a group.

    Entry points are read only for names that no built-in object has.
    """

    def __init__(self, built_in: Mapping[str, T], added: EntryPoints[T]) -> None:
        self._built_in = dict(built_in)
        self._added = added

    def __getitem__(self, name: str) -> T:
        return self._built_in[name] if name in self._built_in else self._added.load(name)

    def __contains__(self, name: object) -> bool:
        return name in self._built_in or name in self._added.found

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys([*self._built_in, *self._added.found])

    def __len__(self) -> int:
        return len({*self._built_in, *self._added.found})


__all__ = ["Registry"]
