"""Error classes, with the exit code of each.

    LayoutoptError                1
    ├── ArgumentError             2   an argument of a function has a wrong type or an invalid value
    ├── DimensionError            2   no such symbolic dimension, or no such size
    ├── ModelError                3   the model cannot be read, or is not a valid model
    ├── TargetError               4   no such target, or its description is malformed
    ├── FormatError               5   no such format, or it does not fit the tensor
    ├── PinError                  6   no plan can satisfy a pinned format
    ├── VerificationError         7   the outputs of the rewritten model differ
    ├── OutputError               8   the result cannot be written
    ├── UnverifiedError          11   the rewritten model could not be compared with the original
    ├── ExtensionError           12   an extension of another package cannot be used
    ├── CertificateError         15   the certificate does not prove that the result computes the original
    └── InvariantError           70   a pass broke the graph: a bug in the pass

Exit code 2 is also that of a wrong command line. Every message is one line: the name of a node, tensor or file, the fault, and
the remedy.
"""

from typing import ClassVar


def _line(text: str) -> str:
    """The text in one line, without control characters, which names from files may contain."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


class LayoutoptError(Exception):
    """The base of every error that layoutopt raises.

    Args:
        what: the fault, without a full stop.
        where: the name of the node, tensor or file.
        hint: the remedy.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what, self.where, self.hint = _line(what), _line(where), _line(hint)
        super().__init__(self.what)

    def __str__(self) -> str:
        prefix = f"{self.where}: " if self.where else ""
        advice = f"; {self.hint}" if self.hint else ""
        return f"{prefix}{self.what}{advice}"


class ArgumentError(LayoutoptError, ValueError):
    """An argument of a function has a wrong type or an invalid value."""

    exit_code = 2


class DimensionError(LayoutoptError, ValueError):
    """There is no such symbolic dimension, or no such size."""

    exit_code = 2


class InputError(LayoutoptError, ValueError):
    """The given inputs do not match the inputs of the model, or the file contains no inputs."""

    exit_code = 2


class ModelError(LayoutoptError):
    """The model cannot be read, or is not a valid model."""

    exit_code = 3


class TargetError(LayoutoptError):
    """There is no such target, or its description is malformed."""

    exit_code = 4


class FormatError(LayoutoptError, ValueError):
    """There is no such format, or it does not fit the tensor."""

    exit_code = 5


class PinError(LayoutoptError):
    """No plan can satisfy a pinned format."""

    exit_code = 6


class VerificationError(LayoutoptError):
    """The outputs of the rewritten model differ from those of the original.

    Attributes:
        tensors: the tensors of the original that are computed in the segments that differ; empty if these are unknown.
    """

    exit_code = 7
    tensors: frozenset[str] = frozenset()


class OutputError(LayoutoptError):
    """The result cannot be written."""

    exit_code = 8


class UnverifiedError(LayoutoptError):
    """The rewritten model could not be compared with the original."""

    exit_code = 11


class ExtensionError(LayoutoptError):
    """An extension (an entry point or a library of kernels) cannot be used."""

    exit_code = 12


class CertificateError(LayoutoptError):
    """The certificate does not prove that the result computes the original."""

    exit_code = 15


class InvariantError(LayoutoptError):
    """A pass broke an invariant of the graph, or a lower bound exceeds its plan."""

    exit_code = 70
