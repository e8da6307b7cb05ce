"""Inner values of a graph that verification compares: before a final Softmax, at roundings, at discontinuous ops."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from layoutopt.formats import Format, Shape, pack, unpack
from layoutopt.formats.extent import static_shape
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, DType, Value
from layoutopt.ops import View, discontinuous_inputs, rule_of
from layoutopt.ops.interfaces import is_quantized, is_saturating_activation

_FEW_BITS = frozenset({DType.INT4, DType.UINT4, DType.INT8, DType.UINT8, DType.INT16, DType.UINT16})

_INTEGERS = _FEW_BITS | {DType.INT32, DType.UINT32, DType.INT64, DType.UINT64}

_FLOATS = (DType.FLOAT16, DType.FLOAT32, DType.FLOAT64)  # types that onnxruntime has an Add for


@dataclass(frozen=True, slots=True)
class ObservedValue:
    """A tensor that both models compute.

    Attributes:
        original: its name in the original.
        rewritten: its name in the rewritten model.
        format: the format that the rewritten model stores it in.
        declared_shape: the shape that the rewritten model declares, if it differs from one axis per physical dimension of the
            format: onnxruntime's blocked kernels take four axes (N, C, H, W) for every block size, and an element-wise op
            may have the shape behind a Reshape that was moved past it.
    """

    original: str
    rewritten: str
    format: Format
    declared_shape: Shape | None = None

    def packed(self, tensor: Array) -> Array:
        """The rewritten model's array for a tensor of the original."""
        return pack(tensor, self.format).reshape(self._array_shape(tensor.shape))

    def unpacked(self, array: Array, shape: tuple[int, ...]) -> Array:
        """The tensor of the given logical shape that the rewritten model stores as `array`."""
        return unpack(array.reshape(static_shape(self.format.physical_shape(shape))), self.format, shape)

    def _array_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        physical = static_shape(self.format.physical_shape(shape))
        if self.declared_shape is None or _agrees(self.declared_shape, physical):
            return physical
        if (declared := _static_extents(self.declared_shape)) is not None and prod(declared) == prod(physical):
            return declared
        batch, channels, *image, block = physical
        return (batch, channels * block, *(1,) * (len(self.declared_shape) - 2 - len(image)), *image)


def _static_extents(shape: Shape) -> tuple[int, ...] | None:
    """The extents of a shape; None if one is symbolic."""
    known = tuple(dim for dim in shape if isinstance(dim, int))
    return known if len(known) == len(shape) else None


def _agrees(declared: Shape, shape: tuple[int, ...]) -> bool:
    """Whether an array's shape matches a declared shape, in which extents may be symbolic."""
    pairs = zip(declared, shape, strict=False)
    return len(declared) == len(shape) and all(not isinstance(dim, int) or dim == size for dim, size in pairs)


def values_before_saturation(graph: Graph) -> list[str]:
    """The operands of saturating activations at the outputs, such as a final Softmax; view ops in between are skipped.

    Graph inputs and graph outputs are left out: verification compares outputs anyway.
    """
    found = []
    for output in graph.outputs:
        value = output
        while (producer := graph.producer(value)) is not None and producer.inputs[:1] != (None,):
            rule = rule_of(producer)
            before = producer.inputs[0] if producer.inputs else None
            if before is None or rule is None:
                break
            if is_saturating_activation(producer):
                if before not in graph.inputs and not graph.is_output(before):
                    found.append(before.name)
                break
            if not isinstance(rule, View):
                break
            value = before
    return found


def floating_point_values(graph: Graph) -> dict[str, DType]:
    """The element types of the floating-point values that ops other than views compute; graph outputs are left out."""
    return {
        value.name: value.dtype
        for op in graph.ops
        for value in op.outputs
        if not isinstance(rule_of(op), View)
        and value is not None
        and value.dtype in _FLOATS
        and value.shape is not None
        and not graph.is_output(value)
    }


def rounded_integers(graph: Graph) -> dict[str, DType]:
    """The element types of the integers that quantised ops compute, and of floating-point values cast to integers."""
    found = {}
    for op in graph.ops:
        for value in op.outputs if is_quantized(op) else ():
            if value is not None and value.dtype in _FEW_BITS and not graph.is_output(value):
                found[value.name] = value.dtype
    found.update({value.name: value.dtype for value in _truncated(graph) if value.dtype and not graph.is_output(value)})
    return found


def truncated_integers(graph: Graph) -> list[str]:
    """The results of Casts from floating-point values to integers, graph outputs included."""
    return [value.name for value in _truncated(graph)]


def _truncated(graph: Graph) -> Iterator[Value]:
    for op in graph.ops:
        source, value = (op.inputs[0], op.outputs[0]) if op.kind == "Cast" else (None, None)
        if source is not None and source.dtype in _FLOATS and value is not None and value.dtype in _INTEGERS:
            yield value


def discontinuity_inputs(graph: Graph) -> dict[str, DType]:
    """The element types of the computed operands of discontinuous ops, and of the values that these are views of."""
    found: dict[str, DType] = {}
    pending = [value for op in graph.ops for value in discontinuous_inputs(op)]
    while pending:
        value = pending.pop()
        producer = graph.producer(value)
        if producer is None or value.dtype not in _FLOATS or value.name in found:
            continue
        if not graph.is_output(value):
            found[value.name] = value.dtype
        if isinstance(rule_of(producer), View) and producer.inputs[0] is not None:
            pending.append(producer.inputs[0])
    return found


def rounding_sources(graph: Graph, integers: Collection[str]) -> dict[str, DType]:
    """For each of `integers` that is the only output of an op on a floating-point value: the element type of that value."""
    found = {}
    for op in graph.ops:
        source = op.inputs[0] if op.inputs else None
        if source is None or source.dtype not in _FLOATS or len(op.outputs) != 1:
            continue
        found.update({value.name: source.dtype for value in op.outputs if value is not None and value.name in integers})
    return found


def evenly_spaced(values: Sequence[ObservedValue], count: int) -> list[ObservedValue]:
    """At most `count` of the values, evenly distributed over all of them."""
    if len(values) <= count:
        return list(values)
    return [values[index * len(values) // count] for index in range(count)]


def locate_values(graph: Graph, lowered: Graph, tensors: list[str]) -> list[ObservedValue]:
    """The named tensors that both the planned graph and the lowered graph compute, in the order of `tensors`."""
    found = []
    missing = set(tensors)
    for value in graph.values:
        if value.tensor not in missing or value.storage is None or graph.producer(value) is None:
            continue
        low = lowered.find(value.name)
        if low is not None and lowered.producer(low) is not None:
            found.append(ObservedValue(value.tensor, value.name, value.storage.format, low.shape))
            missing.discard(value.tensor)
    position = {name: index for index, name in enumerate(tensors)}
    return sorted(found, key=lambda each: position[each.original])
