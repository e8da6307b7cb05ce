"""Runs ONNX's backend suite through layoutopt for every target in every dialect: see docs/correctness.md.

    python benchmarks/backend_suite.py [PROCESSES [SEED ...]]

With seeds, targets with random prices replace the real targets, and the networks are left out. Counts the cases that pass
without layoutopt and with it, the rewritten models, and the reasons for unchanged models. The exit code is 1 if layoutopt
changes whether a case passes. Tables go to stdout, differences to stderr.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter

sys.path[:0] = [str(Path(__file__).parents[1] / each) for each in ("tests", "tests/backend")]

import suite


def main(processes: str = "2", *seeds: str) -> int:
    start = perf_counter()
    chosen = [
        configuration for seed in seeds for configuration in suite.random_configurations(int(seed))
    ] or suite.configurations()
    kinds = [kind for kind in reversed(suite.KINDS) if kind != "real" or not seeds]  # the long ones first
    tasks = [(kind, name, chosen) for kind in kinds for name in suite.cases(kind)]
    # Not forked: onnxruntime has threads.
    with ProcessPoolExecutor(int(processes), get_context("spawn")) as pool:
        # Networks take a hundred times as long as other cases, so each is a task of its own.
        networks = pool.map(evaluated, [task for task in tasks if task[0] == "real"])
        others = pool.map(evaluated, [task for task in tasks if task[0] != "real"], chunksize=4)
        lists = [*networks, *others]
    found = [verdict for verdicts in lists for verdict in verdicts]
    seconds = perf_counter() - start
    print(
        f"{len(tasks)} cases, {len(chosen)} configurations, {len(found)} verdicts in {seconds:.0f} s in {processes} processes\n"
    )
    for line in (*cases(found), "", *configurations(found, chosen), "", *reasons(found)):
        print(line)
    differences = [verdict for verdict in found if not verdict.agrees]
    for verdict in differences:
        print(verdict, file=sys.stderr)
    return 1 if differences else 0


def evaluated(task: tuple[str, str, list[suite.Configuration]]) -> list[suite.Verdict]:
    kind, name, chosen = task
    return list(suite.verdicts(suite.cases(kind)[name], chosen))


def cases(found: Sequence[suite.Verdict]) -> Iterator[str]:
    """A table of the outcomes of the unchanged cases in onnxruntime, by kind."""
    yield "| cases | | pass | fail | cannot be loaded |"
    yield "|---|---|---|---|---|"
    first = [verdict for verdict in found if verdict.configuration == found[0].configuration]
    for kind, downgraded in dict.fromkeys((verdict.kind, verdict.is_downgraded) for verdict in first):
        some = Counter(
            verdict.before for verdict in first if (verdict.kind, verdict.is_downgraded) == (kind, downgraded)
        )
        name = f"{kind}, with an opset that onnxruntime supports" if downgraded else kind
        yield f"| {name} | {some.total()} | {some['passes']} | {some['fails']} | {some['cannot be loaded']} |"


def configurations(found: Sequence[suite.Verdict], chosen: Sequence[suite.Configuration]) -> Iterator[str]:
    """A table of the numbers of cases that pass without and with layoutopt, by target and dialect."""
    columns = (
        "target",
        "dialect",
        "pass without",
        "pass with",
        "rewritten",
        "which pass without",
        "and with",
        "unchanged",
        "differ",
    )
    yield f"| {' | '.join(columns)} |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for configuration in chosen:
        some = [verdict for verdict in found if verdict.configuration == configuration and verdict.after is not None]
        rewritten = [verdict for verdict in some if verdict.changed]
        numbers = (
            sum(verdict.before == "passes" for verdict in some),
            sum(verdict.after == "passes" for verdict in some),
            len(rewritten),
            sum(verdict.before == "passes" for verdict in rewritten),
            sum(verdict.after == "passes" for verdict in rewritten),
            sum(not verdict.changed and verdict.after != "refused" for verdict in some),
            sum(not verdict.agrees for verdict in some),
        )
        yield f"| {suite.target_name(configuration)} | {configuration[1] or 'its own'} | {' | '.join(map(str, numbers))} |"


def reasons(found: Sequence[suite.Verdict]) -> Iterator[str]:
    """A table of the reasons for unchanged models, and of refused models that onnxruntime cannot load either."""
    yield "| unchanged because | |"
    yield "|---|---|"
    unchanged = Counter(
        verdict.detail for verdict in found if not verdict.changed and verdict.after not in ("refused", "crashed")
    )
    for reason, count in unchanged.most_common():
        yield f"| {reason} | {count} |"
    for outcome in ("fails", "cannot be loaded"):
        refused = sum(verdict.after == "refused" for verdict in found if verdict.before == outcome)
        yield f"| (refused with an error; without layoutopt the case {outcome}) | {refused} |"
    skipped = sum(verdict.after is None for verdict in found)
    yield f"| (rewritten for another machine than this, so not run) | {skipped} |"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
