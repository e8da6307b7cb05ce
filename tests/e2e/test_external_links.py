"""External data behind links: files that ONNX Runtime reads are read, and a path out of the folder is refused."""

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.external_data_helper import set_external_data
from refusals import turned

from layoutopt import optimize
from layoutopt.errors import ModelError
from layoutopt.onnx_io import read, weights
from layoutopt.runtime.session import Session

SIZE = 32 * 16 * 3 * 3 * 4


def model(location: str) -> onnx.ModelProto:
    """A convolution that is rewritten, its filter in a file."""
    proto = turned()
    (tensor,) = proto.graph.initializer
    set_external_data(tensor, location, 0, SIZE)
    tensor.ClearField("raw_data")
    return proto


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """The snapshot folder of a model hub's cache, with a data file in `blobs` and links to it."""
    snapshot = tmp_path / "snapshots" / "1a2b"
    (snapshot / "sub").mkdir(parents=True)
    (tmp_path / "blobs").mkdir()
    data = np.random.default_rng(0).normal(size=SIZE // 4).astype(np.float32).tobytes()
    (tmp_path / "blobs" / "data").write_bytes(data)
    (snapshot / "plain").write_bytes(data)
    (snapshot / "sub" / "inside").write_bytes(data)
    (tmp_path / "snapshots" / "beside").write_bytes(data)
    (snapshot / "inner").symlink_to("plain")
    (snapshot / "link").symlink_to("../../blobs/data")
    (snapshot / "absolute").symlink_to(tmp_path / "blobs" / "data")
    (snapshot / "twice").symlink_to("link")
    (snapshot / "elsewhere").symlink_to("../beside")
    (snapshot / "dangling").symlink_to("nowhere")
    (snapshot / "folder").symlink_to("../../blobs")
    os.link(tmp_path / "blobs" / "data", snapshot / "hard")
    return snapshot


def stored(hub: Path, location: str, *, linked: bool) -> Path:
    """The model's file, in the snapshot or in `blobs` with a link in the snapshot."""
    path = hub / "model.onnx"
    content = model(location).SerializeToString()
    if linked:
        (hub.parent.parent / "blobs" / "model").write_bytes(content)
        path.symlink_to("../../blobs/model")
    else:
        path.write_bytes(content)
    return path


def listing(folder: Path) -> dict[str, bytes | str]:
    """Every file and link below a folder, with its content."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_symlink() or path.is_file())
    return {str(path): os.readlink(path) if path.is_symlink() else path.read_bytes() for path in found}


READ = [
    *(
        (location, linked)
        for location in ("plain", "inner", "hard", "sub/inside", "./plain")
        for linked in (False, True)
    ),
    *((location, True) for location in ("link", "absolute", "twice", "folder/data")),
    ("sub/../plain", False),
]
REFUSED = [
    *((location, False, "symbolic link to") for location in ("link", "absolute", "twice", "folder/data")),
    *(("elsewhere", linked, "symbolic link to") for linked in (False, True)),
    *(("../beside", linked, "the model gives '../beside' as the path") for linked in (False, True)),
    ("sub/../../beside", False, "the model gives"),
    ("dangling", True, "is missing"),
    ("sub", False, "not a plain file"),
]


@pytest.mark.parametrize(("location", "linked"), READ)
def test_what_onnxruntime_reads_is_read_and_rewritten(hub: Path, location: str, linked: bool, tmp_path: Path) -> None:
    path = stored(hub, location, linked=linked)
    x = np.random.default_rng(1).normal(size=(1, 8, 8, 16)).astype(np.float32)
    (expected,) = Session(path).run(None, {"x": x})
    before = listing(hub.parent.parent)
    ((_, tensor),) = weights(read(path))
    assert tensor.numpy().tobytes() == tensor.tobytes() == (hub / "plain").read_bytes()
    out = tmp_path / "out"
    out.mkdir()
    for name, data in (("one", None), ("two", "two.data")):
        result = optimize(path, "cpu-avx512", dialect="ops")
        assert result.report.changed
        result.save(out / f"{name}.onnx", external_data=data)
        (found,) = Session(out / f"{name}.onnx").run(None, {"x": x})
        np.testing.assert_allclose(found, expected, atol=1e-4)
    assert {name: content for name, content in listing(tmp_path).items() if not name.startswith(str(out))} == before


@pytest.mark.parametrize(("location", "linked", "expected"), REFUSED)
def test_what_leads_out_of_the_folder_is_refused(hub: Path, location: str, linked: bool, expected: str) -> None:
    path = stored(hub, location, linked=linked)
    with pytest.raises(Exception):  # noqa: B017 -- onnxruntime's exceptions have no common base
        Session(path)
    with pytest.raises(ModelError, match=f"^w: .*{expected}"):
        read(path)


def test_a_path_that_leads_out_of_the_folder_is_refused_even_if_it_reaches_the_cache(hub: Path) -> None:
    """ONNX Runtime reads it, but then the model file itself selects a file outside of its folder."""
    with pytest.raises(ModelError, match=r"the model gives '../../blobs/data' as the path"):
        read(stored(hub, "../../blobs/data", linked=True))
