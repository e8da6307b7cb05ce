"""Signatures of a unit, an op or a boundary value: their keys, completion from known formats, padding states and neighbours."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import product, repeat
from math import prod
from typing import Any, TypeAlias

from layoutopt.formats import Format
from layoutopt.ir.types import Op, Padding, Signature, Slot, Storage, Value
from layoutopt.ops import Inapplicable, canonical_signature, is_dequantizer, is_quantizer, rule_of, with_padding_states
from layoutopt.ops.interfaces.channel_permutation import PermutableChannels
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


def combined_formats(op: Op, signatures: Mapping[Key, Signature]) -> Iterator[dict[Slot, Format]]:
    """All combinations of the formats that the operands of an op have in signatures, without those of the signatures."""
    formats: dict[Slot, dict[Key, Format]] = {}
    for slot in op.slots():
        value = op.operand(slot)
        assert value is not None
        storages = [storage for signature in signatures.values() if (storage := signature[slot]) is not None]
        if storages:
            formats[slot] = {storage_key(value, each): each.format for each in storages}
    if prod(map(len, formats.values())) > len(signatures):
        known = {tuple(each[slot] for slot in formats) for each in map(_keys_by_slot, repeat(op), signatures.values())}
        for keys in product(*formats.values()):
            if keys not in known:
                yield {slot: formats[slot][key] for slot, key in zip(formats, keys, strict=True)}


def _keys_by_slot(op: Op, signature: Signature) -> dict[Slot, Key]:
    return {slot: storage_key(value, signature[slot]) for slot in op.slots() if (value := op.operand(slot)) is not None}


def reached_units(tree: RegionTree, values: Iterable[Value], ops: Iterable[Op], fixed: Collection[Op]) -> set[Unit]:
    """The units whose signatures may change with new formats of some values and new signatures of some ops.

    Args:
        tree: the graph and its regions.
        values: the values with new formats.
        ops: the ops with new signatures.
        fixed: the ops that keep their signatures.
    """
    found: set[Unit] = set(ops)
    pending = [*values, *(value for op in found for value in (*op.inputs, *op.outputs) if value is not None)]
    seen = set(pending)
    while pending:
        value = pending.pop()
        writers = [tree.writers[value]] if value in tree.writers else []
        for unit, _ in (*writers, *tree.readers.get(value, ())):
            if unit not in found and unit not in fixed and _takes_formats(unit):
                found.add(unit)
                others = [each for each in (*unit.inputs, *unit.outputs) if each is not None and each not in seen]
                seen.update(others)
                pending += others
    return found


def _takes_formats(unit: Unit) -> bool:
    """Whether the signatures of a unit depend on the formats of its neighbours."""
    rule = rule_of(unit) if isinstance(unit, Op) else None
    return isinstance(unit, BoundaryUnit) or (
        rule is not None and (not rule.is_anchor or isinstance(rule, PermutableChannels))
    )
