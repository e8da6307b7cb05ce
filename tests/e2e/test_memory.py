"""The peak memory of `optimize` depends on the largest weight of a model, not on the sum of its weights.

A process of its own plans, rewrites, verifies and writes a model of sparse filters that are packed into blocks. Limits in bytes
are scaled down with the model: the available memory, and the size up to which onnx's checker gets the weights.
"""

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CHANNELS = 512
FILTER = CHANNELS * CHANNELS * 9 * 4  # bytes
MEMORY = 8 * FILTER  # reported as available, so that segments have one filter

SCRIPT = """
import sys, threading, time
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import large, large_models, layoutopt, os
from layoutopt.onnx_io import serialize, writer
from layoutopt.verification import parts

parts.available_bytes = writer.available_bytes = lambda: int(sys.argv[4])
serialize._WITH_WEIGHTS = 0
path = large_models.convolutions(Path(sys.argv[2]), int(sys.argv[3]), channels=int(sys.argv[5]), side=3)
peak = [0]

def poll():
    while True:
        peak[0] = max(peak[0], large.anonymous_bytes(os.getpid()))
        time.sleep(0.002)

threading.Thread(target=poll, daemon=True).start()
result = layoutopt.optimize(path, "ascend-910b", measure=False, calibrate=False)
assert result.report.changed and result.report.verification.reason.startswith("segment by segment, one of")
result.save(path.with_name("out.onnx"))
print(peak[0])
"""


def peak(folder: Path, blocks: int) -> int:
    """The peak of anonymous memory in bytes, for a model of two filters per block."""
    folder.mkdir()
    command = [sys.executable, "-c", SCRIPT, BENCHMARKS, folder, blocks, MEMORY, CHANNELS]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_weights_are_not_held(tmp_path: Path) -> None:
    few, many = peak(tmp_path / "few", 1), peak(tmp_path / "many", 5)
    assert many - few < 2 * FILTER, f"8 filters of {FILTER:,} bytes more take {many - few:,} bytes"
