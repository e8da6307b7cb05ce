"""Writing: whole or not at all, over whatever is there, with the weights where they are wanted."""

import os
import re
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from layoutopt.errors import LayoutoptError, OutputError
from layoutopt.ir.types import Array, ArrayData
from layoutopt.onnx_io import emit, lift, read, to_bytes, write

SIZE = 4096


def model() -> ir.Model:
    weights = [numpy_helper.from_array(np.full((SIZE,), fill, np.float32), f"w{fill}") for fill in (1, 2)]
    small = numpy_helper.from_array(np.zeros(2, np.int64), "small")
    nodes = [helper.make_node("Add", ["x", "w1"], ["a"]), helper.make_node("Mul", ["a", "w2"], ["y"])]
    ends = [[helper.make_tensor_value_info(name, 1, [SIZE])] for name in ("x", "y")]
    return ir.from_proto(helper.make_model(helper.make_graph(nodes, "g", *ends, [*weights, small])))


def weight(read_back: ir.Model, name: str) -> Array:
    tensor = read_back.graph.initializers[name].const_value
    assert tensor is not None
    return tensor.numpy()


def test_one_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    write(model(), path)
    assert os.listdir(tmp_path) == ["m.onnx"]
    assert path.read_bytes() == to_bytes(model())
    assert np.all(weight(read(path), "w2") == 2)


def test_external_data(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    write(model(), path, external_data="weights")
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "weights"]
    assert path.stat().st_size < 1000
    first = path.read_bytes(), (tmp_path / "weights").read_bytes()
    onnx.checker.check_model(path, full_check=True)
    again = read(path)
    assert isinstance(again.graph.initializers["w1"].const_value, ir.ExternalTensor)
    assert np.all(weight(again, "w2") == 2)
    assert not isinstance(again.graph.initializers["small"].const_value, ir.ExternalTensor)
    write(model(), path, external_data="weights")
    assert (path.read_bytes(), (tmp_path / "weights").read_bytes()) == first


def test_over_the_model_and_the_data_that_are_mapped(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    write(model(), path, external_data="weights")
    original = read(path)
    graph = lift(original)
    graph.value("w1").data = ArrayData(np.full((SIZE,), 7, np.float32))
    write(emit(graph), path, external_data="weights")
    result = read(path)
    assert np.all(weight(result, "w1") == 7)
    assert np.all(weight(result, "w2") == 2)
    assert np.all(weight(original, "w2") == 2)
    write(result, path)
    assert np.all(weight(read(path), "w1") == 7)


def test_external_data_comes_along_to_another_folder(tmp_path: Path) -> None:
    write(model(), tmp_path / "m.onnx", external_data="weights")
    other = tmp_path / "other"
    other.mkdir()
    write(emit(lift(read(tmp_path / "m.onnx"))), other / "m.onnx")
    assert os.listdir(other) == ["m.onnx"]
    assert np.all(weight(read(other / "m.onnx"), "w1") == 1)


def test_large_models_get_external_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["layoutopt.onnx_io.write"], "IN_ONE_FILE", SIZE)
    write(model(), tmp_path / "m.onnx")
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "m.onnx.data"]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("none/m.onnx", "folder does not exist"),
        ("file/m.onnx", "folder is a file"),
        ("folder", "is a folder"),
        ("pipe", "not a regular file"),
        ("n" * 300, "name is too long"),
    ],
)
def test_bad_targets(tmp_path: Path, target: str, said: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(OutputError, match=said) as caught:
        write(model(), tmp_path / target)
    assert re.fullmatch(r".*", str(caught.value))
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("name", ["", "..", "a/b", "/tmp/x", "m.onnx"])
def test_bad_names_of_external_data(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError, match="not a file name"):
        write(model(), tmp_path / "m.onnx", external_data=name)
    assert not os.listdir(tmp_path)


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
    """/dev/full cannot be a target, so that a write to it is put in by hand."""
    with pytest.MonkeyPatch.context() as patch:

        def fail(*_: object) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(os, "fsync", fail)
        with pytest.raises(OutputError, match="no space left"):
            write(model(), tmp_path / "m.onnx")
    assert not os.listdir(tmp_path)


def test_permissions_stay(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    write(model(), path)
    path.chmod(0o640)
    write(model(), path)
    assert path.stat().st_mode & 0o777 == 0o640
