"""Optimise a real network for a GPU, and say what came of it.

    python examples/optimize_a_model.py [NETWORK] [TARGET] [OUTPUT]

NETWORK is one of those in examples/zoo, or a file of yours.
"""

import sys
import tempfile
from pathlib import Path

import zoo

import layoutopt


def main(network: str = "keras_mobilenetv3s", target: str = "gpu-hopper", output: str = "optimized.onnx") -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = zoo.save(network, Path(folder)) if network in zoo.NAMES else Path(network)
        result = layoutopt.optimize(path, target)
        result.save(output)
    report = result.report
    assert report.plan is not None
    before, after = report.before, report.after
    print(f"{network} for {report.target}, written to {output}")
    print(f"  ops that move activations   {before.casts + before.transposes} -> {after.casts + after.transposes}")
    print(f"  estimated time              {report.plan.seconds_before:.3g} s -> {report.plan.seconds_after:.3g} s")
    print(f"  proven: no plan is better than {report.plan.lower_bound:.3g} s (gap {report.plan.gap:.2g})")
    print(f"  against the original        {report.verification.status}, error {report.verification.largest_error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
