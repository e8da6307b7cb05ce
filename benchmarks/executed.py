"""How many Transposes and nodes stock onnxruntime executes of the networks of examples/zoo, before and after.

    python benchmarks/executed.py [--target T] [--dialect D] [NETWORK ...]

Prints a Markdown table: the Transposes in the file of the original, those that are left by the optimiser of onnxruntime in the
original and in the rewritten model, all nodes that are left in both, and the largest error of the rewritten model. The level of
the optimiser is the extended one, the highest that does not depend on the processor.
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

import onnx
import onnxruntime

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import zoo

import layoutopt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="gpu-hopper")
    parser.add_argument("--dialect", default="standard")
    parser.add_argument("networks", nargs="*", default=zoo.NAMES)
    asked = parser.parse_args()
    print("| network | in the file | executed | after | nodes | after | error |")
    print("|---|---|---|---|---|---|---|")
    for network in asked.networks:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            path = zoo.save(network, folder)
            result = layoutopt.optimize(path, asked.target, dialect=asked.dialect)
            result.save(folder / "out.onnx")
            written, before, after = kinds(path), executed(path), executed(folder / "out.onnx")
        error = result.report.verification.largest_error or 0
        counts = f"{written['Transpose']} | {before['Transpose']} | {after['Transpose']} | {before.total()} | {after.total()}"
        print(f"| {network} | {counts} | {error:.1e} |", flush=True)


def kinds(path: Path) -> Counter[str]:
    """The nodes of a model's main graph by type."""
    return Counter(node.op_type for node in onnx.load(path, load_external_data=False).graph.node)


def executed(path: Path) -> Counter[str]:
    """The nodes by type that onnxruntime's optimiser leaves."""
    optimised = path.with_suffix(".optimised.onnx")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(optimised)
    options.log_severity_level = 3
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return kinds(optimised)


if __name__ == "__main__":
    main()
