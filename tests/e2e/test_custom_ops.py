"""Operators of other packages whose kernels are in a library: from `--custom-ops` to the sessions of onnxruntime."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from command_line import Cli, assert_one_line
from onnx import numpy_helper

import layoutopt
from layoutopt.errors import ExtensionError
from layoutopt.runtime.custom_ops import kernel_libraries, registered_libraries

SOURCE = Path(__file__).parent / "kernels/halve.c"
NET = """<ir_version: 10, opset_import: ["" : 18, "test.kernels" : 1]>
net (float[1, 24, 24, 16] x) => (float[1, 16, 24, 24] y) <float[1, 16, 24, 24] b, float[1] s> {
    a = Transpose <perm = [0, 3, 1, 2]> (x)
    s = test.kernels.Halve (c)
    b = Conv <pads = [1, 1, 1, 1]> (a, w)
    y0 = test.kernels.Halve (b)
    y = Mul (y0, s)
}"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of the kernel, compiled with the C compiler of this machine."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    path = tmp_path_factory.mktemp("kernels") / "halve.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-std=c99", "-o", path, SOURCE], check=True)
    return path


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """A network with a custom operator on what is computed, and one on a constant."""
    model = onnx.parser.parse_model(NET)
    weights = np.random.default_rng(0).normal(size=(16, 16, 3, 3)).astype(np.float32)
    model.graph.initializer.extend(
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.float32([6.0]), "c")]
    )
    onnx.save(model, tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def test_the_library_folds_and_verifies(net: Path, library: Path) -> None:
    with pytest.raises(layoutopt.UnverifiedError, match="Halve"):
        layoutopt.optimize(net, "gpu-hopper")
    result = layoutopt.optimize(net, "gpu-hopper", custom_ops=[library])
    assert result.report.verification.status == "passed"
    assert [op.kind for op in result.report.ops].count("test.kernels::Halve") == 1  # that of the constant is folded
    assert registered_libraries() == ()


def test_every_command_that_makes_sessions(net: Path, library: Path, tmp_path: Path, cli: Cli) -> None:
    out, given = tmp_path / "out.onnx", ("--custom-ops", str(library))
    refused = cli("optimize", str(net), "-o", str(out), "-t", "gpu-hopper")
    assert refused.code == layoutopt.UnverifiedError.exit_code
    written = cli("optimize", str(net), "-o", str(out), "-t", "gpu-hopper", *given)
    assert written.code == 0, written.err
    assert cli("verify", str(net), str(out)).code == 9
    assert cli("verify", str(net), str(out), *given).code == 0
    assert cli("check", str(net)).code == 10
    assert cli("check", str(net), *given).code == 0
    assert cli("inspect", str(net), "-t", "gpu-hopper", *given).code == 0
    timed = cli("bench", str(net), str(out), "--runs", "2", "--warm-up", "1", *given)
    assert timed.code == 0, timed.err


def test_both_models_use_the_library(net: Path, library: Path) -> None:
    assert layoutopt.verify_models(net, net).status == "not verified"
    assert layoutopt.verify_models(net, net, custom_ops=library).status == "passed"


@pytest.mark.parametrize(("content", "says"), [(None, "no such library"), (b"no library", "cannot be loaded")])
def test_a_library_that_cannot_be_loaded(net: Path, tmp_path: Path, cli: Cli, content: bytes | None, says: str) -> None:
    path = tmp_path / "kernels.so"
    if content is not None:
        path.write_bytes(content)
    run = cli("optimize", str(net), "--dry-run", "--custom-ops", str(path))
    assert run.code == ExtensionError.exit_code
    assert_one_line(run.err)
    assert str(path) in run.err and says in run.err
    with pytest.raises(ExtensionError, match=says):
        layoutopt.optimize(net, custom_ops=path)


def test_blocks_add_their_libraries(library: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.so"
    shutil.copyfile(library, other)
    with kernel_libraries(library), kernel_libraries([other, library]):
        assert registered_libraries() == (str(library.resolve()), str(other.resolve()))
    assert registered_libraries() == ()
