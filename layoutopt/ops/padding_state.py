"""Padding states of blocked operands: which axes are padded, and the signatures of an op for each state of its inputs.

A rule declares the states of the outputs for given states of the inputs (`LayoutRule.transfer_padding`). This module enumerates
the states of the inputs and returns a signature for each case that the op accepts.
"""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from layoutopt.formats import Format
from layoutopt.ir.types import Array, Op, Padding, Signature, Slot, Storage, Value
from layoutopt.ops.base import LayoutRule, rule_of
from layoutopt.ops.signatures import Inapplicable
from layoutopt.ops.transposable import untransposable_reason

LARGEST_FINITE = 1e3  # larger constants are ANY, for example infinities in masks


def padded_axes_of(value: Value | None, storage: Storage | None) -> tuple[int, ...]:
    """The axes of a value that a storage pads."""
    if value is None or value.shape is None or storage is None or 0 in value.shape:
        return ()
    padded = storage.format.padded_shape(value.shape)
    return tuple(axis for axis, dim in enumerate(value.shape) if dim != padded[axis])


def has_padding(value: Value | None, storage: Storage | None) -> bool:
    """Whether a storage pads a value."""
    return bool(padded_axes_of(value, storage))


def state_of(numbers: Array) -> Padding:
    """The padding state of elements with these values."""
    if not numbers.any():
        return Padding.ZERO
    return Padding.FINITE if bool((np.abs(numbers.astype(np.float64)) <= LARGEST_FINITE).all()) else Padding.ANY


def with_padding_states(
    rule: LayoutRule, op: Op, signature: Signature, largest: Sequence[Padding] | None = None
) -> list[Signature]:
    """The signatures for the padding states that the inputs may have, without dominated ones.

    Args:
        rule: the rule of the op.
        op: the op.
        signature: the formats of its operands.
        largest: the largest state that each input can have; ANY by default. The padding of constants is always zero.
    """
    return _undominated(padding_cases(rule, op, signature, largest))


def zero_padding_signature(op: Op, slot: Slot, format: Format) -> Signature | None:
    """The signature of an op with one operand in a format and zero padding on all inputs; None if there is none."""
    rule = rule_of(op)
    found = rule.signature(op, {slot: format}) if rule is not None else None
    if rule is None or found is None or isinstance(found, Inapplicable) or untransposable_reason(op, found):
        return None
    return next(iter(padding_cases(rule, op, found, [Padding.ZERO] * len(op.inputs))), None)


def padding_cases(
    rule: LayoutRule, op: Op, signature: Signature, largest: Sequence[Padding] | None = None
) -> list[Signature]:
    """The signatures for all padding states of the inputs that the op accepts."""
    inputs = [
        (index, value)
        for index, (value, storage) in enumerate(zip(op.inputs, signature.inputs, strict=True))
        if value is not None and has_padding(value, storage)
    ]
    have_padding = [has_padding(value, storage) for value, storage in zip(op.outputs, signature.outputs, strict=True)]
    if not inputs and not any(have_padding):
        return [signature]
    padded = [index for index, value in inputs if not value.is_constant]
    choices = [[state for state in Padding if largest is None or state <= largest[index]] for index in padded]
    # With more than two padded inputs all have one state: 3**n combinations are too many.
    cases = product(*choices) if len(padded) <= 2 else ((state,) * len(padded) for state in max(choices, key=len))
    found = [_with_states(rule, op, signature, dict(zip(padded, case, strict=True)), have_padding) for case in cases]
    return [each for each in found if each is not None]


def _with_states(
    rule: LayoutRule, op: Op, signature: Signature, given: Mapping[int, Padding], have_padding: Sequence[bool]
) -> Signature | None:
    """The signature for given states of some inputs; None if the op refuses them."""
    states = [given.get(index, Padding.ZERO) for index in range(len(op.inputs))]
    results = rule.transfer_padding(op, signature, tuple(states))
    if results is None:
        return None
    results = (*results, *(Padding.ANY,) * (len(op.outputs) - len(results)))
    results = tuple(state if has else Padding.ZERO for state, has in zip(results, have_padding, strict=True))
    inputs, outputs = zip(signature.inputs, states, strict=True), zip(signature.outputs, results, strict=True)
    return Signature(
        tuple(storage and Storage(storage.format, state) for storage, state in inputs),
        tuple(storage and Storage(storage.format, state) for storage, state in outputs),
    )


def _undominated(signatures: list[Signature]) -> list[Signature]:
    """The signatures that no other one dominates; of equal ones the last."""
    kept: list[Signature] = []
    for signature in reversed(signatures):
        if not any(_dominates(other, signature) for other in kept):
            kept = [other for other in kept if not _dominates(signature, other)]
            kept.append(signature)
    return kept[::-1]


def _dominates(one: Signature, other: Signature) -> bool:
    accepts = all(
        a is None or b is None or a.padding >= b.padding for a, b in zip(one.inputs, other.inputs, strict=True)
    )
    leaves = all(
        a is None or b is None or a.padding <= b.padding for a, b in zip(one.outputs, other.outputs, strict=True)
    )
    return accepts and leaves
