"""The gain of `layoutopt optimize --target cpu --tune SECONDS` over the first plan.

    python benchmarks/tuning.py [--seconds S] [FILE or NETWORK ...]

Prints a Markdown table, one row per network: the measured speed-up of the written model over the original, that of the
chosen variant over the first plan (measured once more after the search), the numbers of variants and of those that were
measured, the chosen variant, and the load of the machine.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import zoo

import layoutopt
from layoutopt.report.schema import Report

_HEADER = ("network", "over the original", "over the first plan", "interval", "variants", "measured", "chosen", "load")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", metavar="FILE or NETWORK", default=zoo.NAMES)
    parser.add_argument("--seconds", type=float, default=30.0)
    arguments = parser.parse_args()
    print(f"| {' | '.join(_HEADER)} |\n|{'---|' * len(_HEADER)}")
    with tempfile.TemporaryDirectory() as folder:
        for each in arguments.models:
            path = Path(each) if Path(each).exists() else zoo.save(each, Path(folder))
            report = layoutopt.optimize(path, "cpu", tune=arguments.seconds).report
            print(f"| {' | '.join(row(path.stem, report))} |", flush=True)


def row(name: str, report: Report) -> list[str]:
    """The cells of a network."""
    tuning, measured = report.tuning, report.measurement.sizes if report.measurement is not None else []
    assert tuning is not None
    over_original = f"{measured[0].speed_up:.3f}" if report.changed and measured else "unchanged"
    over_first = f"{tuning.over_first:.3f}" if tuning.over_first is not None else ""
    interval = f"{tuning.low:.3f} to {tuning.high:.3f}" if tuning.low is not None else ""
    count, runs = len(tuning.variants), sum(each.gain is not None for each in tuning.variants)
    chosen = tuning.chosen or tuning.reason or "first plan"
    return [name, over_original, over_first, interval, str(count), str(runs), chosen, f"{os.getloadavg()[0]:.1f}"]


if __name__ == "__main__":
    main()
