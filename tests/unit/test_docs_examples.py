"""The Python sessions in the documentation give what they show."""

import doctest
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
_SESSION = re.compile(r"```pycon\n(.*?)```", re.DOTALL)
PAGES = [page for page in sorted(DOCS.glob("*.md")) if _SESSION.search(page.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sessions(page: Path) -> None:
    session = "\n".join(_SESSION.findall(page.read_text()))
    test = doctest.DocTestParser().get_doctest(session, {}, page.name, str(page), 0)
    said: list[str] = []
    doctest.DocTestRunner().run(test, out=said.append)
    assert not said, "".join(said)
