"""The law of layout rules: under every signature, an op computes the same as in canonical formats.

The op runs under each signature that the rule completes. The operands are stored in its formats, their padding elements have
the worst values that the signature accepts, and the result is unpacked and compared. The padding elements of the result must be
in the state that the signature declares.
"""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, Signature
from layoutopt.ops import is_canonical, rule_of, with_padding_states
from layoutopt.testing.forced import fault_of, forced, legal_signatures, lifted
from layoutopt.testing.samples import Loader, Sample, load_in_onnxruntime

_FUNCTIONS = "functions", "ascend"  # one of these for each pair of a sample and a signature


@dataclass(frozen=True, eq=False)
class PreparedSample:
    """A sample with its graph, its results and the signatures to test.

    Attributes:
        sample: the sample.
        graph: its graph, of one op.
        expected: its results, one list per feed.
        signatures: the signatures of the op, but for the canonical one.
        load: loads models.
    """

    sample: Sample
    graph: Graph
    expected: list[list[Array]]
    signatures: list[Signature]
    load: Loader


def check_rule(*samples: Sample, load: Loader = load_in_onnxruntime) -> int:
    """Assert that the op of each sample computes the same under every signature that its layout rule completes.

    Args:
        samples: models of one op with inputs.
        load: loads the models.

    Returns:
        The number of signatures that were tried, over all samples.

    Raises:
        AssertionError: an op has no rule or no signature but the canonical one, or differs under a signature.
    """
    count = 0
    for sample in samples:
        (op,) = lifted(sample.model).ops
        assert rule_of(op) is not None, f"{sample}: there is no layout rule for {op.kind}"
        load(sample.model.SerializeToString()).run(None, sample.feeds[0])  # a model that does not run proves nothing
        prepared = prepare_sample(sample, load, is_thorough=True)
        faults = faults_of(prepared, prepared.signatures)
        assert not faults, f"{len(faults)} of {len(prepared.signatures)} signatures:\n" + "\n".join(faults[:12])
        assert prepared.signatures, f"{sample}: no signature but the canonical one can be tried"
        count += len(prepared.signatures)
    return count


def prepare_sample(sample: Sample, load: Loader = load_in_onnxruntime, *, is_thorough: bool) -> PreparedSample:
    """A sample with its results and signatures; without signatures if it cannot be run or has no rule."""
    graph = lifted(sample.model)
    (op,) = graph.ops
    rule = rule_of(op)
    nothing = PreparedSample(sample, graph, [], [], load)
    if rule is None:
        return nothing
    try:
        runner = load(sample.model.SerializeToString())
        expected = [runner.run(None, feed) for feed in sample.feeds]
    except Exception:  # onnxruntime has no kernel, or the sizes are incompatible
        return nothing
    ranks = [value.rank for value in graph.outputs]
    if any([np.ndim(array) for array in outputs] != ranks for outputs in expected):
        return nothing  # the rank of an output depends on the values of the inputs
    plain = [each for each in legal_signatures(op, is_thorough=is_thorough) if not is_canonical(each)]
    padded = [each for signature in plain for each in with_padding_states(rule, op, signature)]
    padded.sort(key=lambda signature: zlib.crc32(f"{sample.name} {signature}".encode()))
    return PreparedSample(sample, graph, expected, padded, load)


def faults_of(prepared: PreparedSample, chosen: Iterable[Signature]) -> list[str]:
    """The faults of a sample under some signatures, in one line each."""
    return [fault for signature in chosen if (fault := _fault(prepared, signature))]


def _fault(prepared: PreparedSample, signature: Signature) -> str:
    (op,) = prepared.graph.ops
    rule = rule_of(op)
    assert rule is not None
    functions = _FUNCTIONS[zlib.crc32(f"{prepared.sample} {signature}".encode()) % len(_FUNCTIONS)]
    dialects: Sequence[str] = ["ops"] if rule.is_layout_agnostic(op, signature) else ["ops", functions]
    for dialect in dialects:
        try:
            fault = fault_of(
                forced(prepared.graph, signature), prepared.sample.feeds, prepared.expected, dialect, prepared.load
            )
        except Exception as error:
            fault = f"{dialect}: {type(error).__name__} {str(error)[:300]}"
        if fault:
            return f"{prepared.sample}: {signature}: {fault}"
    return ""


__all__ = ["PreparedSample", "check_rule", "faults_of", "prepare_sample"]
