"""The networks of examples/zoo, optimised and verified for every target in every dialect: see docs/correctness.md.

    python benchmarks/networks.py [PROCESSES] [NETWORK ...]

Counts the configurations in which a network was rewritten, and the results that were run against the original. The exit code is
1 if a result is not equivalent, a network cannot be optimised, or a plan is not proven optimal. Each row goes to stdout and its
faults to stderr when its network is done: large ones take half an hour.
"""

import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice, product
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

sys.path[:0] = [str(Path(__file__).parents[1] / each) for each in ("examples", "tests", "tests/backend")]

import suite
import zoo

import layoutopt


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a network in one configuration; `wrong` lists violated expectations."""

    network: str
    configuration: suite.Configuration
    changed: bool
    verified: bool
    error: float
    seconds: float
    wrong: str = ""


def main(processes: str = "2", *networks: str) -> int:
    start = perf_counter()
    chosen = networks or tuple(zoo.NAMES)
    with (
        TemporaryDirectory() as folder,
        ProcessPoolExecutor(int(processes), get_context("spawn")) as pool,  # not forked: onnxruntime has threads
    ):
        paths = list(pool.map(zoo.save, chosen, [Path(folder)] * len(chosen)))
        tasks = [(str(path), configuration) for path, configuration in product(paths, suite.configurations())]
        found = pool.map(optimized, *zip(*tasks, strict=True))
        print("| network | configurations | rewritten | run against the original | largest error | wrong | seconds |")
        print("|---|---|---|---|---|---|---|", flush=True)
        wrong = [
            fault for path in paths for fault in faults(path.stem, list(islice(found, len(suite.configurations()))))
        ]
    seconds = perf_counter() - start
    print(
        f"\n{len(chosen)} networks, {len(suite.configurations())} configurations, {seconds:.0f} s in {processes} processes"
    )
    return 1 if wrong else 0


def optimized(path: str, configuration: suite.Configuration) -> Outcome:
    """Optimise a network in one configuration, and run the result against the original if this machine can."""
    start = perf_counter()
    target, dialect = configuration
    network = Path(path).stem
    try:
        verify = not suite.is_for_another_machine(configuration)
        report = layoutopt.optimize(
            path, target, dialect=dialect, verify=verify, allow_unverified=True, measure=False, calibrate=False
        ).report
    except Exception as error:  # it must not hide the others
        return Outcome(
            network, configuration, False, False, 0.0, perf_counter() - start, f"{type(error).__name__}: {error}"
        )
    seconds = perf_counter() - start
    verification, plan = report.verification, report.plan
    assert plan is not None
    wrong = "" if plan.gap == 0 else f"a gap of {plan.gap}"
    if verification.status == "not verified":
        wrong = f"not verified: {verification.reason}"
    verified = report.changed and verification.status == "passed"
    return Outcome(network, configuration, report.changed, verified, verification.largest_error or 0.0, seconds, wrong)


def faults(network: str, found: Sequence[Outcome]) -> list[Outcome]:
    """Print the row of a network and its faults, and return these."""
    wrong = [outcome for outcome in found if outcome.wrong]
    numbers = (
        len(found),
        sum(outcome.changed for outcome in found),
        sum(outcome.verified for outcome in found),
        f"{max(outcome.error for outcome in found):.1e}",
        len(wrong),
        f"{sum(outcome.seconds for outcome in found):.0f}",
    )
    print(f"| {network} | {' | '.join(map(str, numbers))} |", flush=True)
    for outcome in wrong:
        print(outcome, file=sys.stderr, flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
