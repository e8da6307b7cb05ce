"""The code in the documentation runs, and its output is that in the documentation."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
DOCS = CHECKOUT / "docs"
EXTENDING = (DOCS / "extending.md").read_text()
_SESSION = re.compile(r"```pycon\n(.*?)```", re.DOTALL)
_FILE = re.compile(r"^`(examples/[^`]+)`:\n\n```\w+\n(.*?)^```", re.DOTALL | re.MULTILINE)
_PYTHON = re.compile(r"```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = [page for page in sorted(DOCS.glob("*.md")) if _SESSION.search(page.read_text())]
FILES = dict(_FILE.findall(EXTENDING))
PROGRAMS = [block for block in _PYTHON.findall(EXTENDING) if block not in FILES.values()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sessions(page: Path) -> None:
    session = "\n".join(_SESSION.findall(page.read_text()))
    test = doctest.DocTestParser().get_doctest(session, {}, page.name, str(page), 0)
    messages: list[str] = []
    doctest.DocTestRunner().run(test, out=messages.append)
    assert not messages, "".join(messages)


def test_files_are_printed_as_they_are() -> None:
    """The printed files are those of the example package, which `tests/e2e/test_plugin.py` runs."""
    assert {name: (CHECKOUT / name).read_text() for name in FILES} == FILES
    plugin = CHECKOUT / "examples/plugin"
    parts = [*plugin.glob("*.toml"), *plugin.glob("acme_npu/*.toml"), *plugin.glob("acme_npu/*.py")]
    assert {str(path.relative_to(CHECKOUT)) for path in parts if path.name != "__init__.py"} == FILES.keys()


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_run(program: str) -> None:
    """Each program of the documentation runs separately, with its own imports."""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
