"""Times of results of `--runtime any` in onnxruntime on the GPU of this machine, against the original.

    python benchmarks/cuda_speed.py [--target gpu-hopper] [--dtypes float32,float16] [--batches 1,16] [--jobs N] [NETWORK ...]

It requires onnxruntime-gpu. Three ways, one process per network, in turns, inputs and outputs on the device:

- original: the model at onnxruntime's default options,
- prefer_nhwc: the same with the option `prefer_nhwc` of the CUDA execution provider, which converts what it can to NHWC,
- any: the result of `--runtime any`, standard operators alone.

Prints a Markdown table with the speed-ups over the original, the Transposes that onnxruntime runs in each way, and the largest
differences of each way from the original in float32 on the CPU, relative to the largest magnitude, without TF32 (`use_tf32=0`).
Times are those of the default options, with TF32.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import numpy as np
import onnx
import onnxruntime
import zoo
from narrow_models import to_float16
from random_inputs import random_inputs

import layoutopt

WAYS = ("original", "prefer_nhwc", "any")


def batched(model: onnx.ModelProto, batch: int) -> onnx.ModelProto:
    """The network with images of another batch size; not every network has one."""
    for given in (*model.graph.input, *model.graph.output):
        dims = given.type.tensor_type.shape.dim
        if batch != 1 and dims and dims[0].dim_value == 1:
            dims[0].dim_value = batch
    if batch != 1:
        del model.graph.value_info[:]
    return model


def write_models(name: str, dtype: str, batch: int, target: str, folder: Path) -> dict[str, Any]:
    """Write the original in float32 (`reference`) and in the type, and the result, to a folder."""
    model, sizes = batched(zoo.load(name), batch), zoo.SIZES.get(name)
    onnx.save(model, folder / "reference.onnx")
    cpu(folder / "reference.onnx")
    original = to_float16(model) if dtype == "float16" else model
    onnx.save(original, folder / "original.onnx")
    result = layoutopt.optimize(folder / "original.onnx", target, runtime="any", dims=sizes, allow_unverified=True)
    result.save(folder / "any.onnx")
    assert result.report.verification is not None
    return {"verified": result.report.verification.status, "is_changed": result.report.changed}


def cpu(path: Path) -> onnxruntime.InferenceSession:
    """A session on the CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def session(path: Path, provider: str, saved: Path | None = None, **options: str) -> onnxruntime.InferenceSession:
    """A session on the GPU at default options; the graph that it runs is saved."""
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    if saved is not None:
        settings.optimized_model_filepath = str(saved)
    if provider == "cpu":
        return onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    providers = [("CUDAExecutionProvider", options), "CPUExecutionProvider"]
    found = onnxruntime.InferenceSession(path, settings, providers=providers)
    if "CUDAExecutionProvider" not in found.get_providers():
        raise RuntimeError("onnxruntime has no CUDA here")
    return found


def bound(each: onnxruntime.InferenceSession, feed: Mapping[str, np.ndarray], provider: str) -> Any:
    """A binding of inputs and outputs to the memory of the device."""
    device = "cuda" if provider == "cuda" else "cpu"
    binding = each.io_binding()
    for name, array in feed.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array, device, 0))
    for output in each.get_outputs():
        binding.bind_output(output.name, device, 0)
    return binding


def measured(ways: Mapping[str, Any], rounds: int, calls: int) -> dict[str, float]:
    """The median seconds of each way, in turns."""
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 2):
        for way, (each, binding) in ways.items():
            start = perf_counter()
            for _ in range(calls):
                each.run_with_iobinding(binding)
            binding.synchronize_outputs()
            if number > 1:
                taken[way].append((perf_counter() - start) / calls)
    return {way: statistics.median(each) for way, each in taken.items()}


def difference(expected: Sequence[np.ndarray], actual: Sequence[np.ndarray]) -> float:
    """The largest difference of any output, relative to its largest magnitude."""
    pairs = [(a.astype(np.float64), b.astype(np.float64)) for a, b in zip(expected, actual, strict=True) if a.size]
    return max(float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-30)) for a, b in pairs)


