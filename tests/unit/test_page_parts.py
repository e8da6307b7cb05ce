"""Parts of the page: groups, data, vendored libraries, and node data for Model Explorer."""

import hashlib
import json
from collections.abc import Iterator

import pytest
from html_pages import residual_network

from layoutopt.page.document import page_data
from layoutopt.page.graphs import PageGraph
from layoutopt.page.libraries import FOLDER, libraries
from layoutopt.page.tree import Group, group_tree
from layoutopt.report.printable import printable


def groups(group: Group) -> Iterator[Group]:
    yield group
    for child in group.children:
        if isinstance(child, Group):
            yield from groups(child)


def assert_partition(tree: Group, graph: PageGraph) -> None:
    """Every node is in the tree once, in topological order, so every group is a contiguous run."""
    assert list(tree.nodes()) == list(range(len(graph.nodes)))
    assert all(len(group.children) > 1 for group in groups(tree))
    assert max(len(group.children) for group in groups(tree)) <= 64


def test_a_graph_without_modules_is_cut_into_parts() -> None:
    many = residual_network(700)
    tree = group_tree(many)
    assert_partition(tree, many)
    assert {group.kind for group in groups(tree)} == {"graph", "part"}


def test_texts_are_printable() -> None:
    text = "".join(map(chr, (*range(0x3000), *range(0xD7F0, 0xE010), *range(0xFFF0, 0x10010))))
    assert printable(text).isprintable() and len(printable(text)) == len(text)
    assert printable("x\u00e9\u4e2d") == "x\u00e9\u4e2d"


def test_the_data_refers_to_nodes_and_texts_that_exist() -> None:
    graph = residual_network(70)
    data = json.loads(json.dumps(page_data({"before": graph, "after": graph}, {})))
    for side in data["sides"].values():
        numbers = [number for edge in side["edges"] for number in edge[:2]]
        assert max(numbers) < len(side["nodes"]) == len(graph.nodes)
        assert side["mates"] == list(range(len(graph.nodes)))
        assert all(0 <= index < len(data["texts"]) for node in side["nodes"] for index in (node[1], node[2], node[8]))


@pytest.mark.parametrize("library", libraries(), ids=lambda each: each["name"])
def test_a_library_is_the_one_that_was_published(library: dict[str, str]) -> None:
    assert hashlib.sha256((FOLDER / library["file"]).read_bytes()).hexdigest() == library["sha256"]
    assert library["version"] in library["source"]
    assert "opyright" in library["licence_text"]
    assert not [part for part in ("</script", "<!--", "\r", "sourceMappingURL") if part in library["script"]]
