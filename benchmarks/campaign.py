"""Random graphs, mutants of real networks and damaged files: a campaign of any number of examples.

    python benchmarks/campaign.py --minutes 480                     # all parts in turn
    python benchmarks/campaign.py --parts files --seed 1000 --examples 500
    python benchmarks/campaign.py --only graphs:129 --output FOLDER     # one example, and its files

Example `PART:SEED` is the same in every campaign. Each runs in a process of its own with limits of time and memory. The exit
code is 1 if an example has failed.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fuzz import base_models, files, op_samples, oracle, structure
from fuzz.isolation import Verdict, in_separate_process, outcomes

PARTS = {"graphs": oracle, "mutants": structure, "files": files}
CHUNK = 50  # examples of a part before the next part's turn


def main(arguments: Sequence[str]) -> int:
    """Run a campaign; 1 if an example failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help="parts to run, in turn")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; each is one example of every part")
    parser.add_argument("--examples", type=int, default=1 << 40, help="examples per part")
    parser.add_argument("--minutes", type=float, default=480.0, help="time after which no example is started")
    parser.add_argument("--only", metavar="PART:SEED", help="one example")
    parser.add_argument("--output", type=Path, default=Path("campaign"), help="the folder of the files of failures")
    options = parser.parse_args(arguments)
    names = [options.only.partition(":")[0]] if options.only else options.parts.split(",")
    if wrong := [name for name in names if name not in PARTS]:
        parser.error(f"there is no part {wrong[0]!r}; use {', '.join(PARTS)}")
    seed, count = (int(options.only.partition(":")[2]), 1) if options.only else (options.seed, options.examples)
    for prepare in (op_samples.prepare, base_models.prepare, files.load):
        prepare()
    until, kinds = time.monotonic() + 60 * options.minutes, Counter[tuple[str, str]]()
    failures = 0
    for first in range(seed, seed + count, CHUNK):
        for name in names:
            for each, found in outcomes(
                PARTS[name].examine, range(first, min(first + CHUNK, seed + count)), until=until
            ):
                verdict = _explained(PARTS[name], each, found)
                kinds[name, verdict.kind] += 1
                failures += verdict.is_failure
                if verdict.is_failure or options.only:
                    _keep(PARTS[name], each, verdict, options.output / f"{name}-{each}")
                    print(f"{name}:{each}: {verdict.kind}: {verdict.detail[:300]}", flush=True)
        if time.monotonic() >= until:
            break
    for (name, kind), number in sorted(kinds.items()):
        print(f"{name:8} {number:7,} {kind}")
    return 1 if failures else 0


def _explained(part: ModuleType, seed: int, found: Verdict) -> Verdict:
    """The verdict on an example; of a crash, with the program that is to blame, where the part can find that out."""
    if not found.is_crash or not hasattr(part, "explain"):
        return found
    explained = in_separate_process(lambda: part.explain(seed, found))
    return found if explained.is_crash else explained


def _keep(part: ModuleType, seed: int, verdict: Verdict, folder: Path) -> None:
    """Write the files of an example."""

    def keep() -> Verdict:
        part.keep(seed, verdict, folder)
        return Verdict("kept")

    folder.mkdir(parents=True, exist_ok=True)
    in_separate_process(keep)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
