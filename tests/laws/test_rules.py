"""The law of layout rules: under every signature, an op computes what it computes in the canonical format.

The law is `layoutopt.testing.check_rule`. A rule is tested by being registered.

The thorough tier runs every sample of an op type at every opset, and every signature that its rule completes for any of
them, but not each with each: samples choose signatures in turns, those first that no sample has yet, and once the op type
has had enough of them only those. So a sample has a few signatures at least, a signature has a sample, and an op type with
many of both is done in minutes: of DequantizeLinear there are 215,000 pairs. They are the same ones every time.
"""

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TypeVar

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from test_rules_handmade import Sample, random, session
from test_rules_samples import Draft, drafts, versions, written
from tiers import tiered

import layoutopt
from layoutopt.cost_models.registry import host_target
from layoutopt.ir.types import Op, Padding, Signature
from layoutopt.ops import has_padding, is_canonical, rule_of, rules
from layoutopt.ops.base import padded_axes_of
from layoutopt.testing.rules import faults_of, legal_signatures, lifted, prepare_sample

T = TypeVar("T")

_SAMPLES = 4  # per op type in the quick tier
_FEWEST = 1  # per opset in the quick tier
_SIGNATURES = 2  # per sample in the quick tier
_ELSEWHERE = 2  # per sample at another opset than that it was made for, besides what no sample has had
_LEAST = 4  # per sample in the thorough tier
_ENOUGH = 1000  # per op type in the thorough tier, besides what no sample has had

# Op types that onnxruntime has no kernel for at an opset, and forms without a rule: a batch axis of Scan, ranges as attributes.
NOT_RUN = frozenset({("GlobalLpPool", 22), ("Scan", 8), ("Slice", 7), ("Pad", 7)})


