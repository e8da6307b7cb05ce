"""Markdown as GitHub reads it, rewritten for Python-Markdown, which mkdocs uses.

Python-Markdown needs an empty line before a list, and four spaces per level of a list; GitHub needs neither. In code in tables
GitHub reads an escaped bar as a bar, Python-Markdown reads a bar as one. Links to files outside of the site become
the name of the file, since the address of a repository is not known.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import normpath

from mkdocs.exceptions import PluginError

_ITEM = re.compile(r"^( *)([-*]|\d+\.) ")
_FENCE = re.compile(r"^ *```")
_CODE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def for_python_markdown(text: str) -> str:
    """The page with lists and tables that Python-Markdown reads as GitHub does."""
    return "\n".join(_lines(text.splitlines())) + "\n"


def _lines(lines: list[str]) -> Iterator[str]:
    is_code = is_list = has_paragraphs = False
    previous = ""
    for line in lines:
        if _FENCE.match(line):
            is_code = not is_code
        item = None if is_code else _ITEM.match(line)
        if item and previous.strip() and (has_paragraphs or not is_list):
            yield ""
        is_list = bool(item) or (is_list and (is_code or not line.strip() or line.startswith("  ")))
        has_paragraphs = is_list and not item and (has_paragraphs or not line.strip())
        if not is_code and line.lstrip().startswith("|"):
            line = _CODE.sub(lambda code: code[0].replace("\\|", "|"), line)
        indentation = len(line) - len(line.lstrip(" "))
        yield " " * indentation + line if is_list else line
        previous = line


def with_links(text: str, page: str, root: Path) -> str:
    """The page with links within the site.

    Args:
        text: the Markdown.
        page: the path of the page's file, relative to the checkout.
        root: the checkout.

    Returns:
        The text, in which links to pages in docs/ are relative to docs/, and links to other files are names.
    """

    def link(match: re.Match[str]) -> str:
        words, path, anchor = match[1], match[2], match[3] or ""
        if "://" in path:
            return match[0]
        target = normpath(f"{Path(page).parent}/{path}")
        if not target.startswith("docs/"):
            if not (root / target).exists():
                raise PluginError(f"{page}: links to {path}, which does not exist")
            return f"{words} (`{target}` in the checkout)" if target not in words else words
        return f"[{words}]({path if page.startswith('docs/') else target.removeprefix('docs/')}{anchor})"

    parts = re.split(r"(^ *```.*?^ *```$)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if index % 2 else _LINK.sub(link, part) for index, part in enumerate(parts))
