"""Predicted against measured speed-ups of `layoutopt optimize --target cpu`, for networks that nothing was fitted to.

    python benchmarks/prediction.py [--all] [--plan] [--seconds S] [--store FOLDER] [--user-cache] [FILE or NETWORK ...]

Two predictions are compared with a measurement in pairs, one thread on one CPU, in processor time:

- *kernels*: the sum of the times of the executed kernels of the original and of the result, each timed alone;
- *plan*: the estimate that `optimize` prints: the original as onnxruntime optimises it, and the plan, at calibrated prices.

Prints a Markdown table, and for both predictions Spearman's rank correlation with the measured speed-up (for four or more
networks), the median and the largest error. Kernel times go to a new folder unless --store names one. Those of plans go to a
new folder for every network, as in a user's first call; with --user-cache to the user's cache folder.

Without names, the networks of examples/zoo; with --all those that people deploy, decoders and the light models of onnx, too, at
the sizes of `zoo.SIZES`. --plan leaves out the prediction by executed kernels, which takes most of the time.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np
import onnx

sys.path[:0] = [str(Path(__file__).parents[1] / "examples"), str(Path(__file__).parents[1] / "tests" / "e2e")]

import light
import zoo
from executed_kernels import estimate_run

import layoutopt
from layoutopt.errors import LayoutoptError
from layoutopt.kernel_times.store import KernelStore, Machine
from layoutopt.sample_inputs import sample_inputs_for
from layoutopt.timing.speed_up import measure_in_turns, speed_ups
from layoutopt.verification import Runnable


@dataclass(frozen=True, slots=True)
class Row:
    """One network: predicted and measured speed-ups, the interval of the latter, and the seconds that the prediction took."""

    name: str
    kernels: float | None
    plan: float
    measured: float
    low: float
    high: float
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", metavar="FILE or NETWORK")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--user-cache", action="store_true")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = None if arguments.plan else KernelStore(Machine.current(), arguments.store or folder / "times")
        print(
            "| network | predicted: kernels | predicted: plan | measured | interval | seconds |\n|---|---|---|---|---|---|"
        )
        for path in paths(arguments.models, arguments.all, folder):
            if not arguments.user_cache:
                os.environ["XDG_CACHE_HOME"] = str(folder / "caches" / path.stem)
            try:
                row = predict(path, folder / "out.onnx", store, arguments.seconds)
            except LayoutoptError as error:
                print(f"{path.stem}: {error}", file=sys.stderr)
                continue
            if row is not None:
                rows.append(row)
                interval = f"{row.low:.2f} to {row.high:.2f}"
                kernels = "" if row.kernels is None else f"{row.kernels:.3f}"
                cells = (row.name, kernels, f"{row.plan:.3f}", f"{row.measured:.3f}", interval)
                print(f"| {' | '.join(cells)} | {row.seconds:.1f} |", flush=True)
    if rows:
        measured = [row.measured for row in rows]
        if not arguments.plan:
            print(summary("kernels", [row.kernels or 0.0 for row in rows], measured))
        print(summary("plan", [row.plan for row in rows], measured))


def paths(models: list[str], is_all: bool, folder: Path) -> Iterator[Path]:
    """The files of the networks."""
    for each in models or [*zoo.NAMES, *((*zoo.DEPLOYED, *zoo.DECODERS, *light.NAMES) if is_all else ())]:
        if Path(each).exists():
            yield Path(each)
        else:
            yield save_light(each, folder) if each in light.NAMES else zoo.save(each, folder)


def save_light(name: str, folder: Path) -> Path:
    """Write a light model of the onnx package into a folder."""
    path = folder / f"{name}.onnx"
    onnx.save(light.load(name), path)
    return path


def predict(path: Path, out: Path, store: KernelStore | None, seconds: float) -> Row | None:
    """The predictions and the measurement of one network; None if it is left unchanged."""
    dims = zoo.SIZES.get(path.stem, {})
    result = layoutopt.optimize(path, "cpu", dims=dims, measure=False)
    if not result.report.changed or result.plan is None:
        return None
    result.save(out)
    original, rewritten = Runnable.of(path), Runnable.of(out)
    samples = sample_inputs_for(path, dims, {})
    session = original.timed_session(1)
    feed = samples.feed(session, samples.planned)
    del session
    begin = perf_counter()
    kernels = None
    if store is not None:
        before, after = (estimate_run(each, feed, store).seconds for each in (original, rewritten))
        kernels = before / after
    passed = perf_counter() - begin
    sessions = [lambda: original.timed_session(1), lambda: rewritten.timed_session(1)]
    blocks = measure_in_turns(sessions, lambda session: [partial(session.run, None, feed)], seconds=seconds)
    (found,) = speed_ups(blocks, 1)
    gain = result.report.gain
    assert gain is not None
    plan = gain.seconds_before / gain.seconds_after
    return Row(path.stem, kernels, plan, found.runs.value, found.runs.low, found.runs.high, passed)


def ranks(values: Sequence[float]) -> np.ndarray:
    """The ranks of numbers, with the mean rank for equal ones: networks that stay as they are have the speed-up 1."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    mean: np.ndarray = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return mean


def summary(name: str, predicted: Sequence[float], measured: Sequence[float]) -> str:
    """Rank correlation and errors of a prediction, in one line."""
    both = [ranks(values) for values in (predicted, measured)]
    is_defined = len(measured) >= 4 and all(np.ptp(each) for each in both)
    correlation = f"{np.corrcoef(*both)[0, 1]:.2f}" if is_defined else "not defined"
    errors = np.abs(np.divide(predicted, measured) - 1)
    return f"{name}: rank correlation {correlation}, median error {np.median(errors):.1%}, largest {errors.max():.1%}"


if __name__ == "__main__":
    main()