@pytest.mark.parametrize("kind", rules())
def test_every_signature_computes_the_same(kind: str) -> None:
    proven: Counter[int] = Counter()
    for version, queue in _by_opset(kind, is_thorough=False).items():
        tried = proven[version] = 0
        for draft in queue:
            if tried >= max(_SAMPLES // len(versions(kind)), _FEWEST) and proven[version]:
                break
            sample = draft.make()
            if sample is None:
                continue
            prepared = prepare_sample(sample, session, is_thorough=False)
            chosen = prepared.signatures[: _ELSEWHERE if draft.is_moved else _SIGNATURES]
            faults = faults_of(prepared, chosen)
            _expect_none(faults, len(chosen))
            tried, proven[version] = tried + 1, proven[version] + len(chosen)
    _expect_one(kind, proven)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", rules())
def test_every_sample_and_every_signature_compute_the_same(kind: str) -> None:
    drafted = [draft for queue in _by_opset(kind, is_thorough=True).values() for draft in queue]
    made = [(draft, sample) for draft in drafted if (sample := draft.make()) is not None]
    trials = [(draft, prepare_sample(sample, session, is_thorough=True)) for draft, sample in made]
    most = [_ELSEWHERE if draft.is_moved else _ENOUGH for draft, _ in trials]
    proven: Counter[int] = Counter(dict.fromkeys(versions(kind), 0))
    faults = []
    for (draft, prepared), share in zip(
        trials, shares([prepared.signatures for _, prepared in trials], most), strict=True
    ):
        faults += faults_of(prepared, share)
        proven[draft.since] += len(share)
    _expect_none(faults, proven.total())
    _expect_one(kind, proven)


def _by_opset(kind: str, is_thorough: bool) -> dict[int, list[Draft]]:
    """The samples at every opset at which the op changed, in an order that is always the same."""
    queues: dict[int, list[Draft]] = {version: [] for version in versions(kind)}
    for draft in sorted(drafts(kind, is_thorough=is_thorough), key=lambda draft: zlib.crc32(draft.name.encode())):
        queues[draft.since].append(draft)
    return queues


def shares(choices: Sequence[Sequence[T]], most: Sequence[int]) -> list[list[T]]:
    """Which of its choices each sample has; see above."""
    found: list[dict[T, None]] = [{} for _ in choices]
    unseen = {each for own in choices for each in own}
    queues = [(iter(own), iter(own)) for own in choices]
    total, turn, before = 0, 0, -1
    while total > before:
        before = total
        for mine, limit, (fresh, rest) in zip(found, most, queues, strict=True):
            chosen = next((each for each in fresh if each in unseen), None)
            if chosen is None and turn < limit and (turn < _LEAST or total < _ENOUGH):
                chosen = next((each for each in rest if each not in mine), None)
            if chosen is not None:
                mine[chosen] = None
                unseen.discard(chosen)
                total += 1
        turn += 1
    return [[*mine] for mine in found]


def _expect_none(faults: list[str], count: int) -> None:
    assert not faults, f"{len(faults)} of {count}:\n" + "\n".join(faults[:12])


def _expect_one(kind: str, proven: Mapping[int, int]) -> None:
    """At every opset there has to be a signature that is proven."""
    missing = [version for version, count in proven.items() if not count and (kind, version) not in NOT_RUN]
    assert not missing or rules()[kind].formats == "canonical", (
        f"no signature but the canonical one is proven at opset {missing}"
    )


# --- padding ---------------------------------------------------------------------------------------------

_OBSERVED = 4


@pytest.mark.parametrize("kind", rules())
def test_padding_of_results(kind: str) -> None:
    transfer = rules()[kind].padding
    for state, results in observed(kind, _OBSERVED).items():
        others = results - {transfer[state]}
        assert not others or transfer.text, f"{state} padding becomes {others}, and not {transfer[state]}"


@pytest.mark.thorough
@pytest.mark.parametrize("kind", rules())
def test_the_declared_padding_is_seen(kind: str) -> None:
    transfer = rules()[kind].padding
    for state, results in observed(kind, None).items():
        assert not results or transfer[state] in results, (
            f"{state} padding becomes {results}, and never {transfer[state]}"
        )


def observed(kind: str, count: int | None) -> dict[Padding, set[Padding | None]]:
    """The padding states of results if all inputs have one state; None if the rule refuses it."""
    found: dict[Padding, set[Padding | None]] = {state: set() for state in Padding}
    made = (draft.make() for draft in drafts(kind, is_thorough=count is None) if not draft.is_moved)
    for sample in islice((each for each in made if each is not None), count):
        graph = lifted(sample.model)
        (op,) = graph.ops
        if rule_of(op) is not None:
            for signature in legal_signatures(op, is_thorough=False):
                if not is_canonical(signature):
                    _observe(op, signature, found)
    return found


def _observe(op: Op, signature: Signature, found: dict[Padding, set[Padding | None]]) -> None:
    rule = rule_of(op)
    inputs = list(zip(op.inputs, signature.inputs, strict=True))
    padded = [value is not None and not value.is_constant and has_padding(value, storage) for value, storage in inputs]
    results = [has_padding(value, storage) for value, storage in zip(op.outputs, signature.outputs, strict=True)]
    axes = {padded_axes_of(value, storage) for value, storage in (*inputs, (op.outputs[0], signature.outputs[0]))}
    if rule.is_broadcasting and (not all(padded) or len(axes) > 1):
        return
    for state in Padding if any(padded) else [Padding.ZERO] if any(results) else []:
        states = rule.transfer_padding(op, signature, tuple(state if has else Padding.ZERO for has in padded))
        if states is None:
            found[state].add(None)
        elif any(results):
            left = (*states, *(Padding.ANY,) * (len(op.outputs) - len(states)))
            found[state].add(max(each for each, has in zip(left, results, strict=True) if has))


# --- between convolutions --------------------------------------------------------------------------------

KINDS = (
    *("MaxPool", "AveragePool", "LpPool", "Upsample", "Resize", "Conv", "ConvTranspose", "BatchNormalization", "LRN"),
    *("Pad", "PRelu", "Clip", "Dropout", "Concat", "Split", "Slice", "Sum", "Max", "Softmax", "ReduceMean", "Gather"),
    "com.microsoft::FusedConv",
)
TARGETS = ("gpu-hopper", "ascend-910b", "cpu" if str(host_target()).startswith("cpu-avx") else "cpu-neon")
_CHANNELS = 8


def sandwiched(sample: Sample) -> onnx.ModelProto | None:
    """A convolution, the node on its result, and a convolution of the node's result; None if these tensors are no images."""
    (node,), (feed,) = sample.model.graph.node, sample.feeds
    x = feed[node.input[0]]
    if x.ndim != 4 or x.dtype != np.float32 or x.shape[1] < 4 or x.size == 0:
        return None
    model = onnx.ModelProto()
    model.CopyFrom(sample.model)
    graph = model.graph
    weights = {"before": random((x.shape[1], _CHANNELS, 3, 3), f"{sample} before") / 8}
    nodes = [helper.make_node("Conv", ["image", "before"], [node.input[0]], pads=[1, 1, 1, 1]), *graph.node]
    result = graph.output[0]
    shape = [dim.dim_value for dim in result.type.tensor_type.shape.dim]
    if len(shape) == 4 and all(shape) and result.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
        weights["after"] = random((_CHANNELS, shape[1], 1, 1), f"{sample} after") / 8
        nodes.append(helper.make_node("Conv", [result.name, "after"], ["image_after"]))
        graph.output.add().CopyFrom(helper.make_tensor_value_info("image_after", 1, [shape[0], _CHANNELS, *shape[2:]]))
        del graph.output[0]
    weights |= {name: array for name, array in feed.items() if name != node.input[0]}
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    image = helper.make_tensor_value_info("image", 1, [x.shape[0], _CHANNELS, *x.shape[2:]])
    del graph.input[:], graph.node[:]
    graph.input.append(image)
    graph.node.extend(nodes)
    return model


@pytest.mark.parametrize("count", tiered([2, None], 1))
@pytest.mark.parametrize("kind", KINDS)
def test_between_convolutions(kind: str, count: int | None) -> None:
    """Here a target chooses the signatures, and the dialect of onnxruntime's blocked kernels is tested, too."""
    every = sorted(written(kind), key=lambda sample: zlib.crc32(sample.name.encode()))
    models = [(sample, model) for sample in every if (model := sandwiched(sample)) is not None]
    assert models
    for number, (sample, model) in enumerate(models[:count]):
        targets = TARGETS if count is None else (TARGETS[number % len(TARGETS)],)
        for target in targets:
            result = layoutopt.optimize(model, target)
            assert result.report.verification.status == "passed", (
                f"{sample} for {target}: {result.report.verification.reason}"
            )
