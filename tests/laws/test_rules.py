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
from typing import TypeVar

import pytest
from test_rules_handmade import session
from test_rules_samples import Draft, drafts, versions

from layoutopt.ops import rules
from layoutopt.testing.rules import faults_of, prepare_sample

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
