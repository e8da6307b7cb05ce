"""The JavaScript libraries that the page contains, with version, licence and SHA-256: `vendored/libraries.toml`."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_FOLDER = files("layoutopt.page") / "vendored"
_SOURCE_MAP = re.compile(r"^//# sourceMappingURL=.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Library:
    """A library in one file.

    Attributes:
        name: its name on the registry.
        version: its version.
        file: the file in `vendored`.
        source: the address of the package that has the file.
        path: the path of the file in the package.
        sha256: the SHA-256 of the file, as hex digits.
        licence: the identifier of its licence.
        licence_file: the file with the text of the licence.
        use: its purpose in the page.
    """

    name: str
    version: str
    file: str
    source: str
    path: str
    sha256: str
    licence: str
    licence_file: str
    use: str

    @property
    def content(self) -> bytes:
        """The file as it was published."""
        return (_FOLDER / self.file).read_bytes()

    @property
    def licence_text(self) -> str:
        """The text of the licence."""
        return (_FOLDER / self.licence_file).read_text("utf-8")

    @property
    def script(self) -> str:
        """The content without the address of a source map, which a browser might request."""
        return _SOURCE_MAP.sub("", self.content.decode("utf-8"))


@cache
def libraries() -> tuple[Library, ...]:
    """All libraries, in the order in which the page runs them."""
    rows = tomllib.loads((_FOLDER / "libraries.toml").read_text("utf-8"))["library"]
    return tuple(Library(**row) for row in rows)
