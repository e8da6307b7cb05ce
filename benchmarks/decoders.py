"""How much faster decoders with key-value caches run in stock onnxruntime after `layoutopt optimize --target cpu`.

    python benchmarks/decoders.py [--seconds S] [--blocks N] [NETWORK ...]

By default the decoders of examples/zoo/deployed, planned with `--dim sequence=1:128`, one thread. Prints a Markdown table: for
one new token with 16 and with 512 tokens in the cache, and for 64 new tokens with an empty cache, the CPU time of a run of the
original over that of the rewritten model. Runs alternate in one process; the number is the median of all pairs, the range
that of the medians of the blocks, each of which creates both sessions anew.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from time import process_time_ns

import numpy as np
import onnxruntime

sys.path[:0] = [str(Path(__file__).parents[1] / "examples")]

import zoo

import layoutopt

SIZES = {"1 new, 16 in the cache": (1, 16), "1 new, 512 in the cache": (1, 512), "64 new, empty cache": (64, 0)}
_SOURCE = 64  # tokens of T5's encoder
_WARM_UP = 3
_FEWEST = 4  # pairs of a block


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="CPU time per network and size")
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("networks", nargs="*")
    arguments = parser.parse_args()
    print(f"| network | {' | '.join(SIZES)} | Transposes and conversions | error |")
    print(f"|---|{'---|' * (len(SIZES) + 2)}")
    networks = arguments.networks or zoo.DECODERS
    with tempfile.TemporaryDirectory() as name:
        for network in networks:
            path, out = zoo.save(network, Path(name)), Path(name) / "out.onnx"
            result = layoutopt.optimize(
                path, "cpu", dims={"sequence_length" if "genai" in network else "sequence": (1, 128)}, measure=False
            )
            result.save(out)
            report = result.report
            cells = [ratios(path, out, *size, arguments) for size in SIZES.values()]
            moves = f"{report.before.transposes} to {report.after.transposes + report.after.casts}"
            error = f"{report.verification.largest_error or 0:.1e}"
            print(f"| {network} | {' | '.join(cells)} | {moves} | {error} |", flush=True)
            path.unlink()
            out.unlink()


def ratios(path: Path, out: Path, new: int, past: int, arguments: argparse.Namespace) -> str:
    """The median of the pairs, and the lowest and highest median of a block."""
    found: list[list[float]] = []
    for block in range(arguments.blocks):
        models = (path, out) if block % 2 else (out, path)
        sessions = {model: session(model) for model in models}
        feed = inputs(sessions[path], new, past)
        for each in sessions.values():
            for _ in range(_WARM_UP):
                each.run(None, feed)
        end, pairs = process_time_ns() + arguments.seconds / arguments.blocks * 1e9, list[float]()
        while process_time_ns() < end or len(pairs) < _FEWEST:
            times = {model: timed(sessions[model], feed) for model in (models if len(pairs) % 2 else models[::-1])}
            pairs.append(times[path] / times[out])
        found.append(pairs)
    medians = [float(np.median(pairs)) for pairs in found]
    return f"{np.median(np.concatenate(found)):.2f} ({min(medians):.2f} to {max(medians):.2f})"


def timed(session: onnxruntime.InferenceSession, feed: dict[str, np.ndarray]) -> int:
    """Nanoseconds of CPU time of a run."""
    start = process_time_ns()
    session.run(None, feed)
    return process_time_ns() - start


def session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = 1, 1, 4
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def inputs(session: onnxruntime.InferenceSession, new: int, past: int) -> dict[str, np.ndarray]:
    """Tokens, a full mask, positions behind the cache, and random keys and values."""
    generator = np.random.default_rng(0)
    sizes = {"batch": 1, "sequence": new, "past": past, "total": past + new, "source": _SOURCE}
    sizes |= {
        "batch_size": 1,
        "sequence_length": new,
        "past_sequence_length": past,
        "total_sequence_length": past + new,
    }
    sizes["kv_cache_dim"] = 64
    feed: dict[str, np.ndarray] = {}
    for each in session.get_inputs():
        shape = [dim if isinstance(dim, int) else sizes[dim] for dim in each.shape]
        if each.name.endswith("mask"):
            feed[each.name] = np.ones(shape, np.int64)
        elif each.name == "position_ids":
            feed[each.name] = np.broadcast_to(np.arange(past, past + new), shape).copy()
        elif each.name == "input_ids":
            feed[each.name] = generator.integers(0, 4096, shape)
        else:
            feed[each.name] = generator.standard_normal(shape, np.float32)
    return feed


if __name__ == "__main__":
    main()
