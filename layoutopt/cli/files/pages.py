"""The pages of `optimize` and `inspect`."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from layoutopt.cli.files.outputs import TextOutput
from layoutopt.cli.rendering.optimize import summary_texts
from layoutopt.driver.arguments import cost_model_of, runtime_and_dialect
from layoutopt.driver.result import Result
from layoutopt.files import FileKind
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes
from layoutopt.passes.base import Moment, Pass, Watch
from layoutopt.report.schema import Report

if TYPE_CHECKING:  # jinja2 may be missing
    from layoutopt.page import OriginalGraph


def require_pages() -> None:
    """Check that the library for pages is installed, before a plan is made.

    Raises:
        LayoutoptError: the library of the extra `layoutopt[html]` is missing.
    """
    import_module("layoutopt.page")


def page_text(original: "OriginalGraph", graph: Graph, report: Report, *, is_plan: bool = False) -> str:
    """The page of a planned graph, with the rows of the printed summary; `is_plan` if the run only planned."""
    from layoutopt.page import page_html

    return page_html(report, original.graph, original.planned(graph, report), summary_texts(report), is_plan=is_plan)


class PageOptions:
    """The option `--html` of `optimize`.

    Args:
        html: the path of the page; None for no page.
        target: the target's name, or several names.
        runtime: the runtime's name; None for that of the target.
        dialect: the dialect's name; None for that of the runtime.

    Raises:
        LayoutoptError: the library of the extra `layoutopt[html]` is missing.
        ArgumentError, TargetError: there is no such target, runtime or dialect.
    """

    def __init__(self, html: Path | None, target: str, runtime: str | None, dialect: str | None) -> None:
        self._original = None if html is None else _recorder(target, runtime, dialect)
        self.outputs: list[TextOutput] = []
        if html is not None:
            self.outputs.append(TextOutput("--html", html, FileKind.PAGE, self._page))

    def _page(self, result: Result) -> str:
        assert self._original is not None
        return page_text(self._original, result.graph, result.report)

    @property
    def sizes_found(self) -> Callable[[Sizes], None] | None:
        """The callback for the sizes that the model is planned for; None without a page."""
        return self._original.set_sizes if self._original is not None else None

    def watching(self, watch: Watch) -> Watch:
        """A pass callback that also records the graph before the first pass, if a page is written."""
        original = self._original
        if original is None:
            return watch

        def both(moment: Moment, current: Pass, graph: Graph) -> None:
            original(moment, current, graph)
            watch(moment, current, graph)

        return both


def _recorder(target: str, runtime: str | None, dialect: str | None) -> "OriginalGraph":
    from layoutopt.page import OriginalGraph

    hardware = cost_model_of(target)
    return OriginalGraph(hardware, runtime_and_dialect(runtime, dialect, hardware)[0])


__all__ = ["PageOptions", "page_text", "require_pages"]
