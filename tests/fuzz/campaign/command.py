"""The command line of the campaign."""

import argparse
import os
import platform
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from layoutopt.batch import Cluster, open_cluster
from layoutopt.errors import LayoutoptError
from layoutopt.version import VERSION

from . import client, failures
from .parts import PARTS, Entry, entry, part
from .pending import Pending, seeds_of
from .report import write_report
from .rounds import PartError, Run
from .store import Store, StoreError, lines_of
from .summary import Summary, summarize

MINUTES = 480.0
TESTS = str(Path(__file__).parents[2])
_PACKAGES = ("onnx", "onnxruntime", "onnx_ir", "numpy", "highspy")


class UsageError(Exception):
    """The command line is wrong, in one line."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def main(arguments: Sequence[str]) -> int:
    """Run a campaign, one example, or a report of campaigns; 1 if an example failed, 2 for a wrong command line."""
    try:
        options = _parser().parse_args(arguments)
        if options.only:
            return _only(options.only, options.output)
        if options.report:
            output = options.output or Path("campaign")
            return _finish(summarize(lines_of(folder) for folder in options.report), output)
        return _campaign(options)
    except (UsageError, StoreError, PartError, LayoutoptError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("error: interrupted; the same command goes on", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python benchmarks/campaign.py", description=__doc__)
    parser.add_argument(
        "--seed", type=int, default=0, metavar="S", help="first seed; each seed is one example of a part"
    )
    parser.add_argument("--minutes", type=float, metavar="M", help=f"time budget; {MINUTES:.0f} without --examples")
    parser.add_argument("--examples", type=int, metavar="N", help="examples per part; no limit without it")
    parser.add_argument("--parts", type=_names, metavar="A,B", help=f"of {', '.join(PARTS)}; all that are installed")
    parser.add_argument("--shard", type=_shard, default=(1, 1), metavar="K/N", help="every N-th seed, from the K-th on")
    parser.add_argument(
        "--cluster", metavar="URL", help="dask://HOST:PORT or ray://HOST:PORT; worker processes if left out"
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="worker processes; one per core if left out")
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="outcomes, failures, report; 'campaign' if left out"
    )
    parser.add_argument("--only", type=_example, metavar="PART:SEED", help="run one example, and keep it in --output")
    parser.add_argument("--report", type=Path, nargs="+", metavar="FOLDER", help="write one report of several folders")
    return parser


def _names(text: str) -> list[str]:
    names = text.split(",")
    if wrong := [name for name in names if entry(name) is None]:
        raise UsageError(f"--parts: there is no part {wrong[0]!r}; use {', '.join(PARTS)}, or a module with a PART")
    return names


def _shard(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise UsageError(f"--shard: {text!r} is not K/N; use 1/4 for the first of four")
    return int(number), int(count)


def _example(text: str) -> tuple[str, int]:
    name, _, seed = text.rpartition(":")
    if entry(name) is None or not seed.isdigit():
        raise UsageError(f"--only: {text!r} is not PART:SEED; use graphs:0, for example")
    return name, int(seed)


def _only(example: tuple[str, int], output: Path | None) -> int:
    """Run one example, print its outcome, and write its files into a folder."""
    name, seed = example
    _installed([name])
    answer = client.run({"part": name, "seeds": [seed], "seconds": 1.0, "until": time.time() + 86400})
    if "examples" not in answer:
        raise PartError(f"part {name}: {answer.get('error', 'its server is killed')}")
    (line,) = answer["examples"]
    print(f"{name}:{seed}: {line['kind']}: {line.get('detail', '')}".rstrip(": "))
    if output is not None:
        failures.write(output, line, client.run(failures.request(line)))
        print(f"its files are in {output}")
    client.close()
    return 1 if line.get("failure") else 0


def _installed(names: Sequence[str]) -> dict[str, Entry]:
    """The rows of parts.

    Raises:
        UsageError: a package that a part needs is missing.
    """
    rows = {name: row for name in names if (row := entry(name)) is not None}
    for name, row in rows.items():
        if not row.is_installed:
            raise UsageError(f"part {name} needs the package {row.package}; install it with: pip install {row.package}")
    return rows


def _campaign(options: argparse.Namespace) -> int:
    names = options.parts or [name for name, entry in PARTS.items() if entry.is_installed]
    rows = _installed(names)
    minutes = options.minutes if options.minutes or options.examples else MINUTES
    output = options.output or Path("campaign")
    settings = {"seed": options.seed, "shard": "/".join(map(str, options.shard))}
    os.environ["PYTHONPATH"] = os.pathsep.join([TESTS, *filter(None, [os.environ.get("PYTHONPATH")])])  # for workers
    with open_cluster(options.cluster, options.jobs) as cluster:
        store = Store(output, settings)
        begin = time.time()
        session = {**_session(cluster, names, minutes), "settings": settings}
        try:
            _run(options, rows, cluster, store, begin + 60 * minutes if minutes else float(1 << 40), session)
        finally:
            store.append([{"ended": datetime.now(UTC).isoformat(timespec="seconds"), "seconds": time.time() - begin}])
            store.close()
            code = _finish(summarize([store.lines]), output)
    return code


def _run(
    options: argparse.Namespace, rows: dict[str, Entry], cluster: Cluster, store: Store, deadline: float, session: Any
) -> None:
    """Run rounds until the deadline."""
    summary = summarize([store.lines])
    pending = {}
    for name in rows:
        counts = [count for count in (options.examples, part(name).size) if count is not None]
        seeds = seeds_of(options.seed, min(counts, default=None), options.shard)
        pending[name] = Pending(seeds, summary.parts[name].seeds if name in summary.parts else ())

    def append(lines: list[dict[str, Any]]) -> None:
        store.append(lines)
        for line in lines:
            if line.get("failure"):
                print(
                    f"FAILURE {line['part']}:{line['seed']} {line['kind']}: {line.get('detail', '')[:300]}", flush=True
                )

    run = Run(cluster, pending, {name: row.share for name, row in rows.items()}, deadline, append)
    for line in store.lines:
        run.add(line)
    store.append([{"session": session}])
    for some in run.rounds():
        failures.keep(some, cluster, options.output or Path("campaign"))
        done = ", ".join(f"{run.done[name]} {name}" for name in rows)
        print(f"{datetime.now(UTC):%H:%M:%S} {done}", flush=True)
        write_report(summarize([store.lines]), options.output or Path("campaign"))


def _session(cluster: Cluster, names: Sequence[str], minutes: float | None) -> dict[str, Any]:
    """The versions, the machine and the budget."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "layoutopt": VERSION,
            "python": platform.python_version(),
            **{each: version(each) for each in _PACKAGES},
        },
        "machine": {"system": platform.platform(terse=True), "processor": _processor(), "cpus": os.cpu_count()},
        "workers": cluster.num_workers,
        "parts": list(names),
        "minutes": minutes,
    }


def _processor() -> str:
    """The name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _finish(summary: Summary, output: Path) -> int:
    """Write the report, and return the exit code."""
    write_report(summary, output)
    count = sum(each.examples for each in summary.parts.values())
    print(f"{count} examples, {len(summary.failures)} failures; the report is {output / 'report.html'}")
    return 1 if summary.failures else 0
