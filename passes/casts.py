"""Passes on the layout conversions of a planned graph: where they are, and which of them are needed."""

from collections import Counter
from collections.abc import Hashable

from msgspec.structs import replace

from layoutopt.ir.constants import stored
from layoutopt.ir.graph import Graph, Use, cast_storages, insert_cast, is_cast, moves, name_with_format, storage_name
from layoutopt.ir.types import Data, Op, Signature, Storage, Value
from layoutopt.ops import (
    X,
    Y,
    estimated_volume,
    is_canonical,
    is_dequantizer,
    is_quantizer,
    rule_of,
    zero_padding_signature,
)
from layoutopt.ops.region_ops import expected_runs
from layoutopt.ops.view import View
from layoutopt.passes.base import Pass, PassContext
from layoutopt.record import Record


class ConvertIntegers(Pass):
    """Move layout conversions from the floating-point side to the integer side of Q/DQ ops.

    before: q(NHWC) -> DequantizeLinear(NHWC) -> d, which is an output in NCHW
    after:  q(NHWC) -> DequantizeLinear(NCHW) -> d

    before: x(NHWC) -> QuantizeLinear(NHWC) -> p(NHWC)      where x is an output in NCHW as well
    after:  x(NHWC) -> QuantizeLinear(NCHW) -> p(NCHW)

    The converted integers are a quarter of the bytes. A Q/DQ op is unchanged for readers that use its planned storage.
    Runtimes also depend on the neighbours of Q/DQ ops: onnxruntime 1.31 does not load a DequantizeLinear of int8 -> Transpose
    at opset 21 or later, and of an output x -> Transpose -> QuantizeLinear it rounds the output.
    """

    name = "convert-integers"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Change signatures of Q/DQ ops before conversions are inserted, so that these are inserted on the integer side."""
        for op in graph.ops:
            if is_dequantizer(op):
                _dequantize_per_storage(graph, op)
            elif is_quantizer(op):
                _quantize_output(graph, op)


def _dequantize_per_storage(graph: Graph, qdq_op: Op) -> None:
    """Copy a DequantizeLinear for every storage that readers and graph outputs require of its result."""
    value = qdq_op.y
    uses = {use: use.required for use in graph.uses(value) if not satisfies(value, use.required)}
    outputs = {at: graph.output_storage(at) for at in graph.output_positions(value)}
    outputs = {at: required for at, required in outputs.items() if not satisfies(value, required)}
    for required in dict.fromkeys([*uses.values(), *outputs.values()]):
        assert required is not None
        signature = zero_padding_signature(qdq_op, Y, required.format) if qdq_op.signature is not None else None
        storage = signature.outputs[0] if signature is not None else None
        if signature is None or storage is None or storage.padding > required.padding:
            continue
        reads = [use for use, each in uses.items() if each == required]
        positions = [position for position, each in outputs.items() if each == required]
        has_all_uses = len(reads) == graph.use_count(value) and positions == graph.output_positions(value)
        copy = value if has_all_uses else _copied(graph, qdq_op, value)
        _set_signature(graph, copy, signature)
        graph.replace_uses(value, copy, reads)
        for position in positions:
            graph.set_output(position, copy)
        if positions and copy is not value and graph.root is graph:
            _take_name(graph, copy, value)


def _copied(graph: Graph, qdq_op: Op, value: Value) -> Value:
    """The result of a copy of a Q/DQ op."""
    copy = graph.new_value(value.name, value.type, tensor=value.tensor, origin=value.origin)
    copy.axis_letters = value.axis_letters
    graph.add_copy(qdq_op, (copy,))
    return copy


def _quantize_output(graph: Graph, qdq_op: Op) -> None:
    """Change the signature of a QuantizeLinear of a graph output to read the output in its required storage."""
    value = qdq_op.x
    required = graph.output_storage(graph.output_positions(value)[0]) if graph.is_output(value) else None
    if required is None or not moves(value, required):
        return
    signature = zero_padding_signature(qdq_op, X, required.format)
    if signature is not None:
        _set_signature(graph, qdq_op.y, signature)


def _set_signature(graph: Graph, result: Value, signature: Signature) -> None:
    """Set the signature, on the same device, of the Q/DQ op that computes a value."""
    assert result.storage is not None
    signature = signature.placed(result.storage.device)
    qdq_op, storage = graph.producer(result), signature.outputs[0]
    assert qdq_op is not None and storage is not None
    qdq_op.signature, result.storage = signature, storage
    name = storage_name(result, storage)
    if result.name not in (name, result.tensor):
        graph.rename(result, graph.fresh_name(name))
    graph.touch()


def _take_name(graph: Graph, copy: Value, value: Value | None) -> None:
    """Give the name of the tensor, which a value may have, to the copy that is an output: callers refer to outputs by name."""
    if value is not None and value.name == value.tensor:
        assert value.storage is not None
        graph.rename(value, graph.fresh_name(name_with_format(value, value.storage)))
    if copy.name != copy.tensor:
        graph.rename(copy, copy.tensor)


def satisfies(value: Value, required: Storage | None) -> bool:
    """Whether a value can be read as `required` without a conversion, apart from its device."""
    if required is None or value.storage is None or value.shape is None:
        return True
    return value.storage.format == required.format and value.storage.padding <= required.padding


def is_available(value: Value, required: Storage | None) -> bool:
    """Whether a value can be read as `required` without a conversion and without a transfer."""
    is_there = value.storage is None or required is None or value.storage.is_on(required.device)
    return is_there and satisfies(value, required)


class InsertCasts(Pass):
    """Insert a layout conversion between a producer and a consumer that use different storages.

    before: a(NHWC) -> Conv(NCHW)      a(NHWC) -> Pool(NCHW)
    after:  a(NHWC) -> CastData -> Conv(NCHW)      a(NHWC) -> CastData -> Pool(NCHW)

    Deliberately naive: one cast per edge. Sharing and cancelling are other passes.
    """

    name = "insert-casts"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Insert casts for the operands of ops, then for the graph's outputs."""
        for op in graph.ops:
            assert op.signature is not None
            copies: dict[int, Value | None] = {}
            for index, required in enumerate(op.signature.inputs):
                value = op.inputs[index]
                if value is not None and required is not None and not is_available(value, required):
                    is_free = value.is_constant and context.mode == "inference"
                    copies[index] = insert_cast(graph, value, replace(required, device="") if is_free else required)
            graph.change_inputs(op, copies)
        for index, value in enumerate(graph.outputs):
            required = graph.output_storage(index)
            if graph.root is graph:
                graph.set_output(index, self._named(graph, value, required))
            elif required is not None and not is_available(value, required):
                graph.set_output(index, insert_cast(graph, value, required))
        graph.stage = "cast"

    def _named(self, graph: Graph, value: Value, required: Storage | None) -> Value:
        """The copy of a value in a storage, under the name of the tensor, since callers refer to outputs by name."""
        if is_available(value, required) or required is None:
            _take_name(graph, value, None)
            return value
        present = graph.find(value.tensor)
        if present is not None and is_available(present, required):
            return present
        copy = insert_cast(graph, value, required)
        _take_name(graph, copy, present)
        return copy


