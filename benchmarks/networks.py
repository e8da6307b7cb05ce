"""The networks of examples/zoo, optimised and verified for every target in every dialect: a table of docs/backend-suite.md.

    python benchmarks/networks.py [PROCESSES] [NETWORK ...]

Counts the ways that a network was rewritten, and how many of the results were run against the original. The exit code is 1
if one computes something else, cannot be optimised, or is not proven to be the best plan. The table goes to stdout, what is
wrong to stderr.
"""

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
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
    way: suite.Way
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
        tasks = [(str(path), way) for path, way in product(paths, suite.ways())]
        found = list(pool.map(optimized, *zip(*tasks, strict=True)))
    seconds = perf_counter() - start
    print(f"{len(chosen)} networks, {len(suite.ways())} ways, {seconds:.0f} s in {processes} processes\n")
    for line in table(found):
        print(line)
    wrong = [outcome for outcome in found if outcome.wrong]
    for outcome in wrong:
        print(outcome, file=sys.stderr)
    return 1 if wrong else 0


def optimized(path: str, way: suite.Way) -> Outcome:
    """Optimise a network one way, and run the result against the original where this machine can."""
    start = perf_counter()
    target, dialect = way
    network = Path(path).stem
    try:
        verify = not suite.is_for_another_machine(way)
        report = layoutopt.optimize(path, target, dialect=dialect, verify=verify, allow_unverified=True).report
    except Exception as error:  # it must not hide the others
        return Outcome(network, way, False, False, 0.0, perf_counter() - start, f"{type(error).__name__}: {error}")
    seconds = perf_counter() - start
    verification, plan = report.verification, report.plan
    assert plan is not None
    wrong = "" if plan.gap == 0 else f"a gap of {plan.gap}"
    if verification.status == "not verified":
        wrong = f"not verified: {verification.reason}"
    verified = report.changed and verification.status == "passed"
    return Outcome(network, way, report.changed, verified, verification.largest_error or 0.0, seconds, wrong)


def table(found: Sequence[Outcome]) -> Iterator[str]:
    """By network: ways that it was rewritten, results that were run, the largest error, seconds for all ways in one process."""
    yield "| network | ways | rewritten | run against the original | largest error | wrong | seconds |"
    yield "|---|---|---|---|---|---|---|"
    for network in dict.fromkeys(outcome.network for outcome in found):
        some = [outcome for outcome in found if outcome.network == network]
        numbers = (
            len(some),
            sum(outcome.changed for outcome in some),
            sum(outcome.verified for outcome in some),
            f"{max(outcome.error for outcome in some):.1e}",
            sum(bool(outcome.wrong) for outcome in some),
            f"{sum(outcome.seconds for outcome in some):.0f}",
        )
        yield f"| {network} | {' | '.join(map(str, numbers))} |"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
