"""The gain of `layoutopt optimize --target cpu --tune SECONDS` over the first plan.

    python benchmarks/tuning.py [--seconds S] [--wrong-prices SEED] [FILE or NETWORK ...]

Prints a Markdown table, one row per network: the measured speed-up of the written model over the original, that of the
chosen variant over the first plan (measured once more after the search), the numbers of variants and of those that were
measured, the chosen variant, the speed-ups over the first plan of the measured plans at learnt prices and of the other measured
variants (the number of them, the median, and the largest), and the load of the machine.

With `--wrong-prices`, first plans are made at prices of the target that are multiplied by random factors, whose logarithms have
a standard deviation of 0.3.
"""

import argparse
import math
import os
import random
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import zoo

import layoutopt
from layoutopt.cost import CostModel, CostModelWrapper
from layoutopt.cost.scaled import planned_conversion, planned_kernel
from layoutopt.cost_models import find_target
from layoutopt.cost_models.registry import host_target
from layoutopt.ir.types import Op, Signature, Storage, Value
from layoutopt.report.schema import Report, VariantReport

_HEADER = (
    "network",
    "over the original",
    "over the first plan",
    "interval",
    "variants",
    "measured",
    "chosen",
    "at learnt prices",
    "others",
    "load",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", metavar="FILE or NETWORK", default=zoo.NAMES)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--wrong-prices", type=int, metavar="SEED")
    arguments = parser.parse_args()
    print(f"| {' | '.join(_HEADER)} |\n|{'---|' * len(_HEADER)}")
    with tempfile.TemporaryDirectory() as folder:
        for each in arguments.models:
            path = Path(each) if Path(each).exists() else zoo.save(each, Path(folder))
            report = tuned(path, arguments.seconds, arguments.wrong_prices)
            print(f"| {' | '.join(row(path.stem, report))} |", flush=True)


class WrongPrices(CostModelWrapper):
    """The prices of a target, each multiplied by a random factor."""

    def __init__(self, model: CostModel, seed: int) -> None:
        super().__init__(model)
        self._seed = seed

    def kernel_seconds(self, op: Op, signature: Signature) -> float:
        return self._factor(planned_kernel(op, signature)) * self._model.kernel_seconds(op, signature)

    def conversion_seconds(self, value: Value, src: Storage, dst: Storage) -> float:
        return self._factor(planned_conversion(value, src, dst)) * self._model.conversion_seconds(value, src, dst)

    def _factor(self, key: object) -> float:
        return math.exp(random.Random(f"{self._seed} {key}").gauss(0, 0.3))


def tuned(path: Path, seconds: float, seed: int | None) -> Report:
    """The report of a network, with the seed of wrong prices."""
    if seed is None:
        return layoutopt.optimize(path, "cpu", tune=seconds).report
    model = WrongPrices(find_target(host_target()), seed)
    return layoutopt.optimize(path, model, runtime="onnxruntime", tune=seconds, calibrate=False).report


def gains(variants: list[VariantReport]) -> str:
    """The number of measured variants, and the median and the largest speed-up over the first plan."""
    found = [each.over_first for each in variants if each.over_first is not None]
    return f"{len(found)}: {statistics.median(found):.3f}, {max(found):.3f}" if found else ""


def row(name: str, report: Report) -> list[str]:
    """The cells of a network."""
    tuning, measured = report.tuning, report.measurement.sizes if report.measurement is not None else []
    assert tuning is not None
    over_original = f"{measured[0].speed_up:.3f}" if report.changed and measured else "unchanged"
    over_first = f"{tuning.over_first:.3f}" if tuning.over_first is not None else ""
    interval = f"{tuning.low:.3f} to {tuning.high:.3f}" if tuning.low is not None else ""
    count, runs = len(tuning.variants), sum(each.gain is not None for each in tuning.variants)
    chosen = tuning.chosen or tuning.reason or "first plan"
    learnt = [each for each in tuning.variants if "prices learnt" in each.name]
    others = [each for each in tuning.variants if each not in learnt]
    load = f"{os.getloadavg()[0]:.1f}"
    return [
        name,
        over_original,
        over_first,
        interval,
        str(count),
        str(runs),
        chosen,
        gains(learnt),
        gains(others),
        load,
    ]


if __name__ == "__main__":
    main()
