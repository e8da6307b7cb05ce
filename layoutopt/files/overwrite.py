"""The rule for every file that layoutopt writes: which existing file it may replace.

Replaced are only an empty file and the result of the same sources, which has the same mark; of a model also a copy of its
source. The source itself is replaced where it is named as the output model. Never replaced are

- another file that the command reads,
- external data of a file that the command reads, or of the existing output model.

Every other file is replaced only with `force`. Files are compared by `os.path.samefile`, so that symbolic links, hard
links and names that differ in case do not matter.

A mark contains the command, the kind and a hash of the sources: their paths from the folder of the file. It is stored
in the metadata at the end of a model, in the first key of each JSON object, and in a comment at the end of any other text.
"""

import filecmp
import mmap
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from hashlib import blake2b
from pathlib import Path

from layoutopt.errors import OutputError
from layoutopt.files.staging import Staging, check_writable, output_errors, path_text
from layoutopt.record import Record

_LARGEST = 1 << 31  # bytes of a protobuf message
_FIRST_BYTES = b"\x08\x12\x1a\x22\x28\x32\x3a\x42\x72"  # the tags of the fields of a ModelProto
_LOCATION = re.compile(rb"\x0a\x08location\x12([\x00-\x7f]|[\x80-\xff][\x00-\x7f])", re.DOTALL)
"""The key of an entry of external data, as protobuf writes it, and the length of its value."""


def external_locations(path: Path) -> list[str]:
    """The locations of external data in an ONNX file, without duplicates; none if the file is not an ONNX model."""
    content, locations = _content(path), dict[str, None]()
    if len(content) <= _LARGEST and content[:1] in _FIRST_BYTES:
        for entry in _LOCATION.finditer(content):
            size = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(entry[1]))
            locations[content[entry.end() : entry.end() + size].decode("utf-8", "surrogateescape")] = None
    return list(locations)


