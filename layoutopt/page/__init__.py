"""A run of `optimize` as a page: one HTML file that needs no network, with the graph before and after planning.

    original = OriginalGraph(hardware, runtime)
    result = optimize(..., watch=original, sizes_found=original.set_sizes)
    text = page_html(result.report, original.graph, original.planned(result.graph, result.report), summary)

jinja2 is installed by the extra `layoutopt[html]`; without it the import raises a LayoutoptError.
"""

from layoutopt.errors import LayoutoptError

try:
    from layoutopt.page.document import page_html
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("jinja2", "markupsafe"):
        raise
    raise LayoutoptError(
        "pages need the package jinja2", hint="install it with: pip install 'layoutopt[html]'"
    ) from error
from layoutopt.page.original import OriginalGraph

__all__ = ["OriginalGraph", "page_html"]
