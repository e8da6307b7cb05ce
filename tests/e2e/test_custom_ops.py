"""Operators of other packages whose kernels are in a library: from `--custom-ops` to the sessions of onnxruntime."""

import shutil
from pathlib import Path

import pytest
from command_line import Cli, assert_one_line

import layoutopt
from layoutopt.errors import ExtensionError
from layoutopt.runtime.custom_ops import kernel_libraries, registered_libraries


def test_the_library_folds_and_verifies(halved: Path, library: Path) -> None:
    with pytest.raises(layoutopt.UnverifiedError, match="Halve"):
        layoutopt.optimize(halved, "gpu-hopper", runtime="compiler")
    result = layoutopt.optimize(halved, "gpu-hopper", runtime="compiler", custom_ops=[library])
    assert result.report.verification.status == "passed"
    assert [op.kind for op in result.report.ops].count("test.kernels::Halve") == 1  # that of the constant is folded
    assert registered_libraries() == ()


def test_every_command_that_makes_sessions(halved: Path, library: Path, tmp_path: Path, cli: Cli) -> None:
    out, given = tmp_path / "out.onnx", ("--custom-ops", str(library))
    refused = cli("optimize", str(halved), "-o", str(out), "-t", "gpu-hopper", "--runtime", "compiler")
    assert refused.code == layoutopt.UnverifiedError.exit_code
    written = cli("optimize", str(halved), "-o", str(out), "-t", "gpu-hopper", "--runtime", "compiler", *given)
    assert written.code == 0, written.err
    assert cli("verify", str(halved), str(out)).code == 9
    assert cli("verify", str(halved), str(out), *given).code == 0
    assert cli("check", str(halved)).code == 10
    assert cli("check", str(halved), *given).code == 0
    assert cli("inspect", str(halved), "-t", "gpu-hopper", "--runtime", "compiler", *given).code == 0
    timed = cli("bench", str(out), "--seconds", "0.01", *given)
    assert timed.code == 0, timed.err


@pytest.mark.parametrize(("content", "expected"), [(None, "no such library"), (b"no library", "cannot be loaded")])
def test_a_library_that_cannot_be_loaded(
    halved: Path, tmp_path: Path, cli: Cli, content: bytes | None, expected: str
) -> None:
    path = tmp_path / "kernels.so"
    if content is not None:
        path.write_bytes(content)
    run = cli("optimize", str(halved), "--dry-run", "--custom-ops", str(path))
    assert run.code == ExtensionError.exit_code
    assert_one_line(run.err)
    assert str(path) in run.err and expected in run.err
    with pytest.raises(ExtensionError, match=expected):
        layoutopt.optimize(halved, custom_ops=path)


def test_blocks_add_their_libraries(library: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.so"
    shutil.copyfile(library, other)
    with kernel_libraries(library), kernel_libraries([other, library]):
        assert registered_libraries() == (str(library.resolve()), str(other.resolve()))
    assert registered_libraries() == ()
