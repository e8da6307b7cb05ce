"""Objects that installed packages declare under an entry point group, loaded when a registry first requires them.

    [project.entry-points."layoutopt.passes"]
    drop-repeats = "my_package.passes:DropRepeats"

An entry point is read once per process. One that fails to load raises an error of one line that names the package.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, TypeVar

from layoutopt.errors import ExtensionError, LayoutoptError

R = TypeVar("R")
T = TypeVar("T")


class EntryPoints(Mapping[str, T]):
    """The objects of the entry points of one group by name, behind built-in ones.

    Entry points are read only for names that no built-in object has. Loading one raises a LayoutoptError if it cannot be
    loaded, or is not of the kind that the group requires.

    Args:
        group: the name of the group, `layoutopt.passes` for example.
        accept: checks and converts the object of an entry point; raises TypeError or ValueError if it is unsuitable.
        error: the class of the errors that are raised.
        built_in: built-in objects by name.
    """

    def __init__(
        self,
        group: str,
        accept: Callable[[Any], T],
        error: type[LayoutoptError] = ExtensionError,
        built_in: Mapping[str, T] | None = None,
    ) -> None:
        self.group = group
        self._accept = accept
        self._error = error
        self._loaded = dict(built_in or {})

    @cached_property
    def found(self) -> dict[str, EntryPoint]:
        """The entry points by name, in alphabetical order; none of them is loaded.

        Raises:
            LayoutoptError: two packages declare the same name.
        """
        found: dict[str, EntryPoint] = {}
        for entry in sorted(installed().select(group=self.group), key=lambda entry: entry.name):
            if entry.name in found and entry.value != found[entry.name].value:
                what = f"has the same name as that of {package_of(found[entry.name])}"
                raise self._error(what, where=self._where(entry), hint="uninstall one of the packages")
            found[entry.name] = entry
        return found

    def __getitem__(self, name: str) -> T:
        if name not in self._loaded:
            self._loaded[name] = self._load(self.found[name])
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._loaded or name in self.found

    def __iter__(self) -> Iterator[str]:
        return iter([*(name for name in self._loaded if name not in self.found), *self.found])

    def __len__(self) -> int:
        return len(self._loaded | self.found)

    def loaded_into(self, registered: R) -> R:
        """The registered objects after all entry points are loaded, for groups whose objects register themselves.

        Args:
            registered: the mapping to which loading an entry point adds its objects.
        """
        dict(self)
        return registered

    def _load(self, entry: EntryPoint) -> T:
        try:
            found = entry.load()
        except Exception as error:  # the code of another package
            raise self._unusable(entry, error) from error
        try:
            return self._accept(found)
        except Exception as error:  # of `accept`, or of a function of the package that makes the object
            raise self._unusable(entry, error, is_refused=isinstance(error, TypeError | ValueError)) from error

    def _unusable(self, entry: EntryPoint, error: Exception, *, is_refused: bool = False) -> LayoutoptError:
        what = str(error) if is_refused else f"cannot be loaded: {type(error).__name__}: {error}"
        return self._error(what, where=self._where(entry), hint="repair or uninstall the package")

    def _where(self, entry: EntryPoint) -> str:
        return f"package {package_of(entry)}: entry point {entry.name} = {entry.value} of {self.group}"


@cache
def installed() -> Any:
    """The entry points of all installed packages: a search for one group takes as long as for all of them."""
    return entry_points()


def library(name: str, extra: str, where: str) -> Any:
    """The module of a library that an extra of layoutopt installs.

    Raises:
        LayoutoptError: it is not installed, or cannot be imported.
    """
    try:
        return import_module(name)
    except ImportError as error:
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == name
        hint = f"install it with: pip install 'layoutopt[{extra}]'"
        what = f"needs the package {name}" if is_missing else f"cannot import the package {name}: {error}"
        raise LayoutoptError(what, where=where, hint=hint) from error


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