def run(folder: Path, dtype: str, name: str, provider: str, rounds: int) -> dict[str, Any]:
    """The measurement of the models in a folder, in this process."""
    if provider == "cuda":
        onnxruntime.preload_dlls()
    reference = cpu(folder / "reference.onnx")
    feed = random_inputs(reference, zoo.SIZES.get(name, {}))
    expected = reference.run(None, feed)
    if dtype == "float16":
        feed = {key: each.astype(np.float16) if each.dtype == np.float32 else each for key, each in feed.items()}
    found: dict[str, Any] = {"errors": {}, "transposes": {}, "failed": {}}
    ways = {}
    for way in WAYS:
        path = folder / ("original.onnx" if way == "prefer_nhwc" else f"{way}.onnx")
        option = {"prefer_nhwc": "1"} if way == "prefer_nhwc" else {}
        try:
            exact = session(path, provider, folder / f"{way}.executed.onnx", use_tf32="0", **option)
            found["errors"][way] = difference(expected, exact.run(None, feed))
            kinds = Counter(node.op_type for node in onnx.load(folder / f"{way}.executed.onnx").graph.node)
            found["transposes"][way] = kinds["Transpose"]
            found.setdefault("kinds", {})[way] = dict(kinds)
            del exact
            each = session(path, provider, **option)
            ways[way] = (each, bound(each, feed, provider))
        except Exception as error:
            found["failed"][way] = str(error).splitlines()[0][:200]
    return {**found, "seconds": measured(ways, rounds, 5)}


def row(job: tuple[str, str, int], notes: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """A row of the table."""
    name, dtype, batch = job
    taken, errors, moved = found["seconds"], found["errors"], found["transposes"]
    cells = [name, dtype, str(batch), f"{taken['original'] * 1e3:.3f}"]
    cells += [f"{taken['original'] / taken[way]:.2f}" if way in taken else "fails" for way in WAYS[1:]]
    cells += [" ".join(str(moved.get(way, "-")) for way in WAYS)]
    cells += [" ".join(f"{errors[way]:.0e}" if way in errors else "-" for way in WAYS)]
    cells += [notes["verified"] + ("" if notes["is_changed"] else ", unchanged")]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK")
    parser.add_argument("--target", default="gpu-hopper")
    parser.add_argument("--dtypes", default="float32,float16")
    parser.add_argument("--batches", default="1")
    parser.add_argument("--provider", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1, help="networks that are optimised at once")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is not None:
        found = run(arguments.run, arguments.dtypes, arguments.networks[0], arguments.provider, arguments.rounds)
        (arguments.run / "found.json").write_text(json.dumps(found), encoding="utf-8")
        return
    jobs = [
        (name, dtype, int(batch))
        for name in arguments.networks or zoo.NAMES
        for batch in arguments.batches.split(",")
        for dtype in arguments.dtypes.split(",")
    ]
    print(f"onnxruntime {onnxruntime.__version__}, target {arguments.target}\n")
    print("| network | type | batch | original, ms | prefer_nhwc | any | Transposes | errors | verification |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    records = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.jobs) as pool:
        folders = [Path(folder) / str(number) for number in range(len(jobs))]
        written = pool.map(lambda item: _written(item[0], arguments.target, item[1]), zip(jobs, folders, strict=True))
        for job, path, notes in zip(jobs, folders, written, strict=True):
            name, dtype, batch = job
            if isinstance(notes, str):
                print(f"| {name} | {dtype} | {batch} | not run: {notes} | | | | | |", flush=True)
                continue
            command = [sys.executable, __file__, name, "--dtypes", dtype, "--provider", arguments.provider]
            command += ["--rounds", str(arguments.rounds), "--run", str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:200]
                print(f"| {name} | {dtype} | {batch} | not run: {reason} | | | | | |", flush=True)
                continue
            found = json.loads((path / "found.json").read_text(encoding="utf-8"))
            records.append({"network": name, "dtype": dtype, "batch": batch, "notes": notes, **found})
            print(row(job, notes, found), flush=True)
            for way, reason in found["failed"].items():
                print(f"| | | | {way}: {reason} | | | | | |", flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(records), encoding="utf-8")
    for way in WAYS[1:]:
        ratios = [each["seconds"]["original"] / each["seconds"][way] for each in records if way in each["seconds"]]
        if ratios:
            mean = statistics.geometric_mean(ratios)
            print(f"\n{way}: geometric mean {mean:.3f}, smallest {min(ratios):.2f}, {len(ratios)} rows")


def _written(job: tuple[str, str, int], target: str, folder: Path) -> dict[str, Any] | str:
    """The notes of `write_models`, run in a process of its own; the reason in one line if it fails."""
    folder.mkdir()
    code = (
        "import sys, json; from pathlib import Path; import cuda_speed;"
        "name, dtype, batch, target, folder = sys.argv[1:];"
        "print(json.dumps(cuda_speed.write_models(name, dtype, int(batch), target, Path(folder))))"
    )
    command = [sys.executable, "-c", code, job[0], job[1], str(job[2]), target, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["?"])[-1][:200]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
