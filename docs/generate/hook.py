"""The hook of mkdocs: generates the reference pages, and makes the home page of README.md."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from cli_page import cli_page
from github_markdown import for_python_markdown, with_links
from listing_pages import formats_page, operators_page, passes_page, runtimes_page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from python_pages import extensions_page, python_page
from report_page import report_page
from target_pages import targets_page

_CHECKOUT = Path(__file__).parents[2]
_PAGES = {
    "reference/python.md": python_page,
    "reference/extensions.md": extensions_page,
    "reference/cli.md": cli_page,
    "reference/report.md": report_page,
    "reference/targets.md": targets_page,
    "reference/formats.md": formats_page,
    "reference/operators.md": operators_page,
    "reference/runtimes.md": runtimes_page,
    "reference/passes.md": passes_page,
}
_package: list[Any] = []  # the folder of the package while the site is built


@event_priority(100)
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give mkdocstrings the package as one folder, as in a wheel: two of its parts are folders of the checkout's root."""
    folder = tempfile.TemporaryDirectory(prefix="layoutopt-docs-")
    _package.append(folder)
    package = Path(folder.name) / "layoutopt"
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(_CHECKOUT / "layoutopt", package, ignore=skipped)
    for part in ("passes", "cost_models"):
        shutil.copytree(_CHECKOUT / part, package / part, ignore=skipped)
    config.plugins["mkdocstrings"].config.handlers["python"]["paths"] = [folder.name]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the home page and the generated pages."""
    home = with_links((_CHECKOUT / "README.md").read_text(), "README.md", _CHECKOUT).replace(
        "](docs/images/", "](images/"
    )
    files.append(File.generated(config, "index.md", content=home))
    for path, page in _PAGES.items():
        files.append(File.generated(config, path, content=page()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite a page of docs/ from GitHub's Markdown to that of mkdocs."""
    if not page.file.generated_by:
        markdown = with_links(markdown, f"docs/{page.file.src_uri}", _CHECKOUT)
    return for_python_markdown(markdown) if "::: " not in markdown else markdown


def on_post_build(**_: Any) -> None:
    """Remove the folder of the package."""
    while _package:
        _package.pop().cleanup()
