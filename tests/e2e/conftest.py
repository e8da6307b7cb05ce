"""A command line in a folder of its own, a model in it, and a network with an operator that only a library of kernels has."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from command_line import Cli, CommandResult, convolutions
from parsed_models import parsed

from layoutopt.cli import main

_SOURCE = Path(__file__).parent / "kernels/halve.c"
_NET = """<ir_version: 10, opset_import: ["" : 18, "test.kernels" : 1]>
net (float[1, 24, 24, 16] x) => (float[1, 16, 24, 24] y) <float[1, 16, 24, 24] b, float[1] s> {
    a = Transpose <perm = [0, 3, 1, 2]> (x)
    s = test.kernels.Halve (c)
    b = Conv <pads = [1, 1, 1, 1]> (a, w)
    y0 = test.kernels.Halve (b)
    y = Mul (y0, s)
}"""


def network() -> onnx.ModelProto:
    """The model: the operator on a computed value, and once on a constant."""
    return parsed(_NET, w=(16, 16, 3, 3), c=np.asarray([6.0], np.float32))


def compiled(folder: Path) -> Path:
    """The library, made by the C compiler of this machine."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    path = folder / "halve.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-std=c99", "-o", path, _SOURCE], check=True)
    return path


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """Run a command in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "LAYOUTOPT_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)
    handler = signal.getsignal(signal.SIGTERM)

    def run(*arguments: str) -> CommandResult:
        code = main(arguments)
        printed = capsys.readouterr()
        return CommandResult(code, printed.out, printed.err)

    yield run
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def model(tmp_path: Path) -> str:
    onnx.save(convolutions(), tmp_path / "model.onnx")
    return "model.onnx"


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of kernels of custom operators."""
    return compiled(tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def halved(tmp_path: Path) -> Path:
    """A network that needs the library."""
    onnx.save(network(), tmp_path / "halved.onnx")
    return tmp_path / "halved.onnx"
