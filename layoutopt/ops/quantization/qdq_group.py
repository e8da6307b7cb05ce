"""QDQ groups: DequantizeLinear -> op -> QuantizeLinear, which runtimes compute as one op on integers.

    q -> DequantizeLinear -> \\
    w -> DequantizeLinear -> Conv -> Relu -> QuantizeLinear -> p         =          (q, w) -> Conv, Relu -> p

A runtime matches the group by adjacent ops, so no conversion may be inserted inside; conversions are inserted outside, where
the values are integers. The group costs as much as the kernel on integers, and its Q/DQ ops cost nothing. A product without a
QuantizeLinear behind it has a floating-point result; one with integers as weights only computes in floating point.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from layoutopt.ir.def_use import Use
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Signature, Slot, Storage, Value
from layoutopt.ops.base import rule_of
from layoutopt.ops.quantization.qdq_ops import Dequantize, Quantize
from layoutopt.ops.signatures import Inapplicable, X, Y
from layoutopt.ops.view import View

ACTIVATIONS = frozenset({"Clip", "LeakyRelu", "Relu"})
"""The activations that integer kernels apply to their accumulators before they round them."""


@dataclass(slots=True)
class QdqGroups:
    """The QDQ groups of some graphs.

    Attributes:
        integer_ops: the integer op that a kernel computes, by the op of its group; no graph contains it.
        fused_into_kernels: the Q/DQ ops and activations that the kernels compute too, at no cost of their own.
        inner: the uses inside of groups, each as an op and an input index.
    """

    integer_ops: dict[Op, Op] = field(default_factory=dict)
    fused_into_kernels: set[Op] = field(default_factory=set)
    inner: set[tuple[Op, int]] = field(default_factory=set)

    def kernel_op(self, op: Op) -> Op:
        """The op on integers that the kernel of the op's QDQ group computes; the op itself if it is in no group."""
        return self.integer_ops.get(op, op)


def is_dequantizer(op: Op | None) -> bool:
    """Whether an op converts integers to floating point."""
    return op is not None and isinstance(rule_of(op), Dequantize)


def is_quantizer(op: Op | None) -> bool:
    """Whether an op converts floating point to integers."""
    return op is not None and isinstance(rule_of(op), Quantize)


def is_in_qdq_group(graph: Graph, op: Op) -> bool:
    """Whether an op reads a dequantised value, or computes one that is quantised."""
    if any(is_dequantizer(graph.producer(value)) for value in op.inputs if value is not None):
        return True
    outputs = (value for value in op.outputs if value is not None)
    return any(is_quantizer(use.op) and use.index == 0 for value in outputs for use in graph.uses(value))


def find_qdq_groups(graphs: Iterable[Graph], has_kernel: Callable[[Op, Op], bool]) -> QdqGroups:
    """The QDQ groups of some graphs.

    Args:
        graphs: the graphs.
        has_kernel: whether the target has a kernel for a group, given its op and the same op on integers.
    """
    groups = QdqGroups()
    for graph in graphs:
        _add_groups(graph, has_kernel, groups)
    return groups


def _add_groups(graph: Graph, has_kernel: Callable[[Op, Op], bool], groups: QdqGroups) -> None:
    integer_reads: set[tuple[Op, int]] = set()
    for op in graph.ops:
        for index, value in enumerate(op.inputs):
            if value is None or value.is_constant:
                continue
            quantizes = is_quantizer(op) and index == 0 and not (graph.root is graph and graph.is_output(value))
            if quantizes or is_dequantizer(graph.producer(value)):
                groups.inner.add((op, index))
        group = _group(graph, op)
        if group is not None and has_kernel(op, group.integer):
            groups.integer_ops[op] = group.integer
            groups.fused_into_kernels.update(group.epilogue)
            groups.inner.update((each, 0) for each in group.epilogue)
            integer_reads.update((op, index) for index in group.reads)
    for op in graph.ops:
        result = op.outputs[0] if is_dequantizer(op) else None
        if result is not None and not graph.is_output(result):
            uses = graph.uses(result)
            if uses and all((use.op, use.index) in integer_reads for use in uses):
                groups.fused_into_kernels.add(op)


@dataclass(frozen=True, slots=True)
class _Group:
    """An op on integers, the inputs that it reads as integers, and the activations and QuantizeLinears behind it."""

    integer: Op
    reads: tuple[int, ...]
    epilogue: tuple[Op, ...]


