"""Convert the layout of quantised integers instead of the floating-point values around them.

before: q(NHWC) -> DequantizeLinear(NHWC) -> d, which is an output in NCHW
after:  q(NHWC) -> DequantizeLinear(NCHW) -> d

before: x(NHWC) -> QuantizeLinear(NHWC) -> p(NHWC)      where x is an output in NCHW as well
after:  x(NHWC) -> QuantizeLinear(NCHW) -> p(NCHW)

The converted integers are a quarter of the bytes. A Q/DQ op stays as it is for readers that use its planned storage. The ops
next to Q/DQ ops matter to runtimes, too: onnxruntime 1.31 does not load a DequantizeLinear of int8 -> Transpose at opset 21
or later, and of an output x -> Transpose -> QuantizeLinear it rounds the output.
"""

from dataclasses import dataclass

from layoutopt.ir.cast import marked_name, moves, storage_name
from layoutopt.ir.def_use import Use
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Signature, Storage, Value
from layoutopt.ops import X, Y, clean_signature, is_dequantizer, is_quantizer
from layoutopt.passes.base import Pass, PassContext
from layoutopt.passes.insert_casts import satisfies


@dataclass(frozen=True, slots=True)
class ConvertIntegers(Pass):
    """Move layout conversions from the floating-point side to the integer side of Q/DQ ops."""

    name = "convert-integers"
    is_reason = False

    def run(self, graph: Graph, context: PassContext) -> None:
        """Readers and writers still disagree; what is cast follows from the formats that the steps have then."""
        for op in graph.ops:
            if is_dequantizer(op):
                _meet_readers(graph, op)
            elif is_quantizer(op):
                _read_what_is_handed_out(graph, op)


def _meet_readers(graph: Graph, step: Op) -> None:
    """One dequantisation for every format that its result is wanted in."""
    value = step.outputs[0]
    if value is None or value.storage is None or step.signature is None:
        return
    uses, outputs = _unmet(graph, value)
    for wanted in dict.fromkeys([*(wanted for _, wanted in uses), *(wanted for _, wanted in outputs)]):
        signature = clean_signature(step, Y, wanted.format)
        given = signature.outputs[0] if signature is not None else None
        if signature is None or given is None or given.padding > wanted.padding:
            continue
        reads = [use for use, each in uses if each == wanted]
        places = [place for place, each in outputs if each == wanted]
        everybody = len(reads) == graph.use_count(value) and places == graph.output_places(value)
        copy = value if everybody else _copied(graph, step, value)
        _sign(graph, copy, signature)
        graph.replace_uses(value, copy, reads)
        for place in places:
            graph.set_output(place, copy)
        if places and copy is not value and graph.root is graph:
            _take_name(graph, copy, value)


def _unmet(graph: Graph, value: Value) -> tuple[list[tuple[Use, Storage]], list[tuple[int, Storage]]]:
    """The reads and the outputs that require a value in another storage."""
    uses = []
    for use in graph.uses(value):
        wanted = use.op.signature.inputs[use.index] if use.op.signature is not None else None
        if wanted is not None and not satisfies(value, wanted):
            uses.append((use, wanted))
    places = [(place, graph.output_storage(place)) for place in graph.output_places(value)]
    return uses, [(place, wanted) for place, wanted in places if wanted is not None and not satisfies(value, wanted)]


def _copied(graph: Graph, step: Op, value: Value) -> Value:
    """The result of another step like this one, right behind it."""
    copy = graph.new_value(value.name, value.type, tensor=value.tensor, origin=value.origin)
    copy.axis_letters = value.axis_letters
    graph.add_copy(step, (copy,))
    return copy


def _read_what_is_handed_out(graph: Graph, step: Op) -> None:
    """Quantise an output of the graph as it is handed out."""
    value, result = step.inputs[0], step.outputs[0]
    if value is None or result is None or not graph.is_output(value):
        return
    wanted = graph.output_storage(graph.output_places(value)[0])
    if wanted is None or not moves(value, wanted):
        return
    signature = clean_signature(step, X, wanted.format)
    if signature is not None:
        _sign(graph, result, signature)


def _sign(graph: Graph, result: Value, signature: Signature) -> None:
    """Let the step that computes a value have a signature."""
    step, storage = graph.producer(result), signature.outputs[0]
    assert step is not None and storage is not None
    step.signature, result.storage = signature, storage
    name = storage_name(result, storage)
    if result.name not in (name, result.tensor):
        graph.rename(result, graph.fresh_name(name))
    graph.touch()


def _take_name(graph: Graph, copy: Value, value: Value) -> None:
    """Give the name of the tensor to the copy that is an output, since callers refer to outputs by name."""
    if value.name == value.tensor:
        assert value.storage is not None
        graph.rename(value, graph.fresh_name(marked_name(value, value.storage)))
    if copy.name != copy.tensor:
        graph.rename(copy, copy.tensor)
