"""Law of `kernel_formats`: with operands read in the formats of the kernel, the op computes the same bytes.

For interleaved rows of windows, the kernel for another format runs on the unchanged memory, and its result is in the
corresponding format.
"""

from collections.abc import Iterator

import numpy as np
import pytest
from test_rules_handmade import Sample, made, run

from layoutopt.formats import Format, Part, pack, unpack
from layoutopt.ir.types import Op, Slot
from layoutopt.ops import Inapplicable, OperandFormats, rule_of
from layoutopt.testing.rules import lifted

X, Y = Slot("in", 0), Slot("out", 0)


def products() -> Iterator[Sample]:
    yield made("y = MatMul (a, b)", a=(4, 6, 8), b=(8, 5))
    yield made("y = MatMul (a, b)", a=(4, 1, 6, 8), b=(1, 1, 8, 5))
    yield made("y = MatMul (a, b)", a=(4, 6, 3, 8), b=(4, 6, 8, 5))


def completed(op: Op) -> Iterator[OperandFormats]:
    """The formats of an op that its rule completes from a format of x with interleaved rows."""
    rule, x = rule_of(op), op.inputs[0]
    assert rule is not None and x is not None and x.rank is not None
    candidates = [Format((Part(0), Part(1), Part(0, 2), Part(1, 3), *map(Part, range(2, x.rank))))]
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


@pytest.mark.parametrize("sample", list(products()), ids=str)
def test_products_of_interleaved_rows(sample: Sample) -> None:
    (op,) = lifted(sample.model).ops
    assert sum(proven(sample, op, formats) for formats in completed(op))


def test_batches_in_another_order_than_those_of_b() -> None:
    sample = made("y = MatMul (a, b)", a=(4, 6, 3, 8), b=(1, 6, 8, 5))
    (op,) = lifted(sample.model).ops
    assert not sum(proven(sample, op, formats) for formats in completed(op))