class ShareCasts(Pass):
    """Keep one CastData per value and storage, and one that moves bytes per value and byte order.

    before: a -> CastData(NHWC) -> x      a -> CastData(NHWC) -> y
    after:  a -> CastData(NHWC) -> x, y

    before: a -> CastData(NHWC) -> x      a -> CastData(NCHW16c) -> y       where 16 channels make the same bytes of both
    after:  a -> CastData(NHWC) -> x -> CastData(NCHW16c) -> y        the second one changes only the shape
    """

    name = "share-casts"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Share the casts of a value to equal storages, then redirect casts to the first copy with the same bytes."""
        copies: dict[tuple[Value, Hashable], Value] = {}
        for op in filter(is_cast, graph.ops):
            copy, key = op.y, (op.x, op.y.storage)
            kept = copies.setdefault(key, copy)
            if kept is not copy and graph.is_output(copy):  # a graph output stays
                copies[key], kept, copy = copy, copy, kept
            if kept is not copy and not graph.is_output(copy):
                graph.replace_uses(copy, kept)
                graph.remove_if_dead(_cast_of(graph, copy))
        moved: dict[tuple[Value, Hashable], Value] = {}
        for op in filter(is_cast, graph.ops):
            storage = op.y.storage
            if storage is None or not moves(op.x, storage):
                continue
            stored = storage.format.key(op.y.dims), storage.padding, storage.device
            first = moved.setdefault((op.x, stored), op.y)
            if first is not op.y:
                graph.set_input(op, 0, first)
                op.signature = Signature((first.storage,), (storage,))


def _cast_of(graph: Graph, value: Value) -> Op:
    """The CastData that computes a value."""
    op = graph.producer(value)
    assert op is not None
    return op


class CancelCasts(Pass):
    """Remove redundant layout conversions.

    before: a(NCHW) -> CastData(NHWC) -> CastData(NCHW) -> Conv
    after:  a(NCHW) -> Conv

    A cast between blocked formats leaves zero padding, so it stays if its reader does not accept the padding of the source.
    """

    name = "cancel-casts"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Visit casts in topological order, so that each of a chain reads the source of the chain."""
        for op in filter(is_cast, graph.ops):
            source, copy = op.x, op.y
            assert op.signature is not None and copy.storage is not None
            before = graph.producer(source)
            is_shared = graph.use_count(source) > 1 or graph.is_output(source)
            if before is not None and is_cast(before) and not (is_shared and not moves(source, copy.storage)):
                assert before.signature is not None
                graph.set_input(op, 0, before.x)
                op.signature = Signature(before.signature.inputs, op.signature.outputs)
                graph.remove_if_dead(before)
            storage = op.x.storage
            if storage is not None and storage.format == copy.storage.format and storage.is_on(copy.storage.device):
                graph.replace_uses(copy, op.x, [use for use in graph.uses(copy) if accepts(use, storage)])
            if not graph.is_used(copy):
                graph.remove_op(op)


