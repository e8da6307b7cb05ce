"""Signatures of a unit, an op or a boundary value: their keys, completion from known formats, and padding states."""

from collections.abc import Collection, Iterator
from typing import Any, TypeAlias

from layoutopt.formats import Format
from layoutopt.ir.types import Op, Padding, Signature, Slot, Storage, Value
from layoutopt.ops import Inapplicable, canonical_signature, is_dequantizer, is_quantizer, rule_of, with_padding_states
from layoutopt.planner.region_tree import BoundaryUnit, RegionTree, Unit

Key: TypeAlias = tuple[Any, ...]


def storage_key(value: Value, storage: Storage | None) -> Key:
    """The key of a storage for the shape of a value: storages with equal keys have equal bytes, apart from padding."""
    return () if storage is None or value.shape is None else storage.format.key(value.shape)


def ops_at_outputs(tree: RegionTree, pins: Collection[Value]) -> Iterator[Op]:
    """The Q/DQ ops whose floating-point side is an output: unread DequantizeLinears, and QuantizeLinears of outputs."""
    for value in tree.graph.outputs:
        readers = tree.readers.get(value, ())
        writers = [tree.writers[value]] if value in tree.writers and not readers else []
        for op, _ in (*writers, *readers):
            is_qdq_op = isinstance(op, Op) and (is_quantizer(op) if readers else is_dequantizer(op))
            if isinstance(op, Op) and is_qdq_op and not any(each in pins for each in (value, *op.outputs)):
                yield op


def completed(unit: Unit, known: dict[Slot, Format]) -> Signature | Inapplicable:
    """The signature of a unit with known formats at some slots, or the reason why there is none."""
    if isinstance(unit, BoundaryUnit):
        return unit.complete(*next(iter(known.items()), (None, None)))
    rule = rule_of(unit)
    assert rule is not None
    return rule.signature(unit, known)


def canonical_of(unit: Unit) -> Signature:
    """The signature with canonical formats."""
    if isinstance(unit, Op):
        return canonical_signature(unit)
    signature = unit.complete()
    assert not isinstance(signature, Inapplicable)
    return signature


def signatures_with_padding(unit: Unit, signature: Signature, worst: list[Padding]) -> list[Signature]:
    """The signatures for the padding states that the inputs may have, up to the worst of each."""
    if isinstance(unit, BoundaryUnit):
        return unit.with_padding_states(signature, max(worst, default=Padding.ZERO))
    rule = rule_of(unit)
    return [signature] if rule is None else with_padding_states(rule, unit, signature, worst)


def signature_key(unit: Unit, signature: Signature) -> Key:
    """The key of a signature: signatures with equal keys have equal bytes in all operands and results, apart from padding."""
    return tuple(
        storage_key(value, storage) if value is not None else ()
        for value, storage in zip((*unit.inputs, *unit.outputs), (*signature.inputs, *signature.outputs), strict=True)
    )
