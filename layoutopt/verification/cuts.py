"""The values at which two models are cut or observed: before a final Softmax, at roundings, at discontinuous ops, in between.

Candidates are taken from the graph of the original before any rewrite, with the properties of the original that limit how
closely two equivalent models agree: an output that is computed from float16 values is as exact as float16, and a quantised
model gives equal results only where every rounding gives the same integer.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod
from typing import Self, TypeVar

import numpy as np
from msgspec import field

from layoutopt.formats import Format, Shape, pack, unpack
from layoutopt.formats.extent import static_shape
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, DType, Value
from layoutopt.ops import View, discontinuous_inputs, flags, rule_of
from layoutopt.ops.qdq import with_other_sign
from layoutopt.record import Record
from layoutopt.verification.runnable import RANDOM_OPS

MAX_CUTS = 32
"""Largest number of cuts at floating-point values; cuts at operands of discontinuous ops and at rounded values do not count."""

RELATIVE_MARGINS = {DType.FLOAT64: 1e-7, DType.FLOAT32: 1e-4, DType.FLOAT16: 1e-2, DType.BFLOAT16: 6e-2}
"""The accepted difference of floating-point values before rounding to integers, relative to the largest magnitude."""

T = TypeVar("T")

_FEW_BITS = frozenset({DType.INT4, DType.UINT4, DType.INT8, DType.UINT8, DType.INT16, DType.UINT16})
_INTEGERS = _FEW_BITS | {DType.INT32, DType.UINT32, DType.INT64, DType.UINT64}
_FLOATS = (DType.FLOAT16, DType.FLOAT32, DType.FLOAT64)  # types that onnxruntime has an Add for


class ObservedValue(Record):
    """A tensor that both models compute.

    Attributes:
        original: its name in the original.
        rewritten: its name in the rewritten model.
        format: the format that the rewritten model stores it in; None for the original's array.
        declared_shape: the shape that the rewritten model declares, if it differs from one axis per physical dimension of the
            format: onnxruntime's blocked kernels take four axes (N, C, H, W) for every block size, and an element-wise op
            may have the shape behind a Reshape that was moved past it.
        is_unsigned: whether the rewritten model stores int8 as uint8, 128 more.
    """

    original: str
    rewritten: str
    format: Format | None
    declared_shape: Shape | None = None
    is_unsigned: bool = False

    def packed(self, tensor: Array) -> Array:
        """The rewritten model's array for a tensor of the original."""
        tensor = with_other_sign(tensor) if self.is_unsigned else tensor
        if self.format is None:
            return tensor
        physical = static_shape(self.format.physical_shape(tensor.shape))
        return pack(tensor, self.format).reshape(self._array_shape(physical))

    def unpacked(self, array: Array, expected: Array) -> Array:
        """The tensor that the rewritten model stores as `array`, in the logical shape of the original's tensor `expected`."""
        array = with_other_sign(array) if self.is_unsigned else array
        if self.format is None:
            return array
        shape = expected.shape
        return unpack(array.reshape(static_shape(self.format.physical_shape(shape))), self.format, shape)

    def _array_shape(self, physical: tuple[int, ...]) -> tuple[int, ...]:
        declared = self.declared_shape
        if declared is None or _agrees(declared, physical):
            return physical
        known = tuple(dim for dim in declared if isinstance(dim, int))
        if len(known) == len(declared) and prod(known) == prod(physical):
            return known
        batch, channels, *image, block = physical
        return (batch, channels * block, *(1,) * (len(declared) - 2 - len(image)), *image)


def _agrees(declared: Shape, shape: tuple[int, ...]) -> bool:
    """Whether an array's shape matches a declared shape, in which extents may be symbolic."""
    pairs = zip(declared, shape, strict=False)
    return len(declared) == len(shape) and all(not isinstance(dim, int) or dim == size for dim, size in pairs)


class Cuts(Record):
    """The values at which two models are cut.

    Attributes:
        values: the values in both models.
        dtypes: the element type of each, by the original's name.
        unperturbed: rounded integers and operands of discontinuous ops, which are never perturbed.
        relative_margins: by rounded integer, the accepted difference of its floating-point operand, relative to the largest.
        counts_roundings: whether only few integers may be rounded to the other side; products of integers are often halves.
    """

    values: Sequence[ObservedValue] = ()
    dtypes: Mapping[str, DType] = field(default_factory=dict)
    unperturbed: frozenset[str] = frozenset()
    relative_margins: Mapping[str, Array] = field(default_factory=dict)
    counts_roundings: bool = True


NO_CUTS = Cuts()
"""No values: the whole model is one segment."""


def relative_margin(dtype: DType) -> Array:
    """The accepted relative difference before a rounding, as an array of the floating-point type."""
    return np.asarray(RELATIVE_MARGINS[dtype], dtype.numpy)


