"""Output files: what may be replaced, temporary names, and external data found in a model file."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from layoutopt.errors import OutputError
from layoutopt.files import FileKind, Overwrite, Staging, external_files, external_locations, scratch_folder, write_text
from layoutopt.files.staging import remove_stale_folders, temporary_name

JSON = json.dumps({"layoutopt_version": "1"})
CONTENTS = {
    **dict.fromkeys((FileKind.REPORT, FileKind.CERTIFICATE), JSON),
    FileKind.FIGURE: "<svg/>",
    FileKind.PAGE: "<!DOCTYPE html>\n<html></html>\n",
    FileKind.TARGET: 'inherits = "cpu-avx2"\n',
    FileKind.GRAPH_TEXT: "graph g() -> ()\n",
    FileKind.JUNIT: "<testsuites></testsuites>",
    FileKind.SARIF: '{"runs": []}',
}
CONTINUED = {FileKind.BASELINE: '{"layoutopt_baseline": 1}'}


def save(folder: Path, name: str, data: str | None = None) -> Path:
    """A model, with its weights in a file of the name `data` if there is one."""
    weight = numpy_helper.from_array(np.arange(1024, dtype=np.float32), "w")
    ends = [[helper.make_tensor_value_info(end, 1, [1024])] for end in ("x", "y")]
    model = helper.make_model(helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", *ends, [weight]))
    onnx.save(model, folder / name, save_as_external_data=data is not None, location=data, size_threshold=0)
    return folder / name


# --- the rule ----------------------------------------------------------------------------------------------


def allowed(path: Path, kind: FileKind, rule: Overwrite) -> bool:
    """Whether a file may be written; a refusal changes nothing."""
    before = {each: each.read_bytes() for each in path.parent.iterdir() if each.is_file()}
    try:
        rule.check(path, kind)
    except OutputError as error:
        assert "\n" not in str(error)
        return False
    finally:
        assert {each: each.read_bytes() for each in path.parent.iterdir() if each.is_file()} == before
    return True


@pytest.mark.parametrize("kind", list(CONTENTS))
def test_a_text_file_is_replaced_by_its_kind_and_source_only(tmp_path: Path, kind: FileKind) -> None:
    """Whatever exists, of all kinds, commands and sources: only one is replaced without force, and everything with it."""
    rule = Overwrite((tmp_path / "a.onnx",), command="inspect")
    written = {tmp_path / each.name: (each, rule) for each in CONTENTS}
    written |= {tmp_path / "other": (kind, replace(rule, sources=(tmp_path / "b.onnx",)))}
    written |= {tmp_path / "command": (kind, replace(rule, command="bench"))}
    for path, (each, by) in written.items():
        write_text(path, CONTENTS[each], each, by)
    texts = {
        "none": CONTENTS[kind],
        "twice": (tmp_path / kind.name).read_text() * 2,
        "deep": "[" * 100_000,
        "{": "{" * 9,
    }
    for name, text in {**texts, **{each.name: text for each, text in CONTINUED.items()}}.items():
        (tmp_path / name).write_text(text)
    save(tmp_path, "model")
    for path in sorted(tmp_path.iterdir()):
        assert allowed(path, kind, rule) == (path.name == kind.name), path.name
        assert allowed(path, kind, replace(rule, force=True)), path.name
        for continued in CONTINUED:
            assert allowed(path, continued, rule) == (path.name == continued.name), path.name
    (tmp_path / "empty").touch()
    assert allowed(tmp_path / "empty", kind, rule) and allowed(tmp_path / "new", kind, rule)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("link", ["", "symbolic", "hard"])
def test_what_a_command_reads_is_never_replaced(tmp_path: Path, link: str, force: bool) -> None:
    source, data = save(tmp_path, "a.onnx", "w.bin"), tmp_path / "w.bin"
    if link:
        names = {"symbolic": os.symlink, "hard": os.link}
        for path in (source, data):
            names[link](path, tmp_path / f"{path.name}.link")
        linked = [tmp_path / f"{path.name}.link" for path in (source, data)]
    else:
        linked = [source, data]
    for kind in FileKind:
        for path in linked:
            assert not allowed(path, kind, Overwrite((source,), None, force))
            assert not allowed(path, kind, Overwrite((source,), tmp_path / "out.onnx", force))
    assert allowed(linked[0], FileKind.MODEL, Overwrite((source,), linked[0], force))
    assert not allowed(linked[1], FileKind.MODEL, Overwrite((source,), linked[1], force))
    assert not allowed(linked[0], FileKind.REPORT, Overwrite((source,), linked[0], force))


# --- temporary names ---------------------------------------------------------------------------------------


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_a_dead_process_left_is_removed(tmp_path: Path) -> None:
    mine = temporary_name()
    host = mine.split("-")[1]
    old = time.time() - 2 * 24 * 3600
    stale = [f".layoutopt-{host}-{dead_process()}-00000000.tmp", ".layoutopt-ffffffff-1-00000000.tmp"]
    kept = [mine, ".layoutopt-ffffffff-1-00000001.tmp", ".layoutopt-notes.tmp", f"{stale[0]}.bak", "layoutopt-x.tmp"]
    for name in (*stale, *kept):
        (tmp_path / name).touch()
    for name in (stale[1], *kept[2:]):
        os.utime(tmp_path / name, (old, old))
    with Staging(tmp_path):
        assert sorted(os.listdir(tmp_path)) == sorted(kept)


def test_folders_that_a_dead_process_left_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    host = temporary_name().split("-")[1]
    for name in (f"layoutopt-{host}-{dead_process()}-00000000", "layoutopt-results", f"layoutopt-{host}-1-00000000"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.onnx").touch()
    remove_stale_folders.cache_clear()
    with scratch_folder() as folder:
        assert folder.parent == tmp_path
        assert sorted(os.listdir(tmp_path)) == sorted(
            ["layoutopt-results", f"layoutopt-{host}-1-00000000", folder.name]
        )
    assert folder.name not in os.listdir(tmp_path)


# --- external data in a model file -------------------------------------------------------------------------


@pytest.mark.parametrize("searched", [1 << 20, 64])
def test_external_data_is_found_wherever_it_is(tmp_path: Path, searched: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("layoutopt.files.overwrite._SEARCHED", searched)

    def tensor(location: str) -> onnx.TensorProto:
        made = onnx.TensorProto(data_type=1, dims=[1], data_location=onnx.TensorProto.EXTERNAL)
        made.external_data.add(key="offset", value="0")
        made.external_data.add(key="location", value=location)
        return made

    inner = helper.make_graph([], "inner", [], [], [tensor("inner")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner, value=tensor("attribute"))
    function = helper.make_function(
        "d", "F", [], ["y"], [helper.make_node("Constant", [], ["y"], value=tensor("f"))], []
    )
    sparse = onnx.SparseTensorProto(values=tensor("values"), indices=tensor("indices"))
    graph = helper.make_graph([node], "g", [], [], [tensor("main"), tensor("main")], sparse_initializer=[sparse])
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph, functions=[function]).SerializeToString())
    expected = {"main", "inner", "attribute", "f", "values", "indices"}
    assert sorted(external_locations(path) or ()) == sorted(expected)
    (tmp_path / "main").touch()
    assert external_files(path) == [tmp_path / "main"]
