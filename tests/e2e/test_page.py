"""The page of `optimize` and `inspect`: its numbers are those of the report, it loads nothing, and no name runs as code."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import control_flow_models
import onnx
import pytest
from command_line import PLANNED, Cli, convolutions
from html_pages import Page, residual_network

from layoutopt.page.document import page_data
from layoutopt.page.graphs import PageGraph
from layoutopt.page.libraries import FOLDER, libraries
from layoutopt.page.tree import Group, group_tree
from layoutopt.report.printable import printable

NAMES = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"quotes' & <!-- marks",
    "lines\u2028\u2029\n\x00\x1b[2J",
    "turned\u202earound \\u003c ]]> ${1}",
)


def page(path: Path) -> Page:
    return Page(path.read_text("utf-8"))


def optimized(cli: Cli, *options: str) -> tuple[str, dict[str, Any]]:
    done = cli("optimize", "model.onnx", *options, "-v", "--html", "p.html", "--json", "r.json")
    assert done.code == 0, done.err
    return done.out, json.loads(Path("r.json").read_text())


def test_the_page_has_the_numbers_of_summary_and_report(cli: Cli, model: str, tmp_path: Path) -> None:
    summary, report = optimized(cli, "--target", "ascend-910b")
    found = page(tmp_path / "p.html")
    counts = {row[1]: row[2:] for row in found.rows["legend"][1:]}
    printed = re.search(r"op outputs +(.*)", summary)
    formats = dict(reversed(each.split(" ", 1)) for each in printed[1].split(", "))
    assert {name: counts[name][1] for name in formats} == formats
    before, after = report["before"], report["after"]
    assert counts["layout conversions"] == [str(before["casts"]), str(after["casts"])]
    assert counts["Transposes that move bytes"] == [str(before["transposes"]), str(after["transposes"])]
    casts = report["casts"]
    assert casts
    rows = {(row[1], row[-1]) for row in found.rows["remaining"][1:]}
    assert rows >= {(cast["name"], cast["reason"]) for cast in casts}
    assert {cast["reason"] for cast in casts} <= found.names
    nodes = found.data["sides"]["after"]["nodes"]
    texts = found.data["texts"]
    seconds = {texts[node[1]]: node[6] for node in nodes}
    assert {op["name"]: float(f"{op['seconds']:.4g}") for op in report["ops"]}.items() <= seconds.items()
    shown = dict(line for line in found.rows[""] if len(line) == 2)
    assert {each["label"]: each["value"] for each in report["facts"]} == {
        name: shown[name].split(" (")[0] for name in shown
    }


def test_a_conversion_has_the_prices_of_its_alternatives(cli: Cli, model: str, tmp_path: Path) -> None:
    explained = json.loads(cli("explain", model, "--target", "ascend-310", "--json").out)
    for command in ("inspect", "optimize"):
        assert cli(command, model, "--target", "ascend-310", "--html", "p.html", "--force").code == 0
        data = page(tmp_path / "p.html").data
        shown = {data["texts"][line] for lines in data["prices"].values() for line in lines}
        for each in explained["conversions"]:
            for text in (
                *(other["condition"] for other in each["alternatives"]),
                *(by["what"] for by in each["remedies"]),
            ):
                assert any(text in line for line in shown)
        kinds = {data["texts"][data["sides"]["after"]["nodes"][int(number)][0]] for number in data["prices"]}
        assert explained["conversions"] and kinds <= {"cast", "move"}


def test_the_page_loads_nothing_and_permits_only_its_scripts(cli: Cli, model: str, tmp_path: Path) -> None:
    optimized(cli, *PLANNED)
    found = page(tmp_path / "p.html")
    assert not [
        each for each in found.attributes if each[1] in ("src", "href", "style", "srcset") or each[1][:2] == "on"
    ]
    policy = next(value for _, name, value in found.attributes if name == "content" and "default-src" in value)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    for script in found.scripts[1:]:
        assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy
    assert "sourceMappingURL" not in found.source
    assert "url(" not in found.source.split("</style>")[0]


def test_no_name_leaves_its_place(cli: Cli, tmp_path: Path) -> None:
    plain, evil = convolutions(), convolutions()
    onnx.save(plain, tmp_path / "model.onnx")
    optimized(cli, *PLANNED)
    expected = page(tmp_path / "p.html")
    for node, name in zip(evil.graph.node, NAMES, strict=False):
        node.name = name
        node.doc_string = name
    evil.graph.node[4].output[0] = evil.graph.node[5].input[0] = NAMES[0]
    onnx.save(evil, tmp_path / "model.onnx")
    _, report = optimized(cli, *PLANNED)
    found = page(tmp_path / "p.html")
    assert found.scripts[1:] == expected.scripts[1:]
    assert [each[:2] for each in found.attributes] == [each[:2] for each in expected.attributes]
    assert {printable(op["name"]) for op in report["ops"]} <= found.names
    assert found.names >= {printable(name) for name in NAMES[1:4]}
    data = re.search(r'id="data">(.*?)</script>', found.source)
    assert data is not None and data[1].isascii() and data[1].isprintable()
    assert not set("<>&'") & set(data[1])


def test_a_model_that_is_already_optimised(cli: Cli, model: str, tmp_path: Path) -> None:
    assert cli("optimize", model, "-o", "model.onnx", *PLANNED).code == 0
    optimized(cli, *PLANNED)
    found = page(tmp_path / "p.html")
    assert list(found.data["sides"]) == ["after"]
    assert "not planned" in found.text and "left unchanged" in found.text
    assert cli("inspect", model, *PLANNED, "--html", "q.html").code == 0
    assert list(page(tmp_path / "q.html").data["sides"]) == ["after"]


def test_the_page_of_inspect(cli: Cli, model: str, tmp_path: Path) -> None:
    for target in ("gpu-hopper", "gpu-hopper,ascend-910b"):
        done = cli("inspect", model, "--target", target, "--runtime", "compiler", "--html", "p.html")
        assert done.code == 0, done.err
        found = page(tmp_path / "p.html")
        assert set(found.data["sides"]) == {"before", "after"}
        assert target in found.text and "not measured" in found.text and "would be rewritten" in found.text


@pytest.mark.parametrize("name", ["nested", "certain_if", "mapped_sequence"])
def test_the_groups_of_bodies(cli: Cli, tmp_path: Path, name: str) -> None:
    onnx.save(control_flow_models.load(name), tmp_path / "model.onnx")
    assert cli("inspect", "model.onnx", "--target", "ascend-910b", "--html", "p.html").code == 0
    for side in page(tmp_path / "p.html").data["sides"].values():
        assert sorted(_nodes(side["tree"], side)) == list(range(len(side["nodes"])))


def _nodes(group: list[Any], side: dict[str, Any]) -> Iterator[int]:
    """The nodes of a group; a body has ops of one region and of regions inside it, never of the main graph."""
    kind, _, children = group
    assert children
    for child in children:
        if isinstance(child, list):
            yield from _nodes(child, side)
        else:
            assert kind != "body" or side["nodes"][child][-1] > 0
            yield child


# --- parts of the page -----------------------------------------------------------------------------------


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
