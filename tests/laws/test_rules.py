"""The law of layout rules: under every signature, an op computes what it computes in canonical order.

Whatever a rule completes is forced onto the op, operands are fed as they then lie in memory, with the worst
in their lanes that the signature accepts, and the result is read back and compared; its lanes have to hold
what the signature promises. A rule is tested by being registered.
"""

import zlib

import pytest
from test_rules_forced import forced, lifted, outcome, signatures
from test_rules_handmade import Sample, run
from test_rules_samples import samples

from layoutopt.ir.types import Signature
from layoutopt.ops import is_canonical, rule_of, rules, with_lanes

_SAMPLES = 24  # per op type in the quick tier
_SIGNATURES = 6  # per sample in the quick tier


@pytest.mark.parametrize("kind", rules())
def test_every_signature_computes_the_same(kind: str) -> None:
    every = sorted(samples(kind, thorough=False), key=lambda sample: zlib.crc32(sample.name.encode()))
    _hold(kind, every[:_SAMPLES], thorough=False)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", rules())
def test_every_signature_of_every_sample_computes_the_same(kind: str) -> None:
    _hold(kind, list(samples(kind, thorough=True)), thorough=True)


def _hold(kind: str, chosen: list[Sample], *, thorough: bool) -> None:
    faults, proven = [], 0
    for sample in chosen:
        count, found = _faults(sample, thorough=thorough)
        faults += found
        proven += count
    assert not faults, f"{len(faults)} of {proven + len(faults)}:\n" + "\n".join(faults[:12])
    assert proven or rules()[kind].is_fixed, "no sample has a signature but the canonical one"


def _faults(sample: Sample, *, thorough: bool) -> tuple[int, list[str]]:
    """How many signatures of a sample hold, and what is wrong with the others."""
    graph = lifted(sample.model)
    (op,) = graph.ops
    rule = rule_of(op)
    if rule is None:
        return 0, []
    try:
        wants = [run(sample.model, feed) for feed in sample.feeds]
    except Exception:  # onnxruntime lacks the kernel, or the sizes do not go together
        return 0, []
    plain = [each for each in signatures(op, thorough=thorough) if not is_canonical(each)]
    laned = [each for signature in plain for each in with_lanes(rule, op, signature)]
    faults, proven = [], 0
    for signature in _chosen(laned, sample.name, thorough):
        dialects = ["ops"] if rule.is_direct(op, signature) else ["ops", "functions"]
        for dialect in dialects:
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


def _chosen(laned: list[Signature], seed: str, thorough: bool) -> list[Signature]:
    """All of them, or some that differ from sample to sample and always are the same."""
    if thorough:
        return laned
    return sorted(laned, key=lambda signature: zlib.crc32(f"{seed} {signature}".encode()))[:_SIGNATURES]
