"""A graph of one op under a given signature, on arrays whose padding has the worst values that the signature accepts."""

from typing import cast

import numpy as np
import onnx
import onnx_ir as ir

from layoutopt.cost import CostModel
from layoutopt.cost_models import load_target
from layoutopt.formats import Format, Part, Shape, pack, unpack
from layoutopt.inference import lift
from layoutopt.ir.cast import insert_cast
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, Op, Padding, Signature, Slot, Storage, Value
from layoutopt.ir.verify import violations
from layoutopt.onnx_io import check, emit, to_bytes
from layoutopt.ops import Inapplicable, canonical_signature, rule_of
from layoutopt.passes import InsertCasts, PretransformWeights
from layoutopt.passes.assign_formats import assign
from layoutopt.passes.base import PassContext
from layoutopt.testing.lowering import lower
from layoutopt.testing.samples import Feed, Loader, load_in_onnxruntime
from layoutopt.testing.tolerance import compare

_NO_TARGET = cast(CostModel, None)
_ANY_TARGET = "gpu-hopper"  # whose prices decide nothing: all packed weights fit the limit of growth
_LARGE = 1e4  # limit of finite padding, times the largest number of the inputs


def lifted(model: onnx.ModelProto) -> Graph:
    """The graph of a model."""
    return lift(ir.serde.deserialize_model(model))


def clone(graph: Graph) -> tuple[Graph, Op]:
    """A copy of a graph of one op, and its op."""
    if graph.regions() != [graph]:
        assert isinstance(graph.origin, ir.Model)
        result = lift(graph.origin)
        return result, result.ops[0]
    result = Graph(graph.name, graph.opsets, graph.origin)
    values = {
        value: result.add_value(Value(value.name, value.type, data=value.data, origin=value.origin))
        for value in graph.values
    }
    result.inputs = [values[value] for value in graph.inputs]
    (op,) = graph.ops
    inputs, outputs = (tuple(value and values[value] for value in side) for side in (op.inputs, op.outputs))
    copy = op.copy(inputs, outputs)
    result.add_op(copy)
    result.outputs = [values[value] for value in graph.outputs]
    return result, copy


def forced(graph: Graph, signature: Signature) -> Graph:
    """The graph with its op under a signature, and its inputs and outputs in the storages of that signature.

    The ops of bodies are canonical, with casts at the boundaries of the bodies.
    """
    graph, op = clone(graph)
    assign(graph, op, signature, set(graph.values))
    for body in op.bodies.values():
        for inner in body.ops:
            inner.signature = canonical_signature(inner)
        InsertCasts().run(body, PassContext(_NO_TARGET))
    for value in graph.inputs:
        inputs = [signature.inputs[index] for index, each in enumerate(op.inputs) if each is value]
        storages = [storage for storage in inputs if storage is not None]
        if storages:
            alike = [storage.padding for storage in storages if storage.format == storages[0].format]
            value.storage = Storage(storages[0].format, min(alike))
    required = ((index, value.storage) for index, value in enumerate(graph.outputs))
    graph.output_storages = {index: storage for index, storage in required if storage is not None}
    for index, (operand, storage) in enumerate(zip(op.inputs, signature.inputs, strict=True)):
        if operand is not None and storage is not None and operand.storage != storage:
            _cast(graph, op, index, operand, storage)
    graph.stage = "cast"
    PretransformWeights().run(graph, PassContext(load_target(_ANY_TARGET)))
    assert not list(violations(graph))
    return graph


def _cast(graph: Graph, op: Op, index: int, value: Value, storage: Storage) -> None:
    if value.storage is not None and value.storage.format != storage.format:
        graph.set_input(op, index, insert_cast(graph, value, Storage(storage.format)))


def padding_mask(format: Format, shape: tuple[int, ...]) -> Array:
    """The positions of the padding elements of the physical array, as a mask."""
    return ~pack(np.ones(shape, np.bool_), format)


def with_worst_padding(physical: Array, where: Array, state: Padding) -> Array:
    """The array with the worst padding elements that a padding state permits, at the positions `where`."""
    if state is Padding.ZERO or not where.any():
        return physical
    kind, numbers = physical.dtype.kind, []
    if kind == "f":
        numbers = [3.7, -3.7, 1.0] if state is Padding.FINITE else [np.nan, np.inf, -np.inf]
    elif kind in "iu":
        info = np.iinfo(physical.dtype)
        numbers = [3, 1, -3 if kind == "i" else 2] if state is Padding.FINITE else [info.max, info.min]
    else:
        numbers = [True]
    filled = physical.copy()
    filled[where] = np.resize(np.asarray(numbers, physical.dtype), int(where.sum()))
    return filled


