"""Optimise a network for this CPU, measure it, and print the verdict.

    python examples/optimize_a_model.py [NETWORK] [TARGET] [OUTPUT]

NETWORK is a name from examples/zoo or the path of an ONNX file. A result for compilers that read formats, such as one for
TARGET ascend-910b, is verified but not measured.
"""

import sys
import tempfile
from pathlib import Path

import zoo

import layoutopt


def main(network: str = "keras_mobilenetv3s", target: str = "cpu", output: str = "optimized.onnx") -> None:
    with tempfile.TemporaryDirectory() as folder:
        original = zoo.save(network, Path(folder)) if network in zoo.NAMES else Path(network)
        result = layoutopt.optimize(original, target)
        result.save(output)
    print(f"{output}: {network}, {result.summary().partition(' for ')[2]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
