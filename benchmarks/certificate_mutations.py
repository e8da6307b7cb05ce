"""Mutations of certified models: how many the checker refuses.

    python benchmarks/certificate_mutations.py small any onnxruntime --count 2000 --seed 0
    python benchmarks/certificate_mutations.py MODEL.onnx any --count 100

`small` are the five networks of tests/certificate.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path
from time import process_time

import onnx

sys.path[:0] = [str(Path(__file__).parent.parent / folder) for folder in ("tests", "tests/certificate")]

from mutations import Subject, outcomes
from networks import NETWORKS, network

import layoutopt
from layoutopt.certificate.checker.check import parse
from layoutopt.certificate.producer import certificate_text

_COLUMNS = ("refused", "equal", "does not run", "WRONG")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("model")
    arguments.add_argument("runtimes", nargs="+")
    arguments.add_argument("--count", type=int, default=500)
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    models = (
        {name: network(name) for name in NETWORKS}
        if options.model == "small"
        else {Path(options.model).stem: onnx.load(options.model)}
    )
    start, counts = process_time(), Counter[tuple[str, str]]()
    for name, original in models.items():
        for runtime in options.runtimes:
            result = layoutopt.optimize(original, "cpu", runtime=runtime, measure=False, calibrate=False).proto
            subject = Subject(original, result, parse(certificate_text(original, result)))
            for each in outcomes(subject, options.count, options.seed):
                counts[each.kind, each.verdict] += 1
                if each.verdict == "WRONG":
                    print("WRONG", name, runtime, each.kind, each.reason, flush=True)
    print(
        f"\n{', '.join(models)}; runtimes {', '.join(options.runtimes)}; {process_time() - start:.0f} s of processor time\n"
    )
    print("| mutation | refused | equal programs | do not run | wrong |\n|---|---|---|---|---|")
    for kind in sorted({kind for kind, _ in counts}):
        print(f"| {kind} | " + " | ".join(str(counts[kind, column]) for column in _COLUMNS) + " |")
    total = [sum(number for (_, name), number in counts.items() if name == column) for column in _COLUMNS]
    print("| all | " + " | ".join(map(str, total)) + " |", flush=True)


if __name__ == "__main__":
    main()
