"""Speed-up of networks in stock onnxruntime by `layoutopt optimize`.

    python benchmarks/speed.py [--target T] [--dialect D] [--threads N] [--batch N] [--seconds S] [--light]
                               [--deployed] [--decoders] [--each-runtime] [FILE or NETWORK ...]

By default target `cpu`, the networks of examples/zoo, one thread on one CPU, batch as exported. Prints a Markdown table: the
original's time divided by the result's (as `bench` measures it, with its interval), the same for session creation, the share of
kernel time in Transpose and Reorder nodes, and the largest error. Results are those of the default options, which keep an
original that is faster. `--batch` sets the first extent of the inputs, and leaves out networks with a constant batch in their
shapes. `--light` uses the models of the onnx package, with random weights. `--deployed` measures the networks that people
deploy, and `--decoders` language models, at the sizes of `zoo.SIZES`.

With --each-runtime, the original runs in onnxruntime and in OpenVINO, in turns with the results of `--target cpu` in
onnxruntime and of `--runtime openvino` in OpenVINO: milliseconds of the fastest runs, the speed-ups with their intervals, and
the fastest of the four.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
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
from layoutopt.onnx_io.interface import read_interface
from layoutopt.runtime.engines import find_engine
from layoutopt.runtime.errors import error_message
from layoutopt.sample_inputs import Feed, same_inputs
from layoutopt.timing.speed_up import engine_clock, measure_in_turns
from layoutopt.timing.statistics import ratio


def main() -> None:
    arguments = parse()
    if arguments.each_runtime:
        print_runtimes(arguments)
        return
    print("| network | speed-up | interval | session | reorder share | error |\n|---|---|---|---|---|---|")
    speed_ups, sessions = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in models(arguments, folder):
            options, threads = sized(path), arguments.threads
            try:
                result = layoutopt.optimize(
                    path, arguments.target, dialect=arguments.dialect, dims=options["dims"], threads=threads
                )
            except LayoutoptError as error:
                print(f"| {path.stem} | {error.what:.80} | | | | |", flush=True)
                continue
            if not result.report.changed:
                print(f"| {path.stem} | unchanged: {result.report.reason:.80} | | | | |", flush=True)
                speed_ups.append(1.0)
                sessions.append(1.0)
                continue
            out = folder / "out.onnx"
            result.save(out)
            report = bench([path, out], threads=threads, seconds=arguments.seconds, **options)
            before, after = report.models
            speed_ups.append(after.speed_up.value)
            sessions.append(after.creation_speed_up)
            spread = f"{after.speed_up.low:.2f} to {after.speed_up.high:.2f}"
            share = f"{before.reorder_share:.1%} to {after.reorder_share:.1%}"
            error = f"{result.report.verification.largest_error or 0:.1e}"
            cells = path.stem, f"{speed_ups[-1]:.2f}", spread, f"{sessions[-1]:.2f}", share, error
            print(f"| {' | '.join(cells)} |", flush=True)
            out.unlink()
    print(f"| geometric mean | {mean(speed_ups):.2f} | | {mean(sessions):.2f} | | |")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--dialect")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--light", action="store_true")
    parser.add_argument("--deployed", action="store_true")
    parser.add_argument("--decoders", action="store_true")
    parser.add_argument("--each-runtime", action="store_true")
    parser.add_argument("networks", nargs="*")
    return parser.parse_args()


def models(arguments: argparse.Namespace, folder: Path) -> Iterator[Path]:
    """The files, one after the other; one that was made here is removed before the next."""
    source = light if arguments.light else zoo
    chosen = zoo.DEPLOYED if arguments.deployed else zoo.DECODERS if arguments.decoders else source.NAMES
    for network in arguments.networks or chosen:
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


def print_runtimes(arguments: argparse.Namespace) -> None:
    """Print the table of both runtimes."""
    print("| network | onnxruntime | planned | speed-up | OpenVINO | planned | speed-up | take |")
    print("|---|---|---|---|---|---|---|---|")
    found: dict[str, list[float]] = {"onnxruntime": [], "openvino": []}
    with tempfile.TemporaryDirectory() as name:
        for path in models(arguments, Path(name)):
            cells, fastest = [path.stem], dict[str, float]()
            times = four_times(path, Path(name), arguments)
            for runtime, speed_ups in found.items():
                before, after = (times.get((runtime, is_planned)) for is_planned in (False, True))
                fastest |= {f"{runtime}, original": before and min(map(min, before))} if before else {}
                fastest |= {f"{runtime}, planned": min(map(min, after))} if after else {}
                cells += [f"{min(map(min, each)) * 1e3:.2f} ms" if each else "cannot run" for each in (before, after)]
                cells.append("")
                if before and after:
                    speed_up = ratio(before, after)
                    speed_ups.append(speed_up.value)
                    cells[-1] = f"{speed_up.value:.2f} ({speed_up.low:.2f} to {speed_up.high:.2f})"
            print("| " + " | ".join([*cells, min(fastest, key=fastest.__getitem__, default="none")]) + " |", flush=True)
    means = [f"{mean(each):.2f}" if each else "" for each in found.values()]
    print(f"| geometric mean | | | {means[0]} | | | {means[1]} | |")


def four_times(path: Path, folder: Path, arguments: argparse.Namespace) -> dict[tuple[str, bool], list[list[float]]]:
    """The seconds of runs, per block, of the original and the result in each runtime that runs them."""
    options, threads = sized(path), arguments.threads
    feed = same_inputs([path], [read_interface(path)], options["dims"], options.get("inputs", {}), 0)[2][0]
    runs = {}
    for runtime in ("onnxruntime", "openvino"):
        planned = folder / f"{runtime}.onnx"
        try:
            result = layoutopt.optimize(
                path,
                "cpu",
                runtime=runtime,
                dims=options["dims"],
                threads=threads,
                verify=runtime != "onnxruntime",
            )
            result.save(planned, force=True)
        except LayoutoptError as error:
            print(f"{path.stem}: {error}", file=sys.stderr)
            planned = path
        for file in (path, planned):
            create = partial(opened, runtime, file, threads, feed)
            try:
                create()()
            except (RuntimeError, LayoutoptError) as error:
                print(f"{path.stem} in {runtime}: {error_message(error)}", file=sys.stderr)
            else:
                runs[runtime, file is planned and planned is not path] = create
    clock = engine_clock(threads)
    blocks = measure_in_turns(
        list(runs.values()),
        lambda run: [run],
        threads=threads,
        seconds=arguments.seconds,
        clock=clock,
        max_seconds=3 * arguments.seconds,
    )
    return {key: [block.runs[number][0] for block in blocks] for number, key in enumerate(runs)}


def opened(runtime: str, file: Path, threads: int, feed: Feed) -> Callable[[], object]:
    """The run of a new session."""
    return partial(find_engine(runtime).load(str(file), threads).run, feed)


def mean(ratios: list[float]) -> float:
    return float(np.exp(np.mean(np.log(ratios))))


if __name__ == "__main__":
    main()
