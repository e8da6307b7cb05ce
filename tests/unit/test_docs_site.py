"""Every page has a place in the navigation of the site, and troubleshooting has every error class and exit code."""

import re
from pathlib import Path

import layoutopt
from layoutopt.cli.exit_codes import exit_codes
from layoutopt.errors import LayoutoptError

CHECKOUT = Path(__file__).parents[2]
DOCS = CHECKOUT / "docs"
_PAGE = re.compile(r"^ +- .+: (\S+\.md)$", re.MULTILINE)
_GENERATED = re.compile(r'^    "(\S+\.md)": ', re.MULTILINE)


def test_every_page_is_in_the_navigation() -> None:
    """If not: add the page to `nav` in mkdocs.yml."""
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    generated = set(_GENERATED.findall((DOCS / "generate/hook.py").read_text()))
    assert generated
    navigation = _PAGE.findall((CHECKOUT / "mkdocs.yml").read_text())
    assert sorted(navigation) == sorted({*pages, *generated, "index.md"})


def test_troubleshooting_has_every_error() -> None:
    page = (DOCS / "troubleshooting.md").read_text()
    assert all(f"\n| {code} | " in page for code in exit_codes())
    classes = {name for name in layoutopt.__all__ if name.endswith("Error")}
    assert LayoutoptError.__name__ in classes
    assert not [name for name in classes if f"`{name}`" not in page]
