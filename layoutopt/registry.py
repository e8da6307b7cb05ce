"""Objects that installed packages declare under an entry point group, loaded when a registry first requirement them.

    [project.entry-points."layoutopt.passes"]
    drop-repeats = "my_package.passes:DropRepeats"

An entry point is read once per process. One that fails to load raises an error of one line that names the package.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, Generic, TypeVar

from layoutopt.errors import ExtensionError, LayoutoptError

R = TypeVar("R")
T = TypeVar("T")

_HINT = "repair or uninstall the package"


class EntryPoints(Generic[T]):
    """The entry points of one group.

    Args:
        group: the name of the group, `layoutopt.passes` for example.
        accept: checks and converts the object of an entry point; raises TypeError or ValueError if it is unsuitable.
        error: the class of the errors that are raised.
    """

    def __init__(self, group: str, accept: Callable[[Any], T], error: type[LayoutoptError] = ExtensionError) -> None:
        self.group = group
        self._accept = accept
        self._error = error
        self._found: dict[str, EntryPoint] | None = None
        self._loaded: dict[str, T] = {}

    @property
    def found(self) -> dict[str, EntryPoint]:
        """The entry points by name, in alphabetical order; none of them is loaded.

        Raises:
            LayoutoptError: two packages declare the same name.
        """
        if self._found is None:
            found: dict[str, EntryPoint] = {}
            for entry in sorted(entry_points(group=self.group), key=lambda entry: entry.name):
                if entry.name in found and entry.value != found[entry.name].value:
                    what = f"has the same name as that of {package_of(found[entry.name])}"
                    raise self._error(what, where=self._where(entry), hint="uninstall one of the packages")
                found[entry.name] = entry
            self._found = found
        return self._found

    def load(self, name: str) -> T:
        """The object behind the entry point of this name.

        Raises:
            LayoutoptError: it cannot be loaded, or is not of the kind that the group requires.
            KeyError: there is no entry point of this name.
        """
        if name not in self._loaded:
            self._loaded[name] = self._load(self.found[name])
        return self._loaded[name]

    def load_all(self) -> dict[str, T]:
        """All objects by the name of their entry point, in alphabetical order.

        Raises:
            LayoutoptError: one cannot be loaded, or is not of the kind that the group requires.
        """
        return {name: self.load(name) for name in self.found}

    def loaded_into(self, registered: R) -> R:
        """The registered objects after all entry points are loaded, for groups whose objects register themselves.

        Args:
            registered: the mapping to which loading an entry point adds its objects.

        Raises:
            LayoutoptError: as for `load_all`.
        """
        self.load_all()
        return registered

    def _load(self, entry: EntryPoint) -> T:
        try:
            found = entry.load()
        except Exception as error:  # the code of another package
            raise self._unusable(entry, f"cannot be loaded: {type(error).__name__}: {error}") from error
        try:
            return self._accept(found)
        except (TypeError, ValueError) as error:
            raise self._unusable(entry, str(error)) from error
        except Exception as error:  # of a function that makes the object
            raise self._unusable(entry, f"cannot be loaded: {type(error).__name__}: {error}") from error

    def _unusable(self, entry: EntryPoint, what: str) -> LayoutoptError:
        return self._error(what, where=self._where(entry), hint=_HINT)

    def _where(self, entry: EntryPoint) -> str:
        return f"package {package_of(entry)}: entry point {entry.name} = {entry.value} of {self.group}"


def package_of(entry: EntryPoint) -> str:
    """The name of the package that declares an entry point."""
    return entry.dist.name if entry.dist is not None else entry.value.partition(":")[0]


def instance_of(kind: type[Any], requirement: str) -> Callable[[Any], Any]:
    """A function that takes an instance of a class, or a class or function that makes one without arguments.

    Args:
        kind: the class of the instance.
        requirement: text of the error for an object of another class, behind the name of that class.
    """

    def accept(found: Any) -> Any:
        is_maker = isinstance(found, type) or (callable(found) and not isinstance(found, kind))
        made = found() if is_maker else found
        if not isinstance(made, kind):
            raise TypeError(f"is no {kind.__name__} but a {type(made).__name__}: {requirement}")
        return made

    return accept


def registered_by(register: Callable[[type[T]], object], kind: type[T]) -> Callable[[object], object]:
    """A function that registers a class, or accepts a module whose import has registered classes.

    Args:
        register: registers a class.
        kind: the base class of the classes.
    """

    def accept(found: object) -> object:
        if isinstance(found, type) and issubclass(found, kind):
            return register(found)
        if isinstance(found, ModuleType):
            return found
        raise TypeError(
            f"is neither a class that derives from {kind.__name__} nor a module that registers such classes"
        )

    return accept


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
