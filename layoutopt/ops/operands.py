"""Access to operands that a rule requires to be present and to have a rank (`LayoutRule.ranks`)."""

from layoutopt.formats import Shape
from layoutopt.ir.types import Op, Signature, TensorType, Value
from layoutopt.ops.signatures import padded_type


def present(value: Value | None) -> Value:
    """An operand that the operator requires."""
    assert value is not None, "a required operand is absent"
    return value


def shape_of(value: Value | TensorType | None) -> Shape:
    """The shape of an operand of required rank, or of a type."""
    shape = None if value is None else value.shape
    assert shape is not None, f"no rank: {value}; the rule has to require it"
    return shape


def rank_of(value: Value | None) -> int:
    """The number of axes of an operand of required rank."""
    return len(shape_of(value))


def chosen_signature(op: Op) -> Signature:
    """The signature that the planner has chosen for an op."""
    assert op.signature is not None, f"{op!r} has no signature"
    return op.signature


def padded_output(op: Op, index: int = 0) -> TensorType:
    """The type of an output in the canonical format under the chosen signature, its axes padded up to their blocks."""
    type = padded_type(op.outputs[index], chosen_signature(op).outputs[index])
    assert type is not None, f"{op!r}: output {index} is absent"
    return type


def present_type(type: TensorType | None) -> TensorType:
    """The type of an output that the operator requires."""
    assert type is not None, "a required output is absent"
    return type


__all__ = ["chosen_signature", "padded_output", "present", "present_type", "rank_of", "shape_of"]
