"""Files: what may be replaced, temporary names, external data, and models that are written atomically."""

import copy
import json
import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from msgspec.structs import replace
from onnx import helper
from parsed_models import parsed

from layoutopt.errors import LayoutoptError, OutputError
from layoutopt.files import FileKind, Overwrite, Staging, external_files, external_locations, scratch_folder, write_text
from layoutopt.files.staging import _remove_stale_once, temporary_name
from layoutopt.inference import lift
from layoutopt.ir.types import Array, ArrayData
from layoutopt.onnx_io import emit, has_external_data, read, to_bytes
from layoutopt.onnx_io import write as write_result
from layoutopt.onnx_io.mapping import MappedTensor, without_weights
from layoutopt.onnx_io.serialize import to_proto, write_tensor

JSON = json.dumps({"layoutopt_version": "1"})
CONTENTS = {
    **dict.fromkeys((FileKind.REPORT, FileKind.CERTIFICATE), JSON),
    FileKind.PAGE: "<!DOCTYPE html>\n<html></html>\n",
    FileKind.TARGET: 'inherits = "cpu-avx2"\n',
    FileKind.GRAPH_TEXT: "graph g() -> ()\n",
    FileKind.JUNIT: "<testsuites></testsuites>",
}
CONTINUED = {FileKind.BASELINE: '{"layoutopt_baseline": 1}'}


def save(folder: Path, name: str, data: str | None = None) -> Path:
    """A model, with its weights in a file of the name `data` if there is one."""
    text = '<ir_version: 9, opset_import: ["" : 18]> g (float[1024] x) => (float[1024] y) { y = Add (x, w) }'
    model = parsed(text, w=np.arange(1024, dtype=np.float32))
    onnx.save(model, folder / name, save_as_external_data=data is not None, location=data, size_threshold=0)
    return folder / name


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
        "history": "{}\n" + (tmp_path / kind.name).read_text(),
        "quotation": "notes\n    " + (tmp_path / kind.name).read_text().splitlines()[-1],
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
    running = f".layoutopt-{host}-1-00000000.tmp"
    for name in (f".layoutopt-{host}-{dead_process()}-00000000.tmp", "layoutopt-results", running):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.onnx").touch()
    _remove_stale_once.cache_clear()
    with scratch_folder() as folder:
        assert folder.parent == tmp_path
        assert sorted(os.listdir(tmp_path)) == sorted(["layoutopt-results", running, folder.name])
    assert folder.name not in os.listdir(tmp_path)


def test_external_data_is_found_wherever_it_is(tmp_path: Path) -> None:
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
    assert sorted(external_locations(path)) == ["attribute", "f", "indices", "inner", "main", "values"]
    (tmp_path / "main").touch()
    assert external_files(path) == [tmp_path / "main"]


SIZE = 1 << 14  # weights of this size are mapped
write = partial(write_result, source="/source.onnx")


def model() -> ir.Model:
    head = f'<ir_version: 9, opset_import: ["" : 18]> g (float[{SIZE}] x) => (float[{SIZE}] y)'
    weights = {f"w{fill}": np.full(SIZE, fill, np.float32) for fill in (1, 2)}
    return ir.from_proto(parsed(f"{head} {{ a = Add (x, w1) y = Mul (a, w2) }}", **weights, small=[0, 0]))


def weight(read_back: ir.Model, name: str) -> Array:
    return read_back.graph.initializers[name].const_value.numpy()


def test_external_data(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    write(model(), path, external_data="weights")
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "weights"]
    assert path.stat().st_size < 1000
    first = path.read_bytes(), (tmp_path / "weights").read_bytes()
    onnx.checker.check_model(path, full_check=True)
    again = read(path)
    assert isinstance(again.graph.initializers["w1"].const_value, MappedTensor)
    assert np.all(weight(again, "w2") == 2)
    assert not isinstance(again.graph.initializers["small"].const_value, MappedTensor)
    write(model(), path, external_data="weights")
    assert (path.read_bytes(), (tmp_path / "weights").read_bytes()) == first


def test_large_weights_stay_in_a_file_that_does_not_change(tmp_path: Path) -> None:
    found = read(write(model(), tmp_path / "m.onnx").model)
    assert to_bytes(found) == to_proto(found).SerializeToString(deterministic=True) and not has_external_data(found)
    for each in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert to_bytes(each) == to_bytes(found)
    assert all(without_weights(memoryview(each * SIZE * 9)) == each * SIZE * 9 for each in (b"\0", b"\xff"))
    os.utime(tmp_path / "m.onnx")
    with pytest.raises(LayoutoptError, match="has changed"):
        to_bytes(found)


