"""Every link and every file that the documentation names exists."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
PAGES = [*sorted(CHECKOUT.glob("*.md")), *sorted((CHECKOUT / "docs").rglob("*.md"))]
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
_FILE = re.compile(r"`([\w./]+/|[\w./]+\.(?:py|toml|md))`")
_CODE = re.compile(r"```.*?```", re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    titles = (re.sub(r"[^\w\- ]", "", title.lower()) for title in _HEADING.findall(page.read_text()))
    return {title.strip().replace(" ", "-") for title in titles}


def broken_links(page: Path) -> Iterator[str]:
    for link in _LINK.findall(_CODE.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if "://" not in link and (not target.exists() or (anchor and anchor not in anchors(target))):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert not list(broken_links(page))


def test_files_that_the_design_names_exist() -> None:
    """Named files exist in the checkout, in `layoutopt/` or in `docs/`; the page leaves out these roots."""
    roots = (CHECKOUT, CHECKOUT / "layoutopt", CHECKOUT / "docs")
    named = set(_FILE.findall((CHECKOUT / "docs" / "design.md").read_text()))
    assert named
    assert not [path for path in sorted(named) if not any((root / path).exists() for root in roots)]


def test_the_figure_of_the_layers_is_up_to_date() -> None:
    contract = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    layers = [layer.replace("layoutopt.", "") for layer in contract["layers"]]
    figure = (CHECKOUT / "docs" / "design.md").read_text().split("## Layers")[1].split("```")[1]
    assert [re.split(r"\s{2,}", line.strip())[0] for line in figure.strip().splitlines()] == layers
