"""The source distribution has every file of the repository, and its metadata are accepted by an index."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.thorough
def test_the_source_distribution_is_complete(tmp_path: Path) -> None:
    for name in ("build", "twine"):
        pytest.importorskip(name, reason="needs layoutopt[dev]")
    listed = subprocess.run(["git", "ls-files"], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a checkout")
    copy = tmp_path / "checkout"
    subprocess.run(["git", "clone", "--quiet", str(CHECKOUT), str(copy)], check=True)
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path)]
    subprocess.run(command, cwd=copy, capture_output=True, check=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as found:
        names = {name.partition("/")[2] for name in found.getnames()}
    committed = subprocess.run(["git", "ls-files"], cwd=copy, capture_output=True, text=True, check=True).stdout
    assert set(committed.splitlines()) - names == set()
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", str(archive)], check=True)
