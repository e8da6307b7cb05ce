"""Lanes: which operands have them, and the signatures that an op has with them.

Rules say what an op makes of lane states; here its signatures are spelled out for every state that the inputs may have.
"""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from layoutopt.formats import Format
from layoutopt.ir.types import Array, Lanes, Op, Signature, Slot, Storage, Value
from layoutopt.ops.base import LayoutRule, rule_of
from layoutopt.ops.signatures import Inapplicable
from layoutopt.ops.transposable import untransposable

LARGEST_FINITE = 1e3  # a constant above that is no small number: an infinity in a mask, say


def padded_axes_of(value: Value | None, storage: Storage | None) -> tuple[int, ...]:
    """The axes of a value that are padded in a storage."""
    if value is None or value.shape is None or storage is None or 0 in value.shape:
        return ()
    padded = storage.format.padded_shape(value.shape)
    return tuple(axis for axis, dim in enumerate(value.shape) if dim != padded[axis])


def has_padding(value: Value | None, storage: Storage | None) -> bool:
    """Whether a value has lanes in a storage."""
    return bool(padded_axes_of(value, storage))


def state_of(numbers: Array) -> Lanes:
    """The state of lanes that are made of these numbers."""
    if not numbers.any():
        return Lanes.ZERO
    return Lanes.FINITE if bool((np.abs(numbers.astype(np.float64)) <= LARGEST_FINITE).all()) else Lanes.ANY


def with_padding_states(
    rule: LayoutRule, op: Op, signature: Signature, worst: Sequence[Lanes] | None = None
) -> list[Signature]:
    """The signatures for the lane states that the inputs may have, without those that another one makes pointless.

    Args:
        rule: the op's rule.
        op: the op.
        signature: its formats.
        worst: the largest state that each input can be in; ANY by default. Constants have zero lanes always.
    """
    return _undominated(padding_cases(rule, op, signature, worst))


def clean_signature(op: Op, slot: Slot, format: Format) -> Signature | None:
    """The signature of an op with an operand in a format, whose inputs have zero lanes; None if it has none."""
    rule = rule_of(op)
    found = rule.signature(op, {slot: format}) if rule is not None else None
    if rule is None or found is None or isinstance(found, Inapplicable) or untransposable(op, found):
        return None
    return next(iter(padding_cases(rule, op, found, [Lanes.ZERO] * len(op.inputs))), None)


def padding_cases(
    rule: LayoutRule, op: Op, signature: Signature, worst: Sequence[Lanes] | None = None
) -> list[Signature]:
    """A signature once for every lane state that its inputs may have and that the op works on."""
    inputs = [
        (index, value)
        for index, (value, storage) in enumerate(zip(op.inputs, signature.inputs, strict=True))
        if value is not None and has_padding(value, storage)
    ]
    laned_outputs = [has_padding(value, storage) for value, storage in zip(op.outputs, signature.outputs, strict=True)]
    if not inputs and not any(laned_outputs):
        return [signature]
    laned = [index for index, value in inputs if not value.is_constant]
    choices = [[state for state in Lanes if worst is None or state <= worst[index]] for index in laned]
    # Beyond two laned inputs only uniform states: 3**n combinations would not pay for themselves.
    cases = product(*choices) if len(laned) <= 2 else ((state,) * len(laned) for state in max(choices, key=len))
    found = [_with_states(rule, op, signature, dict(zip(laned, case, strict=True)), laned_outputs) for case in cases]
    return [each for each in found if each is not None]


def _with_states(
    rule: LayoutRule, op: Op, signature: Signature, given: Mapping[int, Lanes], laned_outputs: Sequence[bool]
) -> Signature | None:
    """The signature for these states of some inputs; None if the op does not work on them."""
    states = [given.get(index, Lanes.ZERO) for index in range(len(op.inputs))]
    results = rule.transfer_padding(op, signature, tuple(states))
    if results is None:
        return None
    padded = (*results, *(Lanes.ANY,) * (len(op.outputs) - len(results)))
    inputs = zip(signature.inputs, states, strict=True)
    outputs = zip(signature.outputs, padded, laned_outputs, strict=True)
    return Signature(
        tuple(storage and Storage(storage.format, state) for storage, state in inputs),
        tuple(storage and Storage(storage.format, state if laned else Lanes.ZERO) for storage, state, laned in outputs),
    )


def _undominated(signatures: list[Signature]) -> list[Signature]:
    """Those of which no other one accepts as much or more, and leaves as little or less. The last of equals stays."""
    kept: list[Signature] = []
    for signature in reversed(signatures):
        if not any(_dominates(other, signature) for other in kept):
            kept = [other for other in kept if not _dominates(signature, other)]
            kept.append(signature)
    return kept[::-1]


def _dominates(one: Signature, other: Signature) -> bool:
    accepts = all(a is None or b is None or a.lanes >= b.lanes for a, b in zip(one.inputs, other.inputs, strict=True))
    leaves = all(a is None or b is None or a.lanes <= b.lanes for a, b in zip(one.outputs, other.outputs, strict=True))
    return accepts and leaves
