"""Speed-up of networks in stock onnxruntime by `layoutopt optimize`.

    python benchmarks/speed.py [--target T] [--dialect D] [--threads N] [--batch N] [--seconds S] [--light]
                               [--deployed] [FILE or NETWORK ...]

By default target `cpu`, the networks of examples/zoo, one thread on one CPU, batch as exported. Prints a Markdown table:
the original's time divided by the rewritten model's (as `bench` measures it, with its interval), the same for session
creation, the share of kernel time in Transpose and Reorder nodes, the largest error, and, with --openvino, OpenVINO's time
divided by the rewritten model's. `--batch` sets the first extent of the inputs, and leaves
out networks with a constant batch in their shapes. `--light` uses the models of the onnx package, with random weights.
`--deployed` measures the networks that people deploy, planned with the default options, at the sizes of `zoo.SIZES`.
"""

import argparse
import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

sys.path[:0] = [str(Path(__file__).parents[1] / "examples"), str(Path(__file__).parents[1] / "tests" / "e2e")]

import light
import zoo

import layoutopt
from layoutopt.bench import bench
from layoutopt.errors import LayoutoptError


def main() -> None:
    arguments = parse()
    has_openvino = importlib.util.find_spec("openvino") is not None and arguments.openvino
    print("| network | speed-up | interval | session | reorder share | error | against OpenVINO |")
    print("|---|---|---|---|---|---|---|")
    speed_ups, sessions = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in models(arguments, folder):
            try:
                result = layoutopt.optimize(path, arguments.target, dialect=arguments.dialect, measure=False)
            except LayoutoptError as error:
                print(f"| {path.stem} | {error.what:.80} | | | | | |", flush=True)
                continue
            out = folder / "out.onnx"
            result.save(out)
            options = {"threads": arguments.threads, "seconds": arguments.seconds, **sized(path)}
            report = bench([path, out], **options)
            before, after = report.models
            speed_ups.append(after.speed_up.value)
            sessions.append(after.creation_speed_up)
            other = openvino_ratio(path, after.seconds, options) if has_openvino else ""
            spread = f"{after.speed_up.low:.2f} to {after.speed_up.high:.2f}"
            share = f"{before.reorder_share:.1%} to {after.reorder_share:.1%}"
            error = f"{result.report.verification.largest_error or 0:.1e}"
            print(
                f"| {path.stem} | {speed_ups[-1]:.2f} | {spread} | {sessions[-1]:.2f} | {share} | {error} | {other} |",
                flush=True,
            )
            out.unlink()
    session = f"{mean(sessions):.2f}" if sessions else ""
    print(f"| geometric mean | {mean(speed_ups):.2f} | | {session} | | | |")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--dialect")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--light", action="store_true")
    parser.add_argument("--deployed", action="store_true")
    parser.add_argument("--openvino", action="store_true")
    parser.add_argument("networks", nargs="*")
    return parser.parse_args()


def models(arguments: argparse.Namespace, folder: Path) -> Iterator[Path]:
    """The files, one after the other; one that was made here is removed before the next."""
    source = light if arguments.light else zoo
    for network in arguments.networks or (zoo.DEPLOYED if arguments.deployed else source.NAMES):
        if Path(network).suffix == ".onnx":
            yield Path(network)
            continue
        model = source.load(network)
        if arguments.batch and not rebatched(model, arguments.batch):
            print(f"| {network} | its batch is constant in its shapes | | | | | |", flush=True)
            continue
        path = folder / f"{network}.onnx"
        onnx.save(model, path)
        yield path
        path.unlink()


def sized(path: Path) -> dict[str, Any]:
    """Sizes of symbolic dimensions of a network of the zoo, and the sample rate that Silero VAD takes."""
    rate = {"inputs": {"sr": np.array(16000)}} if path.stem == "silero_vad" else {}
    return {"dims": zoo.SIZES.get(path.stem, {}), **rate}


def rebatched(model: onnx.ModelProto, batch: int) -> bool:
    """Give the inputs another batch, and return whether the model is still valid."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for value in model.graph.input:
        if value.name not in constants:
            value.type.tensor_type.shape.dim[0].dim_value = batch
    for node in model.graph.node:
        if node.op_type == "Reshape" and node.input[1] in constants:
            tensor = constants[node.input[1]]
            shape = onnx.numpy_helper.to_array(tensor).copy()
            if shape.size and shape[0] == 1:
                shape[0] = batch
                tensor.CopyFrom(onnx.numpy_helper.from_array(shape, tensor.name))
    del model.graph.value_info[:]
    outputs = {value.name: value for value in model.graph.output}
    for value in outputs.values():
        value.type.tensor_type.ClearField("shape")
    try:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError:
        return False
    for value in inferred.graph.output:
        outputs[value.name].CopyFrom(value)
    return all(value.type.tensor_type.HasField("shape") for value in outputs.values())


def openvino_ratio(path: Path, seconds: float, options: dict[str, Any]) -> str:
    """OpenVINO's time for the original, divided by `seconds`."""
    try:
        (report,) = bench([path], runtimes=["openvino"], **options).models
    except LayoutoptError:
        return "cannot run it"
    return f"{report.seconds / seconds:.2f}"


def mean(ratios: list[float]) -> float:
    return float(np.exp(np.mean(np.log(ratios))))


if __name__ == "__main__":
    main()
