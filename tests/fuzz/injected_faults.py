"""Faults in rewritten networks, which verification has to detect: an example is one fault in one network.

The truth is measured as in `benchmarks/faults.py`: a fault counts if its effect exceeds that of rounding.
"""

import tempfile
from functools import lru_cache
from pathlib import Path

import faults
import numpy as np
from fault_kinds import FAULTS

from .campaign.isolation import Limits, Outcome
from .campaign.part import Part, Verdict

_KINDS = ("none", *FAULTS)


@lru_cache(maxsize=1)
def _subject(network: str) -> faults.Subject:
    return faults.subject(network, "cpu", Path(tempfile.mkdtemp()))


def _example(seed: int) -> tuple[str, str, int]:
    """The network, the kind of fault and the seed of the fault: all kinds for a network, then the next network."""
    turn, kind = divmod(seed, len(_KINDS))
    number, network = divmod(turn, len(faults.NETWORKS))
    return faults.NETWORKS[network], _KINDS[kind], number


def _outcome(seed: int, faulty: Path) -> faults.Outcome | None:
    network, kind, number = _example(seed)
    given = _subject(network)
    if kind == "none":
        return faults.without_fault(given)
    return faults.with_fault(given, kind, np.random.default_rng([0, number]), faulty)


def examine(seed: int) -> Verdict:
    """Whether verification detects a fault."""
    with tempfile.TemporaryDirectory() as folder:
        found = _outcome(seed, Path(folder) / "faulty.onnx")
    if found is None:
        return Verdict("no such fault, or one that onnxruntime refuses")
    context = f"{found.kind} in {found.network}: {found.effect:.1e}, rounding {found.spread:.1e}"
    if found.kind == "none":
        return Verdict("accepted without a fault") if not found.caught else Verdict("false alarm", context, True)
    if found.effect <= found.spread:
        return Verdict(f"below rounding, {'detected' if found.caught else 'not detected'}")
    return Verdict("missed", context, is_failure=True) if found.is_missed else Verdict("detected")


def keep(seed: int, outcome: Outcome, folder: Path) -> None:
    """Write the network, its rewritten model and that with the fault."""
    given = _subject(_example(seed)[0])
    _outcome(seed, folder / "faulty.onnx")
    (folder / "original.onnx").write_bytes(given.original.read_bytes())
    (folder / "rewritten.onnx").write_bytes(given.rewritten.read_bytes())


PART = Part(
    title="faults injected into rewritten networks",
    criterion="verification detects a fault whose effect exceeds that of rounding, and accepts the model without a fault",
    examine=examine,
    keep=keep,
    chunk=len(_KINDS),
    limits=Limits(cpu=900.0, wall=3600.0, memory=20 << 30),
)
