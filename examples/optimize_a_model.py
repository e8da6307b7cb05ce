"""Optimise a network, and time the result against the original on this CPU.

    python examples/optimize_a_model.py [NETWORK] [TARGET] [OUTPUT]

NETWORK is a name from examples/zoo or the path of an ONNX file. A result for compilers that read formats, such as one for
TARGET ascend-910b, is verified but not timed. The example times the result itself, and writes it even if it is slower; the
command `layoutopt optimize` keeps the original then.
"""

import sys
import tempfile
from pathlib import Path

import zoo

import layoutopt
from layoutopt.bench import bench

SECONDS = 4.0  # of timed rounds


def main(network: str = "keras_mobilenetv3s", target: str = "cpu", output: str = "optimized.onnx") -> None:
    with tempfile.TemporaryDirectory() as folder:
        original = zoo.save(network, Path(folder)) if network in zoo.NAMES else Path(network)
        result = layoutopt.optimize(original, target, measure=False)
        result.save(output)
        report = result.report
        print(f"{network}, optimised for {report.target}, written to {output}")
        if report.runtime != "compiler":
            print(f"  measured on this CPU   {measured(original, Path(output))}")
    before, after, verification = report.moved_before, report.moved_after, report.verification
    if before is not None and after is not None:
        counts = f"{before.count} -> {after.count} Transposes and reorders"
        sizes = f"{before.nbytes / 1e6:.2f} MB -> {after.nbytes / 1e6:.2f} MB"
        print(f"  data movement          {counts} that onnxruntime executes, {sizes}")
    if report.plan is not None and report.gain is not None:
        proof = "proven optimal for these formats" if report.plan.gap <= 0 else f"gap {report.plan.gap:.2%}"
        times = f"{1e3 * report.gain.seconds_before:.3g} ms -> {1e3 * report.gain.seconds_after:.3g} ms"
        print(f"  estimated time         {times}, {proof}")
    print(f"  verification           {verification.status}, largest error {verification.largest_error or 0:.1e}")


def measured(original: Path, optimized: Path) -> str:
    """The speed-up in onnxruntime, one thread, runs of both models in turns."""
    report = bench([original, optimized], seconds=SECONDS)
    speed_up = report.models[1].speed_up
    assert speed_up is not None
    interval = f"95% confidence interval {speed_up.low:.2f} to {speed_up.high:.2f}"
    return f"{speed_up.value:.2f} times as fast ({interval}; {report.machine.cpu}, 1 thread)"


if __name__ == "__main__":
    main(*sys.argv[1:])
