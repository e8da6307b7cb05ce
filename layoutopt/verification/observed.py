"""Inner values of a graph that verification compares: in front of a final Softmax, at roundings, at decisions."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from layoutopt.formats import Format, Shape, pack, unpack
from layoutopt.formats.format import known
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, DType, Value
from layoutopt.ops import View, discontinuous_inputs, rule_of
from layoutopt.ops.interfaces.numerics import is_quantized, is_saturating

_FEW_BITS = frozenset({DType.INT4, DType.UINT4, DType.INT8, DType.UINT8, DType.INT16, DType.UINT16})

_INTEGERS = _FEW_BITS | {DType.INT32, DType.UINT32, DType.INT64, DType.UINT64}

_FRACTIONS = (DType.FLOAT16, DType.FLOAT32, DType.FLOAT64)  # that onnxruntime adds up


@dataclass(frozen=True, slots=True)
class Observed:
    """A tensor of the original that the rewritten model has, too.

    Attributes:
        original: its name in the original.
        rewritten: its name in the rewritten model.
        format: the format that the rewritten model stores it in.
        array: the shape that the rewritten model declares for the array, where that is not one axis for each part of the
            format: onnxruntime's blocked kernels take four axes, (N, C, H, W), whatever the blocks.
    """

    original: str
    rewritten: str
    format: Format
    array: Shape | None = None

    def packed(self, tensor: Array) -> Array:
        """The array of the rewritten model for a tensor of the original."""
        return pack(tensor, self.format).reshape(self._array_shape(tensor.shape))

    def unpacked(self, array: Array, shape: tuple[int, ...]) -> Array:
        """The tensor of a logical shape that an array of the rewritten model holds."""
        return unpack(array.reshape(known(self.format.physical_shape(shape))), self.format, shape)

    def _array_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        physical = known(self.format.physical_shape(shape))
        if self.array is None or _agrees(self.array, physical):
            return physical
        batch, channels, *image, block = physical
        return (batch, channels * block, *(1,) * (len(self.array) - 2 - len(image)), *image)


def _agrees(declared: Shape, shape: tuple[int, ...]) -> bool:
    """Whether a declared shape, in which extents may be symbolic, is that of an array."""
    pairs = zip(declared, shape, strict=False)
    return len(declared) == len(shape) and all(not isinstance(dim, int) or dim == size for dim, size in pairs)


def saturated_values(graph: Graph) -> list[str]:
    """The tensors before those ops at the outputs that make differences small; renames between are looked through.

    Inputs need no look, and outputs get one.
    """
    found = []
    for output in graph.outputs:
        value = output
        while (producer := graph.producer(value)) is not None and producer.inputs[:1] != (None,):
            rule = rule_of(producer)
            before = producer.inputs[0] if producer.inputs else None
            if before is None or rule is None:
                break
            if is_saturating(producer):
                if before not in graph.inputs and not graph.is_output(before):
                    found.append(before.name)
                break
            if not isinstance(rule, View):
                break
            value = before
    return found


def inner(graph: Graph) -> dict[str, DType]:
    """The floating-point values that ops compute and views do not merely rename, with their types; without the outputs."""
    return {
        value.name: value.dtype
        for op in graph.ops
        for value in op.outputs
        if not isinstance(rule_of(op), View)
        and value is not None
        and value.dtype in _FRACTIONS
        and value.shape is not None
        and not graph.is_output(value)
    }


def rounded(graph: Graph) -> dict[str, DType]:
    """The integers that are computed between two roundings, and their types: those of few bits, and fractions cut off."""
    found = {}
    for op in graph.ops:
        for value in op.outputs if is_quantized(op) else ():
            if value is not None and value.dtype in _FEW_BITS and not graph.is_output(value):
                found[value.name] = value.dtype
    found.update({value.name: value.dtype for value in _cut_off(graph) if value.dtype and not graph.is_output(value)})
    return found


def cut_off(graph: Graph) -> list[str]:
    """The integers that are fractions cut off, outputs among them."""
    return [value.name for value in _cut_off(graph)]


def _cut_off(graph: Graph) -> Iterator[Value]:
    for op in graph.ops:
        source, value = (op.inputs[0], op.outputs[0]) if op.kind == "Cast" else (None, None)
        if source is not None and source.dtype in _FRACTIONS and value is not None and value.dtype in _INTEGERS:
            yield value


def decision_values(graph: Graph) -> dict[str, DType]:
    """The computed fractions by which ops decide, and what these are other names of; with their types."""
    found: dict[str, DType] = {}
    pending = [value for op in graph.ops for value in discontinuous_inputs(op)]
    while pending:
        value = pending.pop()
        producer = graph.producer(value)
        if producer is None or value.dtype not in _FRACTIONS or value.name in found:
            continue
        if not graph.is_output(value):
            found[value.name] = value.dtype
        if isinstance(rule_of(producer), View) and producer.inputs[0] is not None:
            pending.append(producer.inputs[0])
    return found


def unrounded(graph: Graph, integers: Collection[str]) -> dict[str, DType]:
    """Of some integers those that an op makes of fractions, and nothing else with them; and the type of the fractions."""
    found = {}
    for op in graph.ops:
        source = op.inputs[0] if op.inputs else None
        if source is None or source.dtype not in _FRACTIONS or len(op.outputs) != 1:
            continue
        found.update({value.name: source.dtype for value in op.outputs if value is not None and value.name in integers})
    return found


def evenly_spaced(values: Sequence[Observed], count: int) -> list[Observed]:
    """At most so many values, evenly distributed over all of them."""
    if len(values) <= count:
        return list(values)
    return [values[place * len(values) // count] for place in range(count)]


def locate_values(graph: Graph, lowered: Graph, tensors: list[str]) -> list[Observed]:
    """Where the tensors are in a planned graph and what it was lowered to, in their order; those that are gone are left out."""
    found = []
    wanted = set(tensors)
    for value in graph.values:
        if value.tensor not in wanted or value.storage is None or graph.producer(value) is None:
            continue
        low = lowered.find(value.name)
        if low is not None and lowered.producer(low) is not None:
            found.append(Observed(value.tensor, value.name, value.storage.format, low.shape))
            wanted.discard(value.tensor)
    place = {name: index for index, name in enumerate(tensors)}
    return sorted(found, key=lambda each: place[each.original])
