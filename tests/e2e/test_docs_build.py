"""The documentation builds as a site, and the notebooks run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
NOTEBOOKS = sorted((CHECKOUT / "examples/notebooks").glob("*.ipynb"))


def run(program: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    command = [sys.executable, *program]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.thorough
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="needs layoutopt[docs]")
    result = run(["-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)], CHECKOUT)
    assert result.returncode == 0, result.stderr
    options = (tmp_path / "reference/cli/index.html").read_text()
    assert "--max-growth" in options and "--portable" in options
    assert "com.microsoft.FusedConv" in (tmp_path / "reference/operators/index.html").read_text()
    assert "KRSCk4c4" in (tmp_path / "reference/formats/index.html").read_text()
    assert "kernel_efficiency" in (tmp_path / "reference/targets/index.html").read_text()
    assert "largest_error" in (tmp_path / "reference/report/index.html").read_text()
    assert "allow_unverified" in (tmp_path / "reference/python/index.html").read_text()


@pytest.mark.thorough
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(notebook: Path) -> None:
    """Every cell runs without an error, in the folder of the notebook."""
    pytest.importorskip("nbclient", reason="needs layoutopt[dev]")
    program = (
        "import sys, nbformat; from nbclient import NotebookClient; "
        "NotebookClient(nbformat.read(sys.argv[1], 4), timeout=300, kernel_name='python3').execute()"
    )
    result = run(["-c", program, notebook.name], notebook.parent)
    assert result.returncode == 0, result.stderr