class Broken:
    """Elements that cannot be computed."""

    nbytes = SIZE * 4

    def numpy(self) -> Array:
        raise LayoutoptError("broken on purpose")


@pytest.mark.parametrize("external", [None, "weights"])
def test_a_failure_leaves_everything_as_it_was(tmp_path: Path, external: str | None) -> None:
    path = tmp_path / "m.onnx"
    write(model(), path, external_data=external)
    before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    graph = lift(model())
    graph.value("w1").data = Broken()
    with pytest.raises(LayoutoptError, match="on purpose"):
        write(emit(graph), path, external_data=external)
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == before


def test_a_full_disk(tmp_path: Path) -> None:
    """A full disk leaves no file; /dev/full cannot be a target, so the test replaces the write."""
    with pytest.MonkeyPatch.context() as patch:

        def fail(*_: object) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(os, "fsync", fail)
        with pytest.raises(OutputError, match="no space left"):
            write(model(), tmp_path / "m.onnx")
    assert not os.listdir(tmp_path)


def filled(fill: float) -> ir.Model:
    """The model with other weights."""
    graph = lift(model())
    graph.value("w1").data = ArrayData(np.full((SIZE,), fill, np.float32))
    return emit(graph)


def test_other_weights_get_a_name_of_their_own(tmp_path: Path) -> None:
    """No weights are removed or replaced: those of the replaced model are reported as unused."""
    path = tmp_path / "m.onnx"
    first = write(filled(1), path, "w.bin")
    assert first.files == (path, tmp_path / "w.bin")
    second = write(filled(2), path, "w.bin")
    assert second.weights is not None and re.fullmatch(r"w-[0-9a-f]{16}\.bin", second.weights.name)
    assert second.unused == (tmp_path / "w.bin",)
    assert write(filled(2), path, "w.bin").files == second.files
    third = write(filled(3), path, "w.bin")
    assert third.weights not in (None, second.weights) and third.unused == (second.weights,)
    names = {"m.onnx", "w.bin", second.weights.name, *(each.name for each in third.files)}
    assert {each.name for each in tmp_path.iterdir()} == names
    assert np.all(weight(read(path), "w1") == 3)
    assert write(filled(4), path).files == (path,)
    assert {each.name for each in tmp_path.iterdir()} == names


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_a_full_disk_under_external_data_is_named(dtype: type) -> None:
    for size in (2000, 200_000):
        plain = ir.tensor(np.zeros(size, dtype))
        for tensor in (plain, ir.LazyTensor(lambda plain=plain: plain, plain.dtype, plain.shape)):
            with pytest.raises(OSError, match="No space left"), Path("/dev/full").open("wb") as full:
                write_tensor(tensor, full)
                full.flush()


def test_every_moment_of_a_renewal_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After every rename or removal, the model is the old or the new one, and its weights exist."""
    path = tmp_path / "m.onnx"
    seen = []

    def look() -> None:
        found = read(path)
        fill = {float(value) for value in weight(found, "w1")}
        assert len(fill) == 1
        seen.append(fill.pop())

    def watched(name: str) -> None:
        real = getattr(os, name)

        def act(*arguments: object) -> None:
            look()
            real(*arguments)
            look()

        monkeypatch.setattr(os, name, act)

    write(filled(1), path, "w.bin")
    watched("replace")
    watched("unlink")
    for fill in (2, 3, 4):
        write(filled(fill), path, "w.bin")
    assert sorted(seen) == seen and {*seen} == {1, 2, 3, 4}


@pytest.mark.parametrize("make", [os.symlink, os.link])
def test_a_link_is_replaced_and_the_model_keeps_its_weights(tmp_path: Path, make: Callable[[Path, Path], None]) -> None:
    path, link = tmp_path / "m.onnx", tmp_path / "link.onnx"
    for fill in (1, 2):
        write(filled(fill), path, "w.bin")
    make(path, link)
    unused: tuple[Path, ...] = ()
    for fill in (3, 4):
        written = write(filled(fill), link, "w.bin", force=True)
        assert np.all(weight(read(path), "w1") == 2)
        assert np.all(weight(read(link), "w1") == fill)
        assert written.unused == unused and written.weights is not None
        unused = (written.weights,)
