"""The numbers of ops that move activations in the networks of examples/zoo, before and after planning for a target.

    python benchmarks/moves.py [TARGET] [NETWORK ...]

Prints a Markdown table: the Transposes and Reshapes in the file of the original that move activations, and the Transposes and
reorders that onnxruntime executes for it after its own optimiser; CastData, Transposes and Reshapes in the result that move
activations; the estimated speed-up over a compiler that propagates formats from op to op, and over one in canonical formats;
the largest error against the original in onnxruntime; seconds of `optimize`, from reading to verification.
"""

import sys
import tempfile
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import zoo

import layoutopt


def main(target: str = "gpu-hopper", *networks: str) -> None:
    print(f"| {target} | in the file | executed | after | estimate: greedy | canonical | gap | error | seconds |")
    print("|---|---|---|---|---|---|---|---|---|")
    for network in networks or zoo.NAMES:
        with tempfile.TemporaryDirectory() as folder:
            path = zoo.save(network, Path(folder))
            start = perf_counter()
            report = layoutopt.optimize(path, target, runtime="compiler").report
            seconds = perf_counter() - start
        assert report.plan is not None and report.gain is not None
        before, after, moved = report.before, report.after, report.moved_before
        executed = "" if moved is None else moved.count
        print(
            f"| {network} | {before.casts + before.transposes} | {executed} | {after.casts + after.transposes} "
            f"| {report.gain.seconds_unplanned / report.gain.seconds_after:.2f} "
            f"| {report.gain.seconds_before / report.gain.seconds_after:.2f} | {report.plan.gap:.2g} "
            f"| {report.verification.largest_error or 0:.1e} | {seconds:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
