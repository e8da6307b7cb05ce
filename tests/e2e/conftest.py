"""A command line in a folder of its own, and a model in it."""

import signal
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from command_line import Cli, Run, convolutions

from layoutopt.cli import main


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """Run a command in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "LAYOUTOPT_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)
    handler = signal.getsignal(signal.SIGTERM)

    def run(*arguments: str) -> Run:
        code = main(arguments)
        printed = capsys.readouterr()
        return Run(code, printed.out, printed.err)

    yield run
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def model(tmp_path: Path) -> str:
    onnx.save(convolutions(), tmp_path / "model.onnx")
    return "model.onnx"
