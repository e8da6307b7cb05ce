"""Law of `kernel_formats`: with operands read in the formats of the kernel, the op computes the same bytes.

For a channel permutation that all operands share, or interleaved rows of windows, the kernel for another format runs on the
unchanged memory, and its result is in the corresponding format.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from test_rules_handmade import Sample, made, run

from layoutopt.formats import Format, Part, pack, unpack
from layoutopt.ir.types import Op, Slot
from layoutopt.ops import Inapplicable, OperandFormats, rule_of
from layoutopt.testing.rules import lifted

X, Y = Slot("in", 0), Slot("out", 0)


def convolutions() -> Iterator[Sample]:
    x = (2, 12, 4, 5)
    yield made("y = Conv <pads=[1,1,1,1]> (x, w, b)", x=x, w=(6, 12, 3, 3), b=(6,))
    yield made("y = Conv <group=12> (x, w, b)", x=x, w=(12, 1, 2, 2), b=(12,))
    yield made("y = ConvTranspose <strides=[2,2]> (x, w, b)", x=x, w=(12, 6, 2, 2), b=(6,))


def others() -> Iterator[Sample]:
    x = (2, 12, 4, 6)
    yield made("y = MaxPool <kernel_shape=[2,2]> (x)", x=x)
    yield made("y = GlobalAveragePool (x)", x=x)
    yield made("y = InstanceNormalization (x, s, b)", x=x, s=(12,), b=(12,))
    yield made('y = Upsample <scales=[1.0,1.0,2.0,2.0], mode="nearest"> (x)', x=x, opset=7)


def products() -> Iterator[Sample]:
    yield made("y = MatMul (a, b)", a=(4, 6, 8), b=(8, 5))
    yield made("y = MatMul (a, b)", a=(4, 1, 6, 8), b=(1, 1, 8, 5))
    yield made("y = MatMul (a, b)", a=(4, 6, 3, 8), b=(4, 6, 8, 5))


def order_sensitive() -> Iterator[Sample]:
    """Ops whose results depend on the order of the channels, so that no other kernel may run on permuted channels."""
    yield made("y = LRN <size=3> (x)", x=(2, 12, 4, 6), opset=13)
    yield made("y = Conv <group=2> (x, w)", x=(2, 12, 4, 5), w=(6, 6, 2, 2))
    yield made("y = MatMul (a, b)", a=(4, 6, 3, 8), b=(1, 6, 8, 5))  # the batch of b is broadcast, in another order


def shuffles(rank: int, axis: int, last: bool) -> Iterator[Format]:
    """Orders of the digits of an axis, in logical order or with the axis last."""
    for digits in ([(3, 1), (0, 0)], [(2, 1), (0, 0), (3, 2)], [(0, 0), (2, 1), (3, 2)], [(0, 0), (2, 0)]):
        parts = [[Part(place)] for place in range(rank) if place != axis]
        parts.insert(rank if last else axis, [Part(axis, *digit) for digit in digits])
        yield Format(tuple(part for group in parts for part in group))


def reordered(op: Op) -> Iterator[OperandFormats]:
    """Formats of a convolution with channels of x, of y or of both in another order."""
    rule = rule_of(op)
    assert rule is not None
    for last in (False, True):
        plain = Format.plain((0, 2, 3, 1) if last else (0, 1, 2, 3))
        base = rule.signature(op, {X: plain})
        assert not isinstance(base, Inapplicable)
        known = {slot: storage.format for slot in op.slots() if (storage := base[slot]) is not None}
        for first, second in product([None, *shuffles(4, 1, last)], repeat=2):
            one = known if first is None else rule.permuted_formats(op, known, X, first)
            both = one if second is None or one is None else rule.permuted_formats(op, one, Y, second)
            if both is not None and both != known:
                yield both


def completed(op: Op) -> Iterator[OperandFormats]:
    """The formats of an op that its rule completes from a format of x with permuted digits."""
    rule, x = rule_of(op), op.inputs[0]
    assert rule is not None and x is not None and x.rank is not None
    candidates = [each for last in (False, True) for each in shuffles(x.rank, min(1, x.rank - 2), last)]
    candidates += [Format((Part(0), Part(1), Part(0, 2), Part(1, 3), *map(Part, range(2, x.rank))))]
    candidates += [Format.plain((1, 0, *range(2, x.rank)))]
    for known in candidates:
        signature = rule.signature(op, {X: known})
        if not isinstance(signature, Inapplicable):
            yield {slot: storage.format for slot in op.slots() if (storage := signature[slot]) is not None}
    if rule.has_independent_operands and len(op.inputs[1].shape or ()) > 2:  # type: ignore[union-attr]
        order = Format.plain((1, 0, *range(2, x.rank)))
        yield dict.fromkeys((X, Slot("in", 1), Y), order)


def proven(sample: Sample, op: Op, formats: OperandFormats) -> bool:
    """Whether the kernel sees other formats; if so, that it computes the same."""
    rule = rule_of(op)
    assert rule is not None
    seen = rule.kernel_formats(op, formats)
    if seen == formats:
        return False
    (feed,) = sample.feeds
    names = {value.name: Slot("in", index) for index, value in enumerate(op.inputs) if value is not None}
    read = {}
    for name, array in feed.items():
        slot = names[name]
        memory = pack(array, formats[slot]).reshape(seen[slot].physical_shape(array.shape))
        read[name] = np.ascontiguousarray(unpack(memory, seen[slot], array.shape))
    (want,), (got,) = run(sample.model, feed), run(sample.model, read)
    left, right = pack(want, formats[Y]).ravel(), pack(got, seen[Y]).ravel()
    assert np.allclose(left, right, atol=1e-4), (
        f"{sample}: { ({str(slot): str(each) for slot, each in formats.items()}) }"
    )
    return True


@pytest.mark.parametrize("sample", list(convolutions()), ids=str)
def test_channels_in_another_order(sample: Sample) -> None:
    (op,) = lifted(sample.model).ops
    assert sum(proven(sample, op, formats) for formats in reordered(op)) > 10


@pytest.mark.parametrize("sample", [*others(), *products()], ids=str)
def test_what_lies_outside(sample: Sample) -> None:
    (op,) = lifted(sample.model).ops
    assert sum(proven(sample, op, formats) for formats in completed(op))


@pytest.mark.parametrize("sample", list(order_sensitive()), ids=str)
def test_what_is_told(sample: Sample) -> None:
    (op,) = lifted(sample.model).ops
    rule = rule_of(op)
    assert rule is not None
    every = [*completed(op), *(reordered(op) if rule.is_anchor else ())]
    assert not sum(proven(sample, op, formats) for formats in every)
