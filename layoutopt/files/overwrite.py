"""Overwrite rules for every file that layoutopt writes.

An existing file is replaced if it is a predecessor. For the output model that is an ONNX model or a file named `.onnx`, for
every other file one of the same kind that layoutopt wrote, which `kinds.is_predecessor` recognises by its content. Never
replaced are

- a file that the command reads, unless it is named as the output model,
- external data of a file that the command reads, or of the existing output model.

Only with `force` are replaced

- an existing file that is no predecessor,
- external data of another ONNX model in the same folder.

Files are compared by `os.path.samefile`, so that symbolic links, hard links and names that differ in case do not matter.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from layoutopt.errors import OutputError
from layoutopt.files.kinds import FileKind, is_predecessor, is_text_file
from layoutopt.files.onnx_file import external_files, is_onnx_file
from layoutopt.files.staging import Staging, check_writable, output_errors, path_text


@dataclass(frozen=True, slots=True)
class Overwrite:
    """The overwrite rules of one command.

    Attributes:
        sources: the files that the command reads.
        output: the output model, if the command writes one.
        force: whether files that are not predecessors may be replaced.
    """

    sources: tuple[Path, ...] = ()
    output: Path | None = None
    force: bool = False

    def check(self, path: Path, kind: FileKind) -> None:
        """Check that a file may be replaced and can be written.

        Raises:
            OutputError: the file must not be replaced, or cannot be written.
        """
        check_writable(path)
        if kind is not FileKind.MODEL and self.output is not None and is_same_file(path, self.output):
            raise OutputError("is the output model", where=path_text(path), hint="name another file")
        with output_errors(path):
            if not path.exists():
                return
            if reason := self._protected(path, kind):
                raise OutputError(reason, where=path_text(path), hint="name another file")
            if not self.force and (reason := _needs_force(path, kind)):
                raise OutputError(reason, where=path_text(path), hint="name another file, or replace it with --force")

    def check_append(self, path: Path) -> None:
        """Check that text may be appended to a file: a new file, or a text file that the command does not read.

        Raises:
            OutputError: text must not be appended, or the file cannot be written.
        """
        check_writable(path)
        with output_errors(path):
            if not path.exists():
                return
            if reason := self._protected(path, FileKind.REPORT):
                raise OutputError(reason, where=path_text(path), hint="name another file")
            if not is_text_file(path):
                raise OutputError("is not a text file", where=path_text(path), hint="name another file")

    def _protected(self, path: Path, kind: FileKind) -> str:
        """The reason why a file is never replaced; empty if it may be."""
        is_output = kind is FileKind.MODEL and self.output is not None and is_same_file(path, self.output)
        if not is_output and any(is_same_file(path, source) for source in self.sources):
            return "is read by this command"
        users = [*self.sources, *([self.output] if self.output is not None else [])]
        user = next((each for each in users if _refers_to(each, path)), None)
        return f"holds weights of {path_text(user)}" if user is not None else ""


def _needs_force(path: Path, kind: FileKind) -> str:
    """The reason why a file is replaced only with `force`; empty if it is a predecessor."""
    if is_predecessor(path, kind):
        return ""
    if user := next(models_with_weights(path), None):
        return f"holds weights of {path_text(user)}"
    if kind is FileKind.MODEL and path.suffix == ".onnx":
        return ""  # a damaged model
    return "is an ONNX model" if is_onnx_file(path) else f"exists and is not {kind.value}"


def is_same_file(first: Path, second: Path) -> bool:
    """Whether two paths lead to one file; if neither file exists, whether their names are equal but for case."""
    try:
        exist = os.path.exists(first), os.path.exists(second)
        return os.path.samefile(first, second) if all(exist) else not any(exist) and _folded(first) == _folded(second)
    except (OSError, ValueError):
        return False


def _folded(path: Path) -> tuple[str, str]:
    folder, name = directory_entry(path)
    return folder, name.casefold()


def directory_entry(path: Path) -> tuple[str, str]:
    """The folder and the name of a path; links in the folder's path are followed, a link at the end is not."""
    whole = Path(os.path.abspath(path))
    return os.path.realpath(whole.parent), whole.name


def _refers_to(model: Path, path: Path) -> bool:
    return any(is_same_file(path, each) for each in external_files(model))


def models_with_weights(path: Path) -> Iterator[Path]:
    """The ONNX models in the folder of a file whose external data it is."""
    folder = path.parent
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_file() and _refers_to(folder / entry.name, path):
            yield folder / entry.name


@contextmanager
def staged_text(path: Path, content: str, kind: FileKind, overwrite: Overwrite) -> Iterator[None]:
    """Write a text file under a temporary name, and rename it when the context ends without an error.

    Raises:
        OutputError: it cannot be written, or must not replace the existing file.
    """
    overwrite.check(path, kind)
    with Staging(path.parent) as staging:
        with output_errors(path):
            file = staging.open()
            file.write(content.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        yield
        with output_errors(path):
            staging.commit((file, path))


def append_text(path: Path, content: str, overwrite: Overwrite) -> None:
    """Append text to a file that another program reads and has created.

    Raises:
        OutputError: text must not be appended, or the file cannot be written.
    """
    overwrite.check_append(path)
    with output_errors(path), path.open("ab") as file:
        file.write(content.encode("utf-8"))


def write_text(path: Path, content: str, kind: FileKind, overwrite: Overwrite) -> None:
    """Write a text file atomically.

    Raises:
        OutputError: it cannot be written, or must not replace the existing file.
    """
    with staged_text(path, content, kind, overwrite):
        pass
