"""Where `--json FILE` goes: a file that is found to be writable before the work begins, stdout, or nowhere."""

from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.files import Staged
from layoutopt.cli.terminal import show_text

_STDOUT = Path("-")


class Record(AbstractContextManager["Record"]):
    """What a command has found, for machines.

    Args:
        path: the file, `-` for stdout in place of what people read, or None.
        sources: the files that are read.

    Raises:
        UsageError: it is one of the sources.
        OutputError: on entering, it cannot be written.
    """

    def __init__(self, path: Path | None, *sources: Path) -> None:
        """Refuse what cannot be meant."""
        self.is_printed = path == _STDOUT
        self._path = None if self.is_printed else path
        self._staged: Staged | None = None
        if self._path is not None and self._path.resolve() in [source.resolve() for source in sources]:
            raise UsageError("that is a model", where=f"--json {path}", hint="name another file")

    def __enter__(self) -> "Record":
        """Try whether it can be written."""
        self._staged = Staged(self._path) if self._path is not None else None
        return self

    def write(self, content: str) -> None:
        """Write it.

        Raises:
            OutputError: it cannot be written.
        """
        if self.is_printed:
            show_text(content)
        if self._staged is not None:
            self._staged.write(content)
            self._staged.commit()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove what did not come to be."""
        if self._staged is not None:
            self._staged.close()