def accepts(use: Use, storage: Storage) -> bool:
    """Whether a reader accepts the padding state of a storage."""
    return use.required is None or storage.padding <= use.required.padding


class AbsorbCasts(Pass):
    """Undo a metadata-only op whose result is converted back to the canonical format.

    before: x(NCHW) -> Transpose(a view op: y in CHWN...) -> CastData(canonical) -> ...
    after:  x(NCHW) -> Transpose(moves bytes)            -> y(canonical)        -> ...
    """

    name = "absorb-casts"
    justifies_rewrite = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Restore the ops whose only reader is a cast and whose input and converted result are canonical."""
        for op in graph.ops:
            cast = graph.only_reader(op.y) if isinstance(rule_of(op), View) else None
            if cast is None or not is_cast(cast) or cast.signature is None or op.signature is None:
                continue
            restored = Signature(op.signature.inputs, cast.signature.outputs)
            if is_canonical(restored) and cast.signature.device == op.signature.device:
                op.signature, op.y.storage = restored, cast.y.storage
                graph.replace_value(cast.y, op.y)


class PretransformWeights(Pass):
    """Store constants in the storage that their readers require.

    before: w(constant, OIHW) -> CastData(OHWI) -> Conv
    after:  w(constant, OHWI) -> Conv

    The elements stay in logical order in the graph; they are packed when the model is written, so no packed copy is in
    memory. A constant that is read in several formats is stored in each. If the file may not grow by all of them, those with
    the largest estimated gain per byte are stored, and the other CastData run with the model.
    """

    name = "pretransform-weights"
    justifies_rewrite = False
    handles_bodies = True
    needs_constants = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Replace every cast of a constant by a constant; in training mode weights change, so all casts stay."""
        regions = graph.regions()
        casts = [_Cast(each, op, source) for each in regions for op in each.ops if (source := _constant_source(op))]
        holders = Counter(value.data for each in regions for value in each.values if value.data is not None)
        budget, runs = context.budget(self, graph), expected_runs(graph)
        model = context.prices_at(context.sizes)

        def price(cast: _Cast) -> float:
            """The estimated seconds of a conversion in one run of the model."""
            return model.conversion_seconds(cast.source, *cast_storages(cast.op)) * runs.get(cast.graph, 1.0)

        prices = {cast: price(cast) for cast in casts}
        fits = sum(cast.nbytes for cast in casts) <= budget.remaining
        for cast in sorted(casts, key=lambda each: each.nbytes if fits else -prices[each] / max(1, each.nbytes)):
            name, growth = cast.copy.name, cast.nbytes - cast.released(holders)
            if budget.request(name, growth, prices[cast], is_certain=fits):
                _pack(cast)
            else:
                context.note(self, name, "it is converted at run time: the file may not grow by another copy")


class _Cast(Record):
    """A CastData of a constant."""

    graph: Graph
    op: Op
    source: Value

    @property
    def copy(self) -> Value:
        return self.op.y

    @property
    def nbytes(self) -> int:
        """The size of the packed constant in the file."""
        (_, storage), shape, size = cast_storages(self.op), self.copy.dims, sum(stored(self.source).values())
        return size * estimated_volume(storage.format.physical_shape(shape)) // max(1, estimated_volume(shape))

    def released(self, holders: Counter[Data]) -> int:
        """The size of the source, if no other op reads it."""
        is_alone = self.graph.use_count(self.source) == 1 and not self.graph.is_output(self.source)
        data = self.source.data
        return sum(stored(self.source).values()) if is_alone and data is not None and holders[data] == 1 else 0


def _constant_source(op: Op) -> Value | None:
    source = op.inputs[0] if op.inputs else None
    return source if is_cast(op) and source is not None and source.is_constant else None


def _pack(cast: _Cast) -> None:
    """Replace a CastData by a constant."""
    graph, source, copy = cast.graph, cast.source, cast.copy
    packed = graph.new_value(copy.name, copy.type, storage=copy.storage, data=source.data, tensor=source.tensor)
    packed.axis_letters = copy.axis_letters
    graph.replace_value(copy, packed)
    if not graph.is_used(source):
        graph.remove_value(source)
