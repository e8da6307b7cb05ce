"""Networks of examples/zoo in half precision and in integers: formats by target, casts, estimated time, error.

    python benchmarks/narrow.py [TARGET ...]

Prints a Markdown table. The format is that of most convolutions, or of most products if a network has few convolutions; `least`
is the minimum of moves over all plans with the same formats.
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import onnx
import zoo
from narrow_models import quantized, to_float16

import layoutopt
from layoutopt.report.schema import Report

NETWORKS = ("resnet50", "mobilenetv2", "segformer_b0", "vit_s")
TARGETS = ("gpu-turing", "gpu-ampere", "gpu-hopper", "ascend-310", "ascend-910b")


def forms(network: str, folder: Path) -> dict[str, Path]:
    """The files of a network in float16 and quantised, by name."""
    path, half = zoo.save(network, folder), folder / f"{network}_half.onnx"
    onnx.save(to_float16(onnx.load(path)), half)
    channels, tensors = (quantized(path, per_channel=each, folder=folder) for each in (True, False))
    return {"float16": half, "int8 per channel": channels, "int8 per tensor": tensors}


def common_formats(report: Report) -> str:
    """The formats that most convolutions, or else products, read and write."""
    for kinds in (("Conv",), ("MatMul", "Gemm")):
        found = Counter((op.inputs[0], op.outputs[0]) for op in report.ops if op.kind in kinds)
        if found.total() > 1:
            (x, y), _ = found.most_common(1)[0]
            return f"{x}" if x == y else f"{x} to {y}"
    return ""


def main(*targets: str) -> None:
    print("| network | numbers | target | formats | moves before | after | least | estimate | gap | error | of |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for network in NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            for numbers, path in forms(network, Path(folder)).items():
                for target in targets or TARGETS:
                    report = layoutopt.optimize(path, target, runtime="compiler", count_moves=True).report
                    before, after, plan, check = report.before, report.after, report.plan, report.verification
                    assert plan is not None and check.status == "passed", check.reason
                    print(
                        f"| {network} | {numbers} | {target} | {common_formats(report)} | {before.casts + before.transposes} "
                        f"| {after.casts + after.transposes} | {plan.least_moves} "
                        f"| {plan.seconds_before / plan.seconds_after:.2f}x | {plan.gap:.2g} "
                        f"| {check.largest_error or 0:.1e} | {check.tolerance or 0:.0e} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main(*sys.argv[1:])
