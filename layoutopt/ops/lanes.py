"""Lanes: which operands have them, and the signatures that an op has with them.

Rules say what an op makes of lane states; here its signatures are spelled out for every state that the inputs may have.
"""

from collections.abc import Iterable
from itertools import product

import numpy as np

from layoutopt.ir.types import Array, Lanes, Op, Signature, Storage, Value
from layoutopt.ops.base import LayoutRule

LARGEST_FINITE = 1e3  # a constant above that is no small number: an infinity in a mask, say


def laned_axes(value: Value | None, storage: Storage | None) -> tuple[int, ...]:
    """The axes of a value that are padded in a storage."""
    if value is None or value.shape is None or storage is None or 0 in value.shape:
        return ()
    padded = storage.format.padded_shape(value.shape)
    return tuple(axis for axis, dim in enumerate(value.shape) if dim != padded[axis])


def has_lanes(value: Value | None, storage: Storage | None) -> bool:
    """Whether a value has lanes in a storage."""
    return bool(laned_axes(value, storage))


def state_of(numbers: Array) -> Lanes:
    """The state of lanes that are made of these numbers."""
    if not numbers.any():
        return Lanes.ZERO
    return Lanes.FINITE if bool((np.abs(numbers.astype(np.float64)) <= LARGEST_FINITE).all()) else Lanes.ANY


def with_lanes(rule: LayoutRule, op: Op, signature: Signature) -> Iterable[Signature]:
    """A signature once for every lane state that its inputs may have. Constants have zero lanes always."""
    laned = [
        index
        for index, (value, storage) in enumerate(zip(op.inputs, signature.inputs, strict=True))
        if value is not None and not value.is_constant and has_lanes(value, storage)
    ]
    laned_outputs = [has_lanes(value, storage) for value, storage in zip(op.outputs, signature.outputs, strict=True)]
    if not laned and not any(laned_outputs):
        yield signature
        return
    # Beyond two laned inputs only uniform states: 3**n combinations would not pay for themselves.
    cases = product(Lanes, repeat=len(laned)) if len(laned) <= 2 else ((state,) * len(laned) for state in Lanes)
    for case in cases:
        states = [Lanes.ZERO] * len(op.inputs)
        for index, state in zip(laned, case, strict=True):
            states[index] = state
        results = rule.lanes(op, signature, tuple(states))
        if results is None:
            continue
        padded = (*results, *(Lanes.ANY,) * (len(op.outputs) - len(results)))
        yield Signature(
            tuple(
                storage and Storage(storage.format, state)
                for storage, state in zip(signature.inputs, states, strict=True)
            ),
            tuple(
                storage and Storage(storage.format, state if laned_output else Lanes.ZERO)
                for storage, state, laned_output in zip(signature.outputs, padded, laned_outputs, strict=True)
            ),
        )
