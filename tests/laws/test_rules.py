"""The law of layout rules: under every signature, an op computes what it computes in canonical order.

Whatever a rule completes is forced onto the op, operands are fed as they then lie in memory, with the worst
in their lanes that the signature accepts, and the result is read back and compared; its lanes have to hold
what the signature promises. A rule is tested by being registered.
"""

import zlib

import numpy as np
import pytest
from test_rules_forced import forced, lifted, outcome, signatures
from test_rules_handmade import Sample, run
from test_rules_samples import Draft, drafts, versions

from layoutopt.ir.types import Signature
from layoutopt.ops import is_canonical, rule_of, rules, with_lanes

_SAMPLES = 24  # per op type in the quick tier
_FEWEST = 2  # per opset in the quick tier
_SIGNATURES = 6  # per sample in the quick tier
_ELSEWHERE = 2, 6  # per sample at another opset than that it was made for, in the quick tier and in the other one

# Op types that onnxruntime has no kernel for at an opset.
NOT_RUN = frozenset({("GlobalLpPool", 22), ("MaxRoiPool", 22), ("RoiAlign", 22)})


@pytest.mark.parametrize("kind", rules())
def test_every_signature_computes_the_same(kind: str) -> None:
    _hold_drafts(kind, thorough=False)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", rules())
def test_every_signature_of_every_sample_computes_the_same(kind: str) -> None:
    _hold_drafts(kind, thorough=True)


def _hold_drafts(kind: str, *, thorough: bool) -> None:
    """At every opset there has to be a sample with a signature that is proven."""
    unproven = []
    for version, queue in _by_opset(kind, thorough).items():
        tried = proven = 0
        wanted = len(queue) if thorough else max(_SAMPLES // len(versions(kind)), _FEWEST)
        for draft in queue:
            if tried >= wanted and proven:
                break
            sample = draft.make()
            if sample is None:
                continue
            limit = _ELSEWHERE[thorough] if draft.is_moved else None
            count, faults = _faults(sample, thorough=thorough, limit=limit)
            assert not faults, f"{len(faults)} of {count + len(faults)}:\n" + "\n".join(faults[:12])
            tried, proven = tried + 1, proven + count
        if not proven and (kind, version) not in NOT_RUN:
            unproven.append(version)
    assert not unproven or rules()[kind].is_fixed, f"no signature but the canonical one is proven at opset {unproven}"


def _by_opset(kind: str, thorough: bool) -> dict[int, list[Draft]]:
    """The samples at every opset at which the op changed, in an order that is always the same."""
    queues: dict[int, list[Draft]] = {version: [] for version in versions(kind)}
    for draft in sorted(drafts(kind, thorough=thorough), key=lambda draft: zlib.crc32(draft.name.encode())):
        queues[draft.since].append(draft)
    return queues


def _hold(kind: str, chosen: list[Sample], *, thorough: bool) -> None:
    faults, proven = [], 0
    for sample in chosen:
        count, found = _faults(sample, thorough=thorough)
        faults += found
        proven += count
    assert not faults, f"{len(faults)} of {proven + len(faults)}:\n" + "\n".join(faults[:12])
    assert proven or rules()[kind].is_fixed, "no sample has a signature but the canonical one"


def _faults(sample: Sample, *, thorough: bool, limit: int | None = None) -> tuple[int, list[str]]:
    """How many signatures of a sample hold, and what is wrong with the others; of many, some are chosen."""
    graph = lifted(sample.model)
    (op,) = graph.ops
    rule = rule_of(op)
    if rule is None:
        return 0, []
    try:
        wants = [run(sample.model, feed) for feed in sample.feeds]
    except Exception:  # onnxruntime lacks the kernel, or the sizes do not go together
        return 0, []
    ranks = [value.rank for value in graph.outputs]
    if any([np.ndim(array) for array in want] != ranks for want in wants):
        return 0, []  # other sizes of the inputs are other ranks of the outputs
    plain = [each for each in signatures(op, thorough=thorough) if not is_canonical(each)]
    laned = [each for signature in plain for each in with_lanes(rule, op, signature)]
    faults, proven = [], 0
    for signature in _chosen(laned, sample.name, limit or (None if thorough else _SIGNATURES)):
        seed = "" if thorough else f"{sample.name} {signature}"
        for dialect in ["ops"] if rule.is_direct(op, signature) else ["ops", *_functions(seed)]:
            try:
                fault = outcome(forced(graph, signature), sample.feeds, wants, dialect)
            except Exception as error:
                fault = f"{dialect}: {type(error).__name__} {str(error)[:300]}"
            if fault:
                faults.append(f"{sample}: {signature}: {fault}")
                break
        else:
            proven += 1
    return proven, faults


def _functions(seed: str) -> list[str]:
    """The dialects of functions; one of them for a seed."""
    both = ["functions", "ascend"]
    return [both[zlib.crc32(seed.encode()) % 2]] if seed else both


def _chosen(laned: list[Signature], seed: str, limit: int | None) -> list[Signature]:
    """All of them, or some that differ from sample to sample and always are the same."""
    if limit is None:
        return laned
    return sorted(laned, key=lambda signature: zlib.crc32(f"{seed} {signature}".encode()))[:limit]
