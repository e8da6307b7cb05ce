"""Parts of the page: groups, data, vendored libraries, and node data for Model Explorer."""

import hashlib
import json
from collections.abc import Iterator

import pytest
from html_pages import BLOCK, residual_network
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.ir.types import Op
from layoutopt.page.document import page_data
from layoutopt.page.graphs import PageGraph
from layoutopt.page.libraries import Library, libraries
from layoutopt.page.tree import Group, group_tree, longest_repeat
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
    assert max(len(group.children) for group in groups(tree) if group.kind != "repeat") <= 64


@pytest.mark.parametrize("ops", [3, 70, 700])
def test_repeated_blocks_are_one_group(ops: int) -> None:
    graph = residual_network(ops)
    tree = group_tree(graph)
    assert_partition(tree, graph)
    repeats = [group for group in groups(tree) if group.kind == "repeat"]
    assert [len(group.children) for group in repeats] == ([ops // len(BLOCK)] if ops > len(BLOCK) else [])
    for group in repeats:
        starts = [next(child.nodes()) for child in group.children if isinstance(child, Group)]
        assert all((start - 1) % len(BLOCK) == 0 for start in starts), "a block begins where one tensor is passed on"


def test_a_graph_without_repeats_is_cut_into_parts() -> None:
    node = residual_network(1).nodes[1]
    many = PageGraph([node._replace(op_type=f"Op{number}") for number in range(500)], [Op("Op", (), ())] * 500)
    tree = group_tree(many)
    assert_partition(tree, many)
    assert {group.kind for group in groups(tree)} == {"graph", "part"}


@given(st.lists(st.integers(0, 3), min_size=4, max_size=12), st.integers(3, 5), st.lists(st.integers(4, 6), max_size=5))
def test_a_repeat_covers_as_much_as_the_one_that_is_there(block: list[int], count: int, before: list[int]) -> None:
    tokens = [*before, *block * count]
    found = longest_repeat(tokens, [1] * len(tokens), [1] * len(tokens))
    assert found is not None and found.stop - found.start >= len(block) * count
    blocks = [tokens[start : start + found.step] for start in found]
    assert all(each == blocks[0] for each in blocks)


def test_texts_are_printable() -> None:
    text = "".join(map(chr, (*range(0x3000), *range(0xD7F0, 0xE010), *range(0xFFF0, 0x10010))))
    assert printable(text).isprintable() and len(printable(text)) == len(text)
    assert printable("x\u00e9\u4e2d") == "x\u00e9\u4e2d"


def test_the_data_refers_to_nodes_and_texts_that_exist() -> None:
    graph = residual_network(70)
    data = json.loads(json.dumps(page_data(graph, graph, {})))
    for side in data["sides"].values():
        numbers = [number for edge in side["edges"] for number in edge[:2]]
        assert max(numbers) < len(side["nodes"]) == len(graph.nodes)
        assert side["mates"] == list(range(len(graph.nodes)))
        assert all(0 <= index < len(data["texts"]) for node in side["nodes"] for index in (node[1], node[2], node[8]))


@pytest.mark.parametrize("library", libraries(), ids=lambda each: each.name)
def test_a_library_is_the_one_that_was_published(library: Library) -> None:
    assert hashlib.sha256(library.content).hexdigest() == library.sha256
    assert library.version in library.source
    assert "opyright" in library.licence_text
    assert "</script" not in library.script and "<!--" not in library.script and "\r" not in library.script
