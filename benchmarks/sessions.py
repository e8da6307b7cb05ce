"""Speed-up of session creation in stock onnxruntime by `layoutopt optimize`, and its effect on runs.

    python benchmarks/sessions.py [--seconds S] [--keep FOLDER] [--memory] [FILE or NETWORK ...]

By default the networks of examples/zoo. Prints a Markdown table with the ratios of the original to `--sessions balanced` in one
file, to `--sessions balanced --external-data`, and to `--sessions fast --external-data`: medians of pairs in one process, as
`bench` measures them. `run` is the ratio of balanced to fast sessions in time per run. With --memory, a second table has the
anonymous memory of each after a run, and of four sessions. --keep keeps the files.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1] / "examples")]

import zoo

import layoutopt
from layoutopt.bench import BenchReport, bench

MIB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("models", nargs="*", default=list(zoo.NAMES))
    arguments = parser.parse_args()
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
            report = measured(path, folder, arguments.seconds, has_memory=arguments.memory)
            rows.append(ratios(report))
            print(f"| {path.stem} | " + " | ".join(f"{ratio:.2f}" for ratio in rows[-1]) + " |", flush=True)
            memory.append(f"| {path.stem} | " + " | ".join(texts(report)) + " |" if arguments.memory else "")
    print("| geometric mean | " + " | ".join(f"{ratio:.2f}" for ratio in np.exp(np.log(rows).mean(axis=0))) + " |")
    if arguments.memory:
        print("\n| network | original | balanced | balanced, external | fast, external |\n|---|---|---|---|---|")
        print("\n".join(memory))


def measured(path: Path, folder: Path, seconds: float, *, has_memory: bool) -> BenchReport:
    """The benchmark of a model against its results, which are written if the folder does not have them."""
    files = [folder / f"{path.stem}.{kind}.onnx" for kind in ("balanced", "balanced-external", "fast-external")]
    if not all(file.exists() for file in files):
        balanced, fast = (
            layoutopt.optimize(path, "cpu", sessions=sessions, measure=False) for sessions in ("balanced", "fast")
        )
        balanced.save(files[0])
        for result, file in ((balanced, files[1]), (fast, files[2])):
            result.save(file, external_data=f"{file.stem}.data")
    return bench([path, *files], seconds=seconds, memory=has_memory)


def ratios(report: BenchReport) -> list[float]:
    """The ratios of a row."""
    _, one, external, fast = report.models
    samples = [np.concatenate(each.samples) for each in (external, fast)]
    created = [each.creation_speed_up.value for each in (one, external, fast)]
    return [*created, external.speed_up.value, fast.speed_up.value, float(np.median(samples[0] / samples[1]))]


def texts(report: BenchReport) -> list[str]:
    """The memory of one and of four sessions of each model, in MiB."""
    found = [each.memory.anonymous for each in report.models]
    numbers = [
        (each.one_session - each.before, each.several_sessions - each.before) for each in found if each is not None
    ]
    return [f"{one / MIB:.0f}, {several / MIB:.0f}" for one, several in numbers]


if __name__ == "__main__":
    main()
