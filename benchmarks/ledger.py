"""Ledgers of plans: the results of `optimize` for every network, written and compared.

    python benchmarks/ledger.py --write benchmarks/ledger.csv [--networks NAME ...] [--processes N]
    python benchmarks/ledger.py --compare benchmarks/ledger.csv [--networks NAME ...] [--processes N]

`--write` uses the networks of examples/zoo and the light models of the onnx package, `--compare` those of the ledger. Each is
optimised in a process of its own, without verification, in every configuration of `CONFIGURATIONS`. `--compare` measures again
and prints the entries that differ from a ledger; the exit code is 1 if one is worse: a higher price, lower bound or gap, more
casts, transposes or ops, or a larger file. Seconds and memory depend on the machine and its load, so only their ratios over all
entries are printed.

Columns: network, target, dialect; price and lower_bound in estimated seconds; gap; casts, transposes; ops, the number of nodes
by type in the emitted model and its functions; bytes of the emitted model; seconds of processor time; megabytes at the peak.
"""

import argparse
import csv
import resource
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from time import process_time

import onnx

sys.path[:0] = [str(Path(__file__).parents[1] / each) for each in ("examples", "tests/e2e")]

import light
import zoo

import layoutopt
from layoutopt.onnx_io.messages import nodes

CONFIGURATIONS = (
    ("gpu-hopper", "functions"),
    ("gpu-hopper", "ops"),
    ("ascend-910b", "ascend"),
    ("ascend-910b", "functions"),
    ("ascend-910b", "ops"),
    ("cpu-avx512", "functions"),
    ("cpu-avx512", "onnxruntime"),
    ("cpu-avx512", "ops"),
    ("cpu-avx2", "onnxruntime"),
    ("cpu-neon", "functions"),
)
KEY = ("network", "target", "dialect")
COSTS = ("price", "lower_bound", "gap", "casts", "transposes", "bytes")
COLUMNS = (*KEY, *COSTS, "ops", "seconds", "megabytes")
SAME_PRICE = 1e-9  # relative: prices are sums in any order

Entry = Mapping[str, str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", type=Path, metavar="FILE")
    action.add_argument("--compare", type=Path, metavar="FILE")
    parser.add_argument("--networks", nargs="+", metavar="NAME")
    parser.add_argument("--processes", type=int, default=1, metavar="N")
    arguments = parser.parse_args()
    if arguments.write is not None:
        write(arguments.write, measured(arguments.networks or [*zoo.NAMES, *light.NAMES], arguments.processes))
        return 0
    with arguments.compare.open(newline="") as file:
        before = {key_of(entry): entry for entry in csv.DictReader(file)}
    networks = arguments.networks or list(dict.fromkeys(network for network, _, _ in before))
    return compared(before, measured(networks, arguments.processes))


def measured(networks: Iterable[str], processes: int) -> list[Entry]:
    """The entries of networks in every configuration."""
    with tempfile.TemporaryDirectory() as folder, get_context("spawn").Pool(processes, maxtasksperchild=1) as pool:
        tasks = [
            (saved(network, Path(folder)), configuration)
            for network, configuration in product(networks, CONFIGURATIONS)
        ]
        return pool.starmap(entry_of, tasks, chunksize=1)


def saved(network: str, folder: Path) -> Path:
    """A network as a file in a folder."""
    path = folder / f"{network}.onnx"
    if path.exists():
        return path
    if network in zoo.NAMES:
        return zoo.save(network, folder)
    onnx.save(light.load(network), path)
    return path


def entry_of(path: Path, configuration: tuple[str, str]) -> Entry:
    """Optimise a network in one configuration."""
    start = process_time()
    result = layoutopt.optimize(
        path, configuration[0], dialect=configuration[1], verify=False, measure=False, calibrate=False
    )
    seconds = process_time() - start
    plan, report, proto = result.report.plan, result.report, result.proto
    assert plan is not None
    kinds = Counter(node.op_type.partition("_")[0] for node in nodes(proto))
    return {
        "network": path.stem,
        "target": configuration[0],
        "dialect": configuration[1],
        "price": repr(plan.seconds_after),
        "lower_bound": repr(plan.lower_bound),
        "gap": repr(plan.gap),
        "casts": str(report.after.casts),
        "transposes": str(report.after.transposes),
        "bytes": str(proto.ByteSize()),
        "ops": " ".join(f"{kind}:{count}" for kind, count in sorted(kinds.items())),
        "seconds": f"{seconds:.2f}",
        "megabytes": str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10),
    }


def write(path: Path, entries: Iterable[Entry]) -> None:
    """Write a ledger."""
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(entries)


def compared(before: Mapping[tuple[str, ...], Entry], after: Iterable[Entry]) -> int:
    """Print the entries that differ; 1 if one is worse or new."""
    worse = 0
    ratios: dict[str, list[float]] = {"seconds": [], "megabytes": []}
    count = 0
    for entry in after:
        count += 1
        old = before.get(key_of(entry))
        if old is None:
            print(" ".join(key_of(entry)), "is not in the ledger")
            worse += 1
            continue
        lines = differences(old, entry)
        worse += any(line.startswith("worse") for line in lines)
        for line in lines:
            print(" ".join(key_of(entry)), line)
        for name, known in ratios.items():
            known.append(float(entry[name]) / max(float(old[name]), 0.01))
    times = ", ".join(f"{name} x{statistics.median(known):.2f}" for name, known in ratios.items() if known)
    print(f"{count} entries, {worse} worse; median {times}")
    return 1 if worse else 0


def differences(old: Entry, new: Entry) -> list[str]:
    """The differences of an entry, one line per column; a line begins with "worse" or "better"."""
    lines = []
    for name in COSTS:
        a, b = float(old[name]), float(new[name])
        if abs(a - b) > SAME_PRICE * abs(a):
            lines.append(f"{'worse' if b > a else 'better'}: {name} {old[name]} -> {new[name]}")
    a_ops, b_ops = ops_of(old), ops_of(new)
    if a_ops != b_ops:
        changed = [
            f"{kind} {a_ops[kind]} -> {b_ops[kind]}" for kind in sorted({*a_ops, *b_ops}) if a_ops[kind] != b_ops[kind]
        ]
        lines.append(f"{'worse' if b_ops.total() > a_ops.total() else 'better'}: ops {', '.join(changed)}")
    return lines


def ops_of(entry: Entry) -> Counter[str]:
    """The number of nodes by type."""
    pairs = (each.rpartition(":") for each in entry["ops"].split())
    return Counter({kind: int(count) for kind, _, count in pairs})


def key_of(entry: Entry) -> tuple[str, ...]:
    """The network, target and dialect of an entry."""
    return tuple(entry[name] for name in KEY)


if __name__ == "__main__":
    raise SystemExit(main())
