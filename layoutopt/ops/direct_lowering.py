"""Lowering to one op of the same type on the physical arrays."""

from collections.abc import Mapping, Sequence

from layoutopt.ir.types import Attribute, Op, Value
from layoutopt.ops.base import Builder


def lower_directly(
    op: Op,
    build: Builder,
    attributes: Mapping[str, Attribute] | None = None,
    inputs: Sequence[Value | None] | None = None,
) -> None:
    """Write the same op on the physical arrays.

    Args:
        op: the op.
        build: records the new op.
        attributes: attributes that differ from those of the op.
        inputs: all inputs, if they differ from the physical inputs of the op.
    """
    if inputs is None:
        inputs = [build.input(index) for index in range(len(op.inputs))]
    present = [index for index, value in enumerate(op.outputs) if value is not None]
    types = [build.output_type(index) for index in range(max(present, default=-1) + 1)]
    results = build.op(op.op_type, inputs, types, {**op.attributes, **(attributes or {})})
    for index, result in zip(present, results, strict=True):
        build.set_output(index, result)


__all__ = ["lower_directly"]
