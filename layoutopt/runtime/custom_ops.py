"""Libraries with kernels of custom operators: `--custom-ops` and `custom_ops=`.

ONNX Runtime registers such a library per session. One call of layoutopt creates sessions to fold constants, to infer types, to
bake and to verify, all with options from `session_options`. All sessions of a call have the same libraries, so the libraries
are in the context of the call, instead of an argument of every function between.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeAlias

import onnxruntime

from layoutopt.errors import ExtensionError
from layoutopt.runtime.errors import RUNTIME_ERRORS

Libraries: TypeAlias = str | PathLike[str] | Sequence[str | PathLike[str]]
"""The path of a library, or several paths."""

_LIBRARIES: ContextVar[tuple[str, ...]] = ContextVar("libraries", default=())
_HINT = "give a shared library with custom operators that is built for this onnxruntime and this machine"


@contextmanager
def kernel_libraries(libraries: Libraries) -> Iterator[None]:
    """Register libraries of kernels with every session that is created inside of the block, after those of an outer block.

    Raises:
        ExtensionError: a library cannot be loaded.
    """
    paths = [libraries] if isinstance(libraries, str | PathLike) else libraries
    for path in paths:
        _check(Path(path))
    absolute = (str(Path(path).resolve()) for path in paths)
    token = _LIBRARIES.set(tuple(dict.fromkeys([*_LIBRARIES.get(), *absolute])))
    try:
        yield
    finally:
        _LIBRARIES.reset(token)


def registered_libraries() -> tuple[str, ...]:
    """The paths of the libraries that sessions register."""
    return _LIBRARIES.get()


def session_options() -> Any:
    """New options of a session that logs nothing and registers the libraries of this context."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for path in _LIBRARIES.get():
        options.register_custom_ops_library(path)
    return options


def _check(path: Path) -> None:
    if not path.is_file():
        raise ExtensionError("no such library of kernels", where=fspath(path), hint="check the path of --custom-ops")
    try:
        onnxruntime.SessionOptions().register_custom_ops_library(str(path.resolve()))
    except RUNTIME_ERRORS as error:
        raise ExtensionError(f"cannot be loaded: {error}", where=fspath(path), hint=_HINT) from error
