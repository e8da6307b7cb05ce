"""Activations that onnxruntime has fused into the preceding op: attributes with the name and the parameters."""

import numpy as np

from layoutopt.ir.types import Op, Padding
from layoutopt.ops.padding_state import state_of

_KEEP = frozenset({"", "HardSwish", "Relu", "Tanh"})  # |f(x)| is at most |x|
_BOUNDED = frozenset({"HardSigmoid", "Sigmoid"})


def padding_after_activation(op: Op, state: Padding) -> Padding:
    """The padding state after the fused activation of an op, for padding of the given state before it."""
    kind = str(op.attributes.get("activation", ""))
    if kind in _KEEP:
        return state
    if state is Padding.ANY:
        return Padding.ANY
    if kind in _BOUNDED:
        return Padding.FINITE
    numbers = op.attributes.get("activation_params", ())
    first = numbers[0] if isinstance(numbers, tuple) and numbers else op.attributes.get("activation_alpha")
    if kind == "LeakyRelu" and isinstance(first, float | int):
        return state if abs(first) <= 1 or not state else Padding.ANY
    if kind == "Clip" and isinstance(numbers, tuple) and len(numbers) == 2:
        low, high = np.asarray(numbers, dtype=np.float64)
        return max(state, state_of(np.clip(0.0, low, high)))
    return Padding.ANY


__all__ = ["padding_after_activation"]
