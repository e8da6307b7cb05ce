"""The import of a module of layoutopt without sympy, algorithms of networkx, and garbage collections.

onnx_ir requires sympy for arithmetic on symbolic dimensions only, and graphs require networkx's classes only; a plugin that
reads another name of networkx imports the rest. `importlib.util.LazyLoader` would let a second thread read a half-loaded module
before Python 3.11.9. Garbage collections would traverse all modules again and again. Only the command line imports so: in a
user's process, other threads would find collections disabled, and the deferred modules.
"""

import gc
import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from types import ModuleType
from typing import Any

from layoutopt.registry import installed

_DEFERRED = {
    "onnx_ir": ("sympy", "onnx_ir._symbolic_shapes"),
    "networkx": tuple(f"networkx.{each}" for each in ["generators", "readwrite", "algorithms", "linalg", "drawing"]),
}


class _Deferred(ModuleType):
    """Takes the place of a module in the modules that import it; the module is imported when its first attribute is read."""

    def __getattr__(self, name: str) -> Any:
        if name in ("__all__", "__path__"):  # of `from networkx.algorithms import *`, which gets no names
            raise AttributeError(name)
        self.remove()  # if the library itself reads an attribute during its import
        return getattr(import_module(self.__name__), name)

    def remove(self) -> None:
        """Let further imports find the module itself."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


def import_deferring(name: str) -> ModuleType:
    """A module by its name, which may import onnx_ir and networkx."""
    if name in sys.modules:
        return sys.modules[name]
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        for library, modules in _DEFERRED.items():
            if library not in sys.modules:
                _import_without(library, modules)
        return import_module(name)
    finally:
        gc.freeze()  # else the next collections traverse all modules
        if is_collecting:
            gc.enable()


def _entry_points(**kinds: str) -> metadata.EntryPoints:
    """The entry points of installed packages for networkx, which would search all packages twice, and keeps this function."""
    found: metadata.EntryPoints = installed().select(**kinds)
    return found


def _import_without(library: str, modules: Sequence[str]) -> None:
    """Import a library; its own names of some modules become deferred modules, which no other module has."""
    search = metadata.entry_points
    vars(metadata)["entry_points"] = _entry_points
    deferred = [_Deferred(name) for name in modules if name not in sys.modules]
    sys.modules.update({each.__name__: each for each in deferred})
    try:
        names = vars(import_module(library))
    finally:
        vars(metadata)["entry_points"] = search
        for each in deferred:
            each.remove()
    if library == "networkx":
        names["__getattr__"] = lambda name: _missing(names, modules, name)


def _missing(names: dict[str, Any], modules: Sequence[str], name: str) -> Any:
    """The value of a name that a package lacks without its deferred modules, which are imported.

    Raises:
        AttributeError: the package does not have it either.
    """
    for each in map(import_module, () if name.startswith("__") and name != "__all__" else modules):
        names |= {name: value for name, value in vars(each).items() if not name.startswith("_")}
    if name not in names:
        raise AttributeError(f"module networkx has no attribute {name!r}")
    return names[name]