def _content(path: Path) -> mmap.mmap | bytes:
    """The mapped content of a file; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):  # ValueError for an empty file
        return b""


def external_files(path: Path) -> list[Path]:
    """The existing files of external data of an ONNX file; empty if it is not an ONNX model.

    Locations are relative to the folder of the path and, for a symbolic link, to the folder of its target.
    """
    folders = {os.path.realpath(each): each for each in (Path(os.path.realpath(path)).parent, path.parent)}.values()
    return [folder / each for each in external_locations(path) for folder in folders if os.path.isfile(folder / each)]


MARK = "layoutopt_file"
"""The key of the mark."""

_MARKED = re.compile(rf"{MARK}\W{{1,5}}([a-z _]+ [0-9a-f]{{16}})".encode())
_TAIL = 200  # bytes; the mark of a model is at the end of the file
_RECORD = re.compile(rb"^[^\s\]}].*", re.MULTILINE)
_COMMENT = re.compile(rf"^(?:<!--|#) {MARK}.*".encode(), re.MULTILINE)
_BASELINE = re.compile(rb'\{\s*"layoutopt_baseline"')
"""The beginning of a file that a command continues, whatever its sources are; it has no mark."""


class FileKind(Enum):
    """The kinds of output files; the values are their names in messages."""

    MODEL = "a model"
    WEIGHTS = "external data"
    REPORT = "a JSON record"
    CERTIFICATE = "a certificate"
    PAGE = "a page"
    TARGET = "a target file"
    GRAPH_TEXT = "a dumped graph"
    JUNIT = "a JUnit report"
    BASELINE = "a baseline of ci"


_JSON = frozenset({FileKind.REPORT, FileKind.CERTIFICATE})
_XML = frozenset({FileKind.PAGE, FileKind.JUNIT})


def mark_of(kind: FileKind, command: str, sources: Sequence[Path], folder: Path) -> str:
    """The mark of a file in a folder: the same if command and sources are moved together with it."""
    base = os.path.realpath(folder)
    paths = b"\0".join(os.fsencode(os.path.relpath(os.path.realpath(each), base)) for each in sources)
    return f"{command} {kind.name.lower()} {blake2b(paths, digest_size=8).hexdigest()}"


def marked(content: str, kind: FileKind, mark: str) -> str:
    """The content of a text file with its mark."""
    if kind is FileKind.BASELINE:
        return content
    if kind in _JSON:
        return f'{{"{MARK}": "{mark}",{content[1:]}'
    begin, end = ("<!--", " -->") if kind in _XML else ("#", "")
    return f"{content.rstrip()}\n{begin} {MARK}: {mark}{end}\n"


def mark_of_model(path: Path) -> str:
    """The mark at the end of a model file; empty if it has none."""
    return b"".join(_MARKED.findall(_content(path)[-_TAIL:])[-1:]).decode()


def has_kind(path: Path, kind: FileKind, marks: Sequence[str]) -> bool:
    """Whether an existing text file is a baseline, or all its records have marks, all different and among `marks`."""
    content = _content(path)
    if kind is FileKind.BASELINE:
        return _BASELINE.match(content) is not None
    lines = (_RECORD if content[:1] == b"{" else _COMMENT).findall(content)
    found = [mark.decode() for line in lines for mark in _MARKED.findall(line) or [b""]]
    return bool(found) and len({*found}) == len(found) and {*found} <= {*marks}


class Overwrite(Record):
    """The rule for the files of one command.

    Attributes:
        sources: the models from which the files are made.
        output: the output model, if the command line names it.
        force: whether files are replaced that are no result of the same sources.
        reads: other files that the command reads.
        command: the name of the command.
    """

    sources: tuple[Path, ...] = ()
    output: Path | None = None
    force: bool = False
    reads: tuple[Path, ...] = ()
    command: str = "optimize"

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
            if not self.force and not self._is_predecessor(path, kind):
                reason = _description(path, kind)
                raise OutputError(reason, where=path_text(path), hint="name another file, or replace it with --force")

    def mark(self, path: Path, kind: FileKind, sources: Sequence[Path] | None = None) -> str:
        """The mark of a text file, of some of the sources if they are given."""
        return mark_of(kind, self.command, self.sources if sources is None else sources, path.parent)

    def _protected(self, path: Path, kind: FileKind) -> str:
        """The reason why a file is never replaced; empty if it may be."""
        is_output = kind is FileKind.MODEL and self.output is not None and is_same_file(path, self.output)
        reads = self.reads if is_output else (*self.sources, *self.reads)
        if any(is_same_file(path, each) for each in reads):
            return "is read by this command"
        users = [*self.sources, *self.reads, *([self.output] if self.output is not None else [])]
        user = next((each for each in users if _refers_to(each, path)), None)
        return f"holds weights of {path_text(user)}" if user is not None else ""

    def _is_predecessor(self, path: Path, kind: FileKind) -> bool:
        """Whether an existing file is empty, or the result of the same sources."""
        if path.stat().st_size == 0:
            return True
        if kind is FileKind.MODEL:
            return any(is_same_file(path, each) or is_result(path, each) for each in self.sources)
        each_alone = (self.mark(path, kind, [each]) for each in self.sources)
        return has_kind(path, kind, [self.mark(path, kind), *each_alone])


def _description(path: Path, kind: FileKind) -> str:
    """Why an existing file is replaced only with `force`."""
    if user := next(models_with_weights(path), None):
        return f"holds weights of {path_text(user)}"
    return f"exists and is not {kind.value} that layoutopt wrote from the same source"


def result_mark(source: Path, folder: Path) -> str:
    """The mark of the result of a model in a folder, by whichever command."""
    return mark_of(FileKind.MODEL, "result", [source], folder)


def is_result(path: Path, source: Path) -> bool:
    """Whether an existing file is the result of a model: it has the mark for it, or is a copy of the model."""
    if mark_of_model(path) == result_mark(source, path.parent):
        return True
    try:
        return filecmp.cmp(path, source, shallow=False)
    except OSError:
        return False


def conflict(placed: Iterable[tuple[Path, Path]], *, may_replace_source: bool) -> tuple[Path, str] | None:
    """The first result of a batch that has the file of another result or of a model that is read, and the fault in words.

    Args:
        placed: the models with the files of their results.
        may_replace_source: whether a result may replace its own model.
    """
    pairs = list(placed)
    models = {_identity(model): model for model, _ in pairs}
    results: dict[object, Path] = {}
    for model, result in pairs:
        identity = _identity(result)
        other = results.setdefault(identity, model)
        if other is not model:
            return result, f"is the result of {path_text(other)} and of {path_text(model)}"
        if identity in models and not (may_replace_source and identity == _identity(model)):
            return result, f"is the result of {path_text(model)}, and a model that is read"
    return None


def _identity(path: Path) -> object:
    """A value that is equal for all paths of one file; for a missing file its path without case."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        folder, name = os.path.split(os.path.abspath(path))
        return os.path.realpath(folder), name.casefold()
    return found.st_dev, found.st_ino


def is_same_file(first: Path, second: Path) -> bool:
    """Whether two paths lead to one file; if neither file exists, whether their names are equal but for case."""
    return _identity(first) == _identity(second)


def _refers_to(model: Path, path: Path) -> bool:
    return any(is_same_file(path, each) for each in external_files(model))


def models_with_weights(path: Path) -> Iterator[Path]:
    """The ONNX models in the folder of a file whose external data it is."""
    folder = path.parent
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_file() and _refers_to(folder / entry.name, path):
            yield folder / entry.name


@contextmanager
def staged_text(
    path: Path, content: str, kind: FileKind, overwrite: Overwrite, sources: Sequence[Path] | None = None
) -> Iterator[None]:
    """Write a text file with its mark under a temporary name, and rename it when the context ends without an error.

    Args:
        path: the file.
        content: its content without the mark.
        kind: its kind.
        overwrite: the rule of the command.
        sources: the sources of the file, if they are not all sources of the command.

    Raises:
        OutputError: it cannot be written, or must not replace the existing file.
    """
    overwrite.check(path, kind)
    with Staging(path.parent) as staging:
        with output_errors(path):
            file = staging.open()
            file.write(marked(content, kind, overwrite.mark(path, kind, sources)).encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        yield
        with output_errors(path):
            staging.commit((file, path))


def write_text(
    path: Path, content: str, kind: FileKind, overwrite: Overwrite, sources: Sequence[Path] | None = None
) -> None:
    """Write a text file atomically; the arguments are those of `staged_text`.

    Raises:
        OutputError: it cannot be written, or must not replace the existing file.
    """
    with staged_text(path, content, kind, overwrite, sources):
        pass
