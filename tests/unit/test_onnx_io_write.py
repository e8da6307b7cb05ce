"""Writing is atomic, replaces existing files, and stores the weights in the message or in external data."""

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from layoutopt.errors import LayoutoptError, OutputError
from layoutopt.inference import lift
from layoutopt.ir.types import Array, ArrayData
from layoutopt.onnx_io import emit, read
from layoutopt.onnx_io import write as write_result
from layoutopt.onnx_io.writer import write_tensor

SIZE = 4096
write = partial(write_result, source="/source.onnx")


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


# --- a model that is renewed -------------------------------------------------------------------------------


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
