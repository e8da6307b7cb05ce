"""A benchmark that hooks into the stages of `optimize` by name still finds them."""

import subprocess
import sys
from pathlib import Path

SCALE = Path(__file__).parents[2] / "benchmarks" / "scale.py"


def test_scale_finds_the_stages() -> None:
    command = [sys.executable, SCALE, "--shapes", "chain", "--targets", "gpu-hopper", "--ops", "50", "--stages"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("| chain")]
    assert "lift" in row and "candidates" in row and "failed" not in row
