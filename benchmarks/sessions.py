"""Speed-up of session creation in stock onnxruntime by `layoutopt optimize`, and its effect on runs.

    python benchmarks/sessions.py [--seconds S] [--keep FOLDER] [--memory] [FILE or NETWORK ...]

By default the networks of examples/zoo. Prints a Markdown table with the ratios of the original to `--sessions balanced` in one
file, to `--sessions balanced --external-data`, and to `--sessions fast --external-data`: medians of pairs in one process, as
`bench` measures them. `run` is the ratio of balanced to fast sessions in time per run. With --memory, a second table has the
anonymous memory of each after a run, and of four sessions. --keep keeps the files.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

sys.path[:0] = [str(Path(__file__).parents[1] / "examples")]

import zoo

import layoutopt
from layoutopt.bench import BenchReport, bench
from layoutopt.sample_inputs import sample_inputs_for
from layoutopt.verification import Runnable

MIB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("models", nargs="*", default=list(zoo.NAMES))
    parser.add_argument(
        "--alone", action="store_true", help="print the memory of one session and of four, of one model"
    )
    arguments = parser.parse_args()
    if arguments.alone:
        print_memory(Path(arguments.models[0]))
        return
    print(
        "| network | balanced | balanced, external | fast, external | run of balanced | run of fast | run: balanced/fast |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    rows, memory = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        for model in arguments.models:
            path = Path(model) if Path(model).suffix == ".onnx" else zoo.save(model, Path(name))
            files = written(path, folder)
            rows.append(ratios(bench([path, *files], seconds=arguments.seconds)))
            print(f"| {path.stem} | " + " | ".join(f"{ratio:.2f}" for ratio in rows[-1]) + " |", flush=True)
            if arguments.memory:
                memory.append(f"| {path.stem} | " + " | ".join(map(memory_text, [path, *files])) + " |")
    print("| geometric mean | " + " | ".join(f"{ratio:.2f}" for ratio in np.exp(np.log(rows).mean(axis=0))) + " |")
    if arguments.memory:
        print("\n| network | original | balanced | balanced, external | fast, external |\n|---|---|---|---|---|")
        print("\n".join(memory))


def written(path: Path, folder: Path) -> list[Path]:
    """The results of a model, which are written if the folder does not have them."""
    files = [folder / f"{path.stem}.{kind}.onnx" for kind in ("balanced", "balanced-external", "fast-external")]
    if not all(file.exists() for file in files):
        balanced, fast = (
            layoutopt.optimize(path, "cpu", sessions=sessions, measure=False) for sessions in ("balanced", "fast")
        )
        balanced.save(files[0])
        for result, file in ((balanced, files[1]), (fast, files[2])):
            result.save(file, external_data=f"{file.stem}.data")
    return files


def ratios(report: BenchReport) -> list[float]:
    """The ratios of a row."""
    _, one, external, fast = report.models
    created = [each.creation_speed_up for each in (one, external, fast)]
    runs = external.speed_up.value, fast.speed_up.value
    return [*created, *runs, runs[1] / runs[0]]


def memory_text(path: Path) -> str:
    """The anonymous memory of one and of four sessions after a run, in MiB, in a process of their own."""
    command = [sys.executable, __file__, "--alone", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]


def print_memory(path: Path) -> None:
    """Print the anonymous memory of one and of four sessions after a run; Linux only."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    samples = sample_inputs_for(path, {}, {})
    first = Runnable.of(path).timed_session(1)
    feed = samples.feed(first, samples.planned)
    del first
    before, sessions, found = anonymous_bytes(), [], []
    for _ in range(4):
        sessions.append(onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]))
        sessions[-1].run(None, feed)
        found.append(anonymous_bytes() - before)
    print(f"{found[0] / MIB:.0f}, {found[-1] / MIB:.0f}")


def anonymous_bytes() -> int:
    """The resident memory of this process that no file backs."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))


if __name__ == "__main__":
    main()
