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
_COMMANDS = re.compile(r"```sh\n(.*?)```", re.DOTALL)
_SCRIPT = re.compile(r"python ((?:examples|benchmarks|docs)/[\w/]+\.py)")


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


def glossary() -> list[list[str]]:
    """The rows of all tables: term, name in code, definition, nearest terms elsewhere."""
    rows = [line for line in (CHECKOUT / "docs" / "glossary.md").read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row[1:-1].split("|")] for row in rows if not row.startswith("| term |")]


def test_every_term_of_the_glossary_has_one_definition() -> None:
    terms = glossary()
    assert terms and all(len(row) == 4 and all(row[:3]) for row in terms)
    names = [row[0] for row in terms]
    assert len(names) == len(set(names)), "a term has two definitions"


def test_names_of_the_glossary_are_in_the_code() -> None:
    sources = [path for folder in ("layoutopt", "passes", "cost_models") for path in (CHECKOUT / folder).rglob("*.py")]
    words = {word for path in sources for word in re.findall(r"\w+", path.read_text())}
    names = [name for _, in_code, *_ in glossary() for name in re.findall(r"`([\w.]+)", in_code)]
    assert names
    assert not [name for name in names if not set(name.split(".")) <= words]


def test_commands_of_the_readme_run_scripts_that_exist() -> None:
    """CI runs the two commands themselves."""
    (first, second), *_ = (block.splitlines() for block in _COMMANDS.findall((CHECKOUT / "README.md").read_text()))
    assert first.startswith("pip install . && ") and second == "pip install '.[test]' && pytest -n 2"
    scripts = [each for page in PAGES for each in _SCRIPT.findall(page.read_text())]
    assert scripts
    assert not [script for script in scripts if not (CHECKOUT / script).exists()]
