"""The import of a module of layoutopt without what would take half of the time: sympy, and garbage collections.

onnx_ir requires sympy for arithmetic on symbolic dimensions only. `importlib.util.LazyLoader` would let a second thread read a
half-loaded module before Python 3.11.9. Collections would traverse all modules again and again. Only the command line imports
so: in a user's process, other threads would find collections disabled, and the deferred modules.
"""

import gc
import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Deferred(ModuleType):
    """Takes the place of a module in the modules that import it; the module is imported when its first attribute is read."""

    def __getattr__(self, name: str) -> Any:
        self.remove()  # if onnx_ir itself reads an attribute during its import
        return getattr(import_module(self.__name__), name)

    def remove(self) -> None:
        """Let further imports find the module itself."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


def import_without_sympy(name: str) -> ModuleType:
    """The module of that name, which may import onnx_ir."""
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        _import_onnx_ir()
        return import_module(name)
    finally:
        if is_collecting:
            gc.enable()


def _import_onnx_ir() -> None:
    """Import onnx_ir, whose own names `sympy` and `_symbolic_shapes` become deferred modules; no other module has these."""
    if "onnx_ir" in sys.modules:
        return
    deferred = [_Deferred(name) for name in ("sympy", "onnx_ir._symbolic_shapes") if name not in sys.modules]
    sys.modules.update({each.__name__: each for each in deferred})
    try:
        import_module("onnx_ir")
    finally:
        for each in deferred:
            each.remove()
