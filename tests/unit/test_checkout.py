"""A checkout that is not installed runs from its root, although two packages are folders of the root."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def test_a_checkout_runs_from_its_root(tmp_path: Path) -> None:
    """Without `site`, and so without the hook of an editable install; what layoutopt depends on is on the path."""
    for name in ("layoutopt", "passes", "cost_models"):
        shutil.copytree(CHECKOUT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    environment = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")}

    def python(*arguments: str) -> str:
        command = [sys.executable, "-S", *arguments]
        result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        return result.stdout

    assert "assign-formats" in python("-m", "layoutopt", "list", "passes")
    assert "gpu-hopper" in python("-m", "layoutopt", "targets")
    probe = "import layoutopt.passes, layoutopt.cost_models as c; print(layoutopt.passes.__file__, c.__file__)"
    places = [Path(each) for each in python("-c", probe).split()]
    assert places == [tmp_path / "passes/__init__.py", tmp_path / "cost_models/__init__.py"]