class CutCandidates(Record):
    """The values of the original graph at which both models can be cut, and its numeric properties.

    Attributes:
        before_saturation: operands of saturating activations at the outputs.
        optional: the element types of the other floating-point values.
        required: the element types of rounded integers and operands of discontinuous ops; a model is cut at all of them.
        rounding_sources: for integers that one floating-point value is rounded to, the element type of that value.
        is_narrow: whether it has a value of type float16 or bfloat16.
        is_quantised: whether it has a quantised op.
        unquantised_outputs: the outputs of such a model that no quantised op precedes, which no optimisation may round.
        has_random_ops: whether it draws random numbers.
    """

    before_saturation: Sequence[str] = ()
    optional: Mapping[str, DType] = field(default_factory=dict)
    required: Mapping[str, DType] = field(default_factory=dict)
    rounding_sources: Mapping[str, DType] = field(default_factory=dict)
    is_narrow: bool = False
    is_quantised: bool = False
    unquantised_outputs: frozenset[str] = frozenset()
    has_random_ops: bool = False

    @classmethod
    def of(cls, graph: Graph) -> Self:
        """The candidates of a graph that no pass has changed yet."""
        integers = rounded_integers(graph)
        ops = [op for each in graph.regions() for op in each.ops]
        is_quantised = any(flags(op).is_quantized for op in ops)
        return cls(
            before_saturation=values_before_saturation(graph),
            optional=floating_point_values(graph),
            required={**integers, **discontinuity_inputs(graph)},
            rounding_sources=rounding_sources(graph, {*integers, *(value.name for value in _truncated(graph))}),
            is_narrow=graph.has_dtype(DType.FLOAT16) or graph.has_dtype(DType.BFLOAT16),
            is_quantised=is_quantised,
            unquantised_outputs=unquantised_outputs(graph) if is_quantised else frozenset(),
            has_random_ops=any(op.kind in RANDOM_OPS for op in ops),
        )

    def cuts(self, present: Sequence[ObservedValue]) -> Cuts:
        """The cuts at values that both models have."""
        dtypes, always = {**self.optional, **self.required}, {*self.required, *self.before_saturation}
        known = [each for each in present if each.original in dtypes]
        others = evenly_spaced([each for each in known if each.original not in always], MAX_CUTS)
        values = [*(each for each in known if each.original in always), *others]
        margins = {name: relative_margin(dtype) for name, dtype in self.rounding_sources.items()}
        return Cuts(
            values, {each.original: dtypes[each.original] for each in values}, frozenset(self.required), margins
        )

    @property
    def names(self) -> list[str]:
        """The names of all candidates."""
        return list(dict.fromkeys([*self.required, *self.before_saturation, *self.optional]))


def unquantised_outputs(graph: Graph) -> frozenset[str]:
    """The outputs that no quantised op precedes."""
    rounded: set[Value] = set()
    for op in graph.ops:
        inner = (each for body in op.bodies.values() for region in body.regions() for each in region.ops)
        if any(flags(each).is_quantized for each in (op, *inner)) or not rounded.isdisjoint(op.inputs):
            rounded.update(op.present_outputs)
    return frozenset(output.name for output in graph.outputs if output not in rounded)


def values_before_saturation(graph: Graph) -> list[str]:
    """The operands of saturating activations at the outputs, such as a final Softmax; view ops in between are skipped.

    Graph inputs and graph outputs are left out: verification compares outputs anyway.
    """
    found = []
    for output in graph.outputs:
        op = graph.producer(output)
        while op is not None and isinstance(rule_of(op), View) and op.inputs[0] is not None:
            op = graph.producer(op.inputs[0])
        before = op.inputs[0] if op is not None and flags(op).is_saturating_activation else None
        if before is not None and before not in graph.inputs and not graph.is_output(before):
            found.append(before.name)
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
        for value in op.outputs if flags(op).is_quantized else ():
            if value is not None and value.dtype in _FEW_BITS and not graph.is_output(value):
                found[value.name] = value.dtype
    found.update({value.name: value.dtype for value in _truncated(graph) if value.dtype and not graph.is_output(value)})
    return found


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
        found.update({value.name: source.dtype for value in op.present_outputs if value.name in integers})
    return found


def evenly_spaced(values: Sequence[T], count: int) -> list[T]:
    """At most `count` of the values, evenly distributed over all of them."""
    kept = min(count, len(values))
    return [values[index * len(values) // kept] for index in range(kept)]


def locate_values(graph: Graph, lowered: Graph, tensors: list[str]) -> list[ObservedValue]:
    """The named tensors that both the planned graph and the lowered graph compute, in the order of `tensors`."""
    found = []
    missing = set(tensors)
    for value in graph.values:
        if value.tensor not in missing or value.storage is None or graph.producer(value) is None:
            continue
        low = lowered.find(value.name)
        if low is not None and lowered.producer(low) is not None:
            is_unsigned = (value.dtype, low.dtype) == (DType.INT8, DType.UINT8)
            found.append(ObservedValue(value.tensor, value.name, value.storage.format, low.shape, is_unsigned))
            missing.discard(value.tensor)
    position = {name: index for index, name in enumerate(tensors)}
    return sorted(found, key=lambda each: position[each.original])
