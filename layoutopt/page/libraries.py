"""The JavaScript libraries that the page contains, with version, licence and SHA-256: `vendored/libraries.toml`."""

import re
import tomllib
from functools import cache
from importlib.resources import files

FOLDER = files("layoutopt.page") / "vendored"
_SOURCE_MAP = re.compile(r"^//# sourceMappingURL=.*$", re.MULTILINE)


@cache
def libraries() -> tuple[dict[str, str], ...]:
    """All libraries, in the order in which the page runs them: the rows of the table with the texts of their files.

    `script` is the content without the address of a source map, which a browser might request.
    """
    rows = tomllib.loads((FOLDER / "libraries.toml").read_text("utf-8"))["library"]
    return tuple(
        {
            **row,
            "script": _SOURCE_MAP.sub("", (FOLDER / row["file"]).read_text("utf-8")),
            "licence_text": (FOLDER / row["licence_file"]).read_text("utf-8"),
        }
        for row in rows
    )
