"""The page in headless Chromium: it opens without errors and requests, and search, clicks and views work.

`pip install 'layoutopt[browser]'`, then `playwright install chromium` or a Chromium of the system; `pytest -m browser`.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from command_line import convolutions
from html_pages import residual_network

import layoutopt
from layoutopt.cli import main
from layoutopt.page import page_html

pytestmark = pytest.mark.browser
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is missing: layoutopt[browser]")

SYSTEM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ROOT = [] if sys.platform == "win32" or os.geteuid() else ["--no-sandbox"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        try:
            found = running.chromium.launch(executable_path=SYSTEM, args=ROOT)
        except playwright.Error as error:
            pytest.skip(f"no Chromium starts: {str(error).splitlines()[0]}")
        yield found
        found.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Any]:
    """A function that opens a page; at the end of the test there are no errors and no requests."""
    problems: list[str] = []
    pages = []

    def open_page(path: Path, width: int = 1400) -> Any:
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.on(
            "console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: problems.append(request.url) if request.url != path.as_uri() else None)
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert problems == []


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a model with layout conversions, one of whose names would be code."""
    folder = tmp_path_factory.mktemp("page")
    model = convolutions()
    model.graph.node[4].name = "</script><script>document.title = 'run'</script>"
    onnx.save(model, folder / "model.onnx")
    command = ("optimize", str(folder / "model.onnx"), "--html", str(folder / "p.html"), "-t", "ascend-910b", "-q")
    assert main(command) == 0
    return folder / "p.html"


def test_search_finds_and_a_click_explains(opened: Any, small: Path) -> None:
    page = opened(small)
    page.fill("#search", "tanh")
    assert "Tanh" in page.locator("#found li").first.inner_text()
    page.keyboard.press("Enter")
    assert page.locator("#details h3").inner_text() == "Tanh"
    assert page.locator("#after .selected").count() == 1 and page.locator("#before .mate").count() == 1
    page.click("#expand")
    page.locator("#after .node.cast").first.click()
    assert page.locator("#details h3").inner_text() == "Layout conversion"
    assert re.search("produces .* requires", page.locator("#details .why").inner_text())
    page.locator("#remaining tr[data-node]").first.click()
    assert page.locator("#details .why").inner_text() == page.locator("#remaining .reason").first.inner_text()
    assert "run" not in page.title()


def test_before_and_after(opened: Any, small: Path) -> None:
    page = opened(small)
    assert page.locator("#before").is_visible() and page.locator("#after").is_visible()
    for shown, hidden in (("before", "after"), ("after", "before")):
        page.click(f"[data-show={shown}]")
        assert page.locator(f"#{shown}").is_visible() and not page.locator(f"#{hidden}").is_visible()
        assert page.locator(f"#{shown} .node").count() > 3
    narrow = opened(small, 800)
    assert narrow.locator("#after").is_visible() and not narrow.locator("#before").is_visible()


def test_legend_highlights_and_colours_change(opened: Any, small: Path) -> None:
    page = opened(small)
    page.click("#legend tr[data-kind=cast]")
    assert page.locator("#after .node.cast:not(.dim)").count() or page.locator("#after .group:not(.dim)").count()
    assert page.locator("#after .node.dim").count()
    backgrounds = []
    for _ in range(3):
        backgrounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        page.click("#theme")
    assert len(set(backgrounds)) == 2
    page.select_option("#colours", "time")
    assert page.locator("svg.heat").count() == 2


def test_groups_open_and_close(opened: Any, tmp_path: Path) -> None:
    path = generated(tmp_path, 700)
    page = opened(path)
    page.click("#collapse")
    groups = page.locator("#after .group.part")
    count = groups.count()
    assert count > 3 and page.locator("#after .group.open").count() == 0
    groups.first.locator(".button").click()
    assert page.locator("#after .group.open").count() == 1
    assert page.locator("#after .node.op").count() > 3
    page.locator("#after .group.open > .button").click()
    assert groups.count() == count and page.locator("#after .group.open").count() == 0


def generated(folder: Path, ops: int) -> Path:
    """The page of a generated graph, with the report of a small model."""
    report = layoutopt.optimize(convolutions(), "gpu-hopper", verify=False).report
    graph = residual_network(ops)
    (folder / "large.html").write_text(page_html(report, graph, graph), "utf-8")
    return folder / "large.html"