def sample_formats(shape: Shape, *, is_thorough: bool) -> list[Format]:
    """Formats to test: orders of axes, channels last, blocks of one axis, of two axes, two blocks of one axis."""
    rank = len(shape)
    if rank == 0:
        return []
    plain = Format.canonical(rank)
    orders = [plain.order[::-1], (0, *range(2, rank), 1), (*range(1, rank), 0), (1, 0, *range(2, rank))]
    if is_thorough and rank <= 4:
        orders += [(*first,) for first in _permutations(rank)]
    elif rank > 2:
        orders += [(*range(rank - 2), rank - 1, rank - 2), (rank - 1, *range(rank - 1))]
    found = [Format.plain(order) for order in orders if sorted(order) == list(range(rank))]
    blocks = [[(1, 4)], [(1, 8)], [(1, 16)], [(0, 4)], [(rank - 1, 4)], [(0, 4), (1, 8)], [(1, 8), (0, 8)]]
    blocks += [[(rank - 2, 2), (rank - 1, 4)], [(2, 2)], [(1, 2)], [(1, 32)]]
    bases = [plain, found[min(1, len(found) - 1)], *(found[2:4] if is_thorough else ())]
    for base in bases:
        for chosen in blocks:
            inner = [Part(axis, block) for axis, block in chosen]
            found += [Format((*base.parts, *inner))] if all(0 <= part.axis < rank for part in inner) else []
    if rank > 1:  # the innermost axis with its outer digit innermost
        found.append(Format((*plain.parts[:-1], Part(rank - 1, 2), Part(rank - 1))))
    if rank > 2:  # both levels of an axis away from each other
        found.append(Format((*plain.parts[:2], Part(1, 4), *plain.parts[2:], Part(1, 2))))
        found.append(Format((*plain.parts[:2], Part(0, 2), Part(1, 2), *plain.parts[2:])))  # windows
        found.append(Format((Part(1, 2, 1), *plain.parts[1:], Part(0), Part(1, 2, 2))))  # digits in no order
        found.append(Format((Part(0), *plain.parts[2:], Part(1, 2), Part(1))))  # a channel shuffle
    return list(dict.fromkeys(found))


def _formats_of(value: Value | None, *, is_thorough: bool) -> list[Format]:
    return [] if value is None or value.shape is None else sample_formats(value.shape, is_thorough=is_thorough)


def _permutations(rank: int) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = [()]
    for axis in range(rank):
        found = [(*each[:at], axis, *each[at:]) for each in found for at in range(len(each) + 1)]
    return found


def _independent(op: Op, is_thorough: bool) -> list[dict[Slot, Format]]:
    """Combinations of formats for ops whose operands have independent formats."""
    slots = [slot for slot in op.slots() if (value := op.operand(slot)) is not None and value.rank]
    seeds = {slot: _formats_of(op.operand(slot), is_thorough=is_thorough) for slot in slots}
    found = []
    for turn in range(400 if is_thorough else 60):
        known = {}
        for position, slot in enumerate(slots):
            options = [None, *seeds[slot]]
            chosen = options[(turn * (7 + 4 * position) + turn // 5 + position) % len(options)]
            if chosen is not None:
                known[slot] = chosen
        found.append(known)
    return found


def legal_signatures(op: Op, *, is_thorough: bool) -> list[Signature]:
    """The signatures that the rule completes from formats at one slot or at several slots."""
    rule = rule_of(op)
    assert rule is not None
    proposals: list[dict[Slot, Format]] = []
    for slot in op.slots():
        proposals += [{slot: format} for format in _formats_of(op.operand(slot), is_thorough=is_thorough)]
    if rule.is_anchor or rule.has_independent_operands:
        proposals += _independent(op, is_thorough)
    found = [rule.signature(op, known) for known in proposals]
    return list(dict.fromkeys(each for each in found if not isinstance(each, Inapplicable)))


def fault_of(
    graph: Graph, feeds: tuple[Feed, ...], expected: list[list[Array]], dialect: str, load: Loader = load_in_onnxruntime
) -> str:
    """The fault of a forced graph that is written in a dialect; empty if there is none."""
    lowered = emit(lower(graph, dialect))
    check(lowered)
    runner = load(to_bytes(lowered))
    storages = {value.name: value.storage for value in (*graph.inputs, *graph.outputs)}
    for feed, outputs in zip(feeds, expected, strict=True):
        physical = {name: _dirty(array, storages[name]) for name, array in feed.items()}
        numbers = [array.astype(np.float64) for array in feed.values() if array.dtype.kind in "fiu"]
        largest = max(float(np.abs(array).max(initial=1)) for array in [*numbers, np.ones(1)])
        for value, output, actual in zip(graph.outputs, outputs, runner.run(None, physical), strict=True):
            fault = _fault(value, output, np.asarray(actual), largest)
            if fault:
                return f"{dialect}: {value.name} {fault}"
    return ""


def _dirty(array: Array, storage: Storage | None) -> Array:
    if storage is None:
        return array
    where = padding_mask(storage.format, array.shape)
    return with_worst_padding(pack(array, storage.format), where, storage.padding)


def _fault(value: Value, expected: Array, actual: Array, largest: float) -> str:
    storage = value.storage
    if storage is None:
        return "" if compare(expected, actual).passed else "differs"
    shape = storage.format.physical_shape(expected.shape)
    if actual.shape != shape:
        return f"has the physical shape {actual.shape}, not {shape}"
    comparison = compare(expected, unpack(actual, storage.format, expected.shape))
    if not comparison.passed:
        return f"differs by {comparison.error:.2g}"
    padding = actual[padding_mask(storage.format, expected.shape)]
    if storage.padding is Padding.ZERO and padding.size and (padding != 0).any():
        return f"has {padding[padding != 0][0]} in zero padding"
    sizes = np.abs(padding.astype(np.float64)) if padding.dtype.kind == "f" else np.zeros(0)
    if storage.padding is Padding.FINITE and not (sizes <= _LARGE * largest).all():
        return f"has {sizes.max()} in finite padding"
    return ""
