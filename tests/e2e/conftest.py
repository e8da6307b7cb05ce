"""A command line in a folder of its own, and a model in it."""

import signal
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from command_line import Cli, CommandResult, convolutions
from custom_kernels import compiled, network

from layoutopt.cli import main


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
