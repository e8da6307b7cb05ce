"""Convert the layout of quantised integers instead of the floating-point values around them.

before: q(NHWC) -> DequantizeLinear(NHWC) -> d, which is an output in NCHW
after:  q(NHWC) -> DequantizeLinear(NCHW) -> d

before: x(NHWC) -> QuantizeLinear(NHWC) -> p(NHWC)      where x is an output in NCHW as well
after:  x(NHWC) -> QuantizeLinear(NCHW) -> p(NCHW)

The converted integers are a quarter of the bytes. A Q/DQ op is unchanged for readers that use its planned storage. Runtimes
also depend on the neighbours of Q/DQ ops: onnxruntime 1.31 does not load a DequantizeLinear of int8 -> Transpose at opset 21
or later, and of an output x -> Transpose -> QuantizeLinear it rounds the output.
"""

from dataclasses import dataclass

from layoutopt.ir.graph import Graph, Use, moves, name_with_format, storage_name
from layoutopt.ir.types import Op, Signature, Storage, Value
from layoutopt.ops import X, Y, is_dequantizer, is_quantizer, zero_padding_signature
from layoutopt.passes.base import Pass, PassContext
from layoutopt.passes.insert_casts import satisfies


@dataclass(frozen=True, slots=True)
class ConvertIntegers(Pass):
    """Move layout conversions from the floating-point side to the integer side of Q/DQ ops."""

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
    value = qdq_op.outputs[0]
    if value is None or value.storage is None or qdq_op.signature is None:
        return
    uses, outputs = _unmet(graph, value)
    for required in dict.fromkeys([*(required for _, required in uses), *(required for _, required in outputs)]):
        signature = zero_padding_signature(qdq_op, Y, required.format)
        storage = signature.outputs[0] if signature is not None else None
        if signature is None or storage is None or storage.padding > required.padding:
            continue
        reads = [use for use, each in uses if each == required]
        positions = [position for position, each in outputs if each == required]
        has_all_uses = len(reads) == graph.use_count(value) and positions == graph.output_positions(value)
        copy = value if has_all_uses else _copied(graph, qdq_op, value)
        _set_signature(graph, copy, signature)
        graph.replace_uses(value, copy, reads)
        for position in positions:
            graph.set_output(position, copy)
        if positions and copy is not value and graph.root is graph:
            _take_name(graph, copy, value)


def _unmet(graph: Graph, value: Value) -> tuple[list[tuple[Use, Storage]], list[tuple[int, Storage]]]:
    """The reads and the outputs that require a value in another storage."""
    uses = []
    for use in graph.uses(value):
        required = use.op.signature.inputs[use.index] if use.op.signature is not None else None
        if required is not None and not satisfies(value, required):
            uses.append((use, required))
    outputs = []
    for position in graph.output_positions(value):
        required = graph.output_storage(position)
        if required is not None and not satisfies(value, required):
            outputs.append((position, required))
    return uses, outputs


def _copied(graph: Graph, qdq_op: Op, value: Value) -> Value:
    """The result of a copy of a Q/DQ op."""
    copy = graph.new_value(value.name, value.type, tensor=value.tensor, origin=value.origin)
    copy.axis_letters = value.axis_letters
    graph.add_copy(qdq_op, (copy,))
    return copy


def _quantize_output(graph: Graph, qdq_op: Op) -> None:
    """Change the signature of a QuantizeLinear of a graph output to read the output in its required storage."""
    value, result = qdq_op.inputs[0], qdq_op.outputs[0]
    if value is None or result is None or not graph.is_output(value):
        return
    required = graph.output_storage(graph.output_positions(value)[0])
    if required is None or not moves(value, required):
        return
    signature = zero_padding_signature(qdq_op, X, required.format)
    if signature is not None:
        _set_signature(graph, result, signature)


def _set_signature(graph: Graph, result: Value, signature: Signature) -> None:
    """Set the signature of the Q/DQ op that computes a value."""
    qdq_op, storage = graph.producer(result), signature.outputs[0]
    assert qdq_op is not None and storage is not None
    qdq_op.signature, result.storage = signature, storage
    name = storage_name(result, storage)
    if result.name not in (name, result.tensor):
        graph.rename(result, graph.fresh_name(name))
    graph.touch()


def _take_name(graph: Graph, copy: Value, value: Value) -> None:
    """Give the name of the tensor to the copy that is an output, since callers refer to outputs by name."""
    if value.name == value.tensor:
        assert value.storage is not None
        graph.rename(value, graph.fresh_name(name_with_format(value, value.storage)))
    if copy.name != copy.tensor:
        graph.rename(copy, copy.tensor)
