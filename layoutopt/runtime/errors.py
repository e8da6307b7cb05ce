"""The exceptions of onnxruntime, which have no common base class, and their classification by message."""

import errno
import re

from onnxruntime.capi import onnxruntime_pybind11_state

from layoutopt.errors import LayoutoptError

_OWN = (each for each in vars(onnxruntime_pybind11_state).values() if isinstance(each, type))
RUNTIME_ERRORS: tuple[type[Exception], ...] = (
    *(each for each in _OWN if issubclass(each, Exception)),
    RuntimeError,
    ValueError,
)
"""The exceptions of loading and running models: onnxruntime's own classes, and those of its Python code."""

RUN_ERRORS: tuple[type[Exception], ...] = (*RUNTIME_ERRORS, LayoutoptError, TimeoutError)
"""The exceptions of a failed run: those of onnxruntime, of the generation of inputs, and of the time limit."""

RUN_OR_MEMORY_ERRORS: tuple[type[Exception], ...] = (*RUN_ERRORS, MemoryError)
"""The exceptions of a failed run, and of one for which there is too little memory."""

_MESSAGE_LENGTH = 300
_SOURCE_LOCATION = re.compile(r"Exception from |Check '.*' failed at ")

_MEMORY = re.compile(r"bad[_ ]alloc|failed to allocate|unable to allocate|cannot allocate memory|out of memory", re.I)
_NOT_THE_MODEL = re.compile(
    r"not a registered function/op|no op registered|could not find an implementation|not_?implemented|did not finish within"
    r"|external|no such file|no random values|out of (data )?bounds|within the inclusive range|is out of range"
    r"|scalesvalidation",
    re.I,
)
"""Errors of valid models: no kernel, the time limit, a missing file, random values as indices or scales."""


class OutOfMemoryError(LayoutoptError, MemoryError):
    """There is too little memory: for the model `where`, by the message `what`."""

    def __str__(self) -> str:
        model = f" for {self.where}" if self.where else ""
        return f"not enough memory{model}: {self.what}; {self.hint}"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception, or one of its causes, reports too little memory."""
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in seen:
        seen.append(current)
        if isinstance(current, MemoryError) or (isinstance(current, OSError) and current.errno == errno.ENOMEM):
            return True
        if type(current) in RUNTIME_ERRORS and is_memory_message(str(current)):
            return True
        current = current.__cause__
    return False


def raise_if_out_of_memory(error: BaseException, where: str = "") -> None:
    """Raise an OutOfMemoryError if an exception reports too little memory.

    Args:
        error: the exception.
        where: the name of the model, for an error without one.

    Raises:
        OutOfMemoryError: the exception reports too little memory.
    """
    if isinstance(error, OutOfMemoryError):
        error.where = error.where or where
        raise error
    if is_out_of_memory(error):
        reason = error_message(error, str(error) or "an array cannot be allocated")
        hint = "close other programs or use a machine with more"
        raise OutOfMemoryError(reason, where=where, hint=hint) from error


def error_message(error: BaseException, text: str | None = None) -> str:
    """The message of an exception in one line of at most 300 characters; the name of its class if it has no message.

    Lines in which OpenVINO names its source files are left out.

    Args:
        error: the exception.
        text: its message without parts that users need not read; None for the whole message.
    """
    lines = (str(error) if text is None else text).splitlines()
    kept = " ".join(each for each in lines if not _SOURCE_LOCATION.match(each))
    line = " ".join(kept.split()) or type(error).__name__
    return line if len(line) <= _MESSAGE_LENGTH else f"{line[: _MESSAGE_LENGTH - 3]}..."


def is_memory_message(text: str) -> bool:
    """Whether the message of an exception reports too little memory."""
    return _MEMORY.search(text) is not None


def is_about_the_model(text: str) -> bool:
    """Whether an error message concerns the model itself, not the machine, the runtime or the inputs."""
    return not is_memory_message(text) and _NOT_THE_MODEL.search(text) is None