def _group(graph: Graph, op: Op) -> _Group | None:
    """The group around an op; None if there is none."""
    rule = rule_of(op)
    if rule is None or isinstance(rule, View) or is_quantizer(op) or is_dequantizer(op):
        return None
    dequantizers = {index: qdq_op for index, qdq_op in enumerate(_dequantizers(graph, op)) if qdq_op is not None}
    computed = [index for index, value in enumerate(op.inputs) if value is not None and not value.is_constant]
    if not dequantizers:
        return None
    epilogues = list(_epilogues(graph, op)) if all(index in dequantizers for index in computed) else []
    roles = rule.roles(op)
    if "b" in roles or rule.is_anchor:
        first, second = (roles[role].index for role in ("ab" if "b" in roles else "xw"))
        if second not in dequantizers:
            return None
        if first not in dequantizers:
            dequantizers, epilogues = {second: dequantizers[second]}, []
    elif not epilogues:
        return None
    inputs, outputs = list(op.inputs), list(op.outputs)
    for index, qdq_op in dequantizers.items():
        inputs[index] = qdq_op.inputs[0]
    for number, chain in epilogues:
        outputs[number] = chain[-1].outputs[0]
    integer = op.copy(tuple(inputs), tuple(outputs))
    return _Group(integer, tuple(dequantizers), tuple(each for _, chain in epilogues for each in chain))


def _dequantizers(graph: Graph, op: Op) -> Iterator[Op | None]:
    """The DequantizeLinear of every input, or None."""
    for value in op.inputs:
        producer = graph.producer(value) if value is not None else None
        yield producer if is_dequantizer(producer) else None


def _epilogues(graph: Graph, op: Op) -> Iterator[tuple[int, list[Op]]]:
    """The index of every output, with its activations and QuantizeLinear; empty if an output has none."""
    epilogues = []
    for number, value in enumerate(op.outputs):
        if value is None:
            continue
        chain = _epilogue(graph, value)
        if chain is None:
            return
        epilogues.append((number, chain))
    yield from epilogues


def _epilogue(graph: Graph, value: Value) -> list[Op] | None:
    """The ops from a value to its QuantizeLinear; None if another op than ACTIVATIONS, or another reader, is between."""
    chain: list[Op] = []
    while True:
        use: Use | None = graph.uses(value)[0] if graph.has_one_use(value) else None
        if use is None or use.index != 0:
            return None
        chain.append(use.op)
        if is_quantizer(use.op):
            return chain
        result = use.op.outputs[0]
        if use.op.kind not in ACTIVATIONS or result is None:
            return None
        value = result


def with_unified_formats(
    graphs: Iterable[Graph], groups: QdqGroups, signatures: Mapping[Op, Signature]
) -> dict[Op, Signature]:
    """The signatures with one format on both sides of each inner use, where two formats are the same bytes.

    An op that accepts any format takes the format of its neighbour: a DequantizeLinear that of its reader, others that of
    their input.
    """
    found = dict(signatures)
    for graph in graphs if groups.inner else ():
        for op in graph.ops:
            for index, value in enumerate(op.inputs):
                producer = graph.producer(value) if value is not None else None
                if value is None or producer is None or (op, index) not in groups.inner:
                    continue
                slot = Slot("out", graph.output_index(value))
                has, required = found[producer][slot], found[op].inputs[index]
                if has is None or required is None or has.format == required.format:
                    continue
                if is_dequantizer(producer):
                    found[producer] = _with_format(producer, found[producer], Y, required)
                else:
                    found[op] = _with_format(op, found[op], X, has)
    return found


def _with_format(op: Op, signature: Signature, slot: Slot, storage: Storage) -> Signature:
    """The signature with an equivalent format at a slot; the same signature if the op has none."""
    rule = rule_of(op)
    found = rule.signature(op, {slot: storage.format}) if rule is not None else None
    if found is None or isinstance(found, Inapplicable):
        return signature
    return Signature(
        _with_padding_of(found.inputs, signature.inputs), _with_padding_of(found.outputs, signature.outputs)
    )


def _with_padding_of(
    formats: tuple[Storage | None, ...], states: tuple[Storage | None, ...]
) -> tuple[Storage | None, ...]:
    return tuple(
        one if one is None or other is None else Storage(one.format, other.padding)
        for one, other in zip(formats, states, strict=True)
    )
