"""Writes a chain of element-wise ops on one tensor of 8-bit integers as a table of 256 integers.

before: q -> DequantizeLinear -> Div -> Erf -> QuantizeLinear -> QLinearAdd(1) -> QLinearMul(q, .) -> QLinearMul(0.5) -> p
after:  q -> Reshape -> Cast(int32) -> GatherElements(table, .) -> Reshape -> p

GatherElements is the fastest look-up that onnxruntime has, 1.3 ns per element; Gather takes 10. So only expensive chains become
tables: GELU takes 2.5 ns, SiLU 0.6. The table has the integers that onnxruntime computes for each of the 256.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from layoutopt.dialects.data_movement import add_reshape
from layoutopt.dialects.onnxruntime.integer.costs import kernel_costs
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, ArrayData, DType, Op, TensorType, Value
from layoutopt.onnx_io.emission import emit
from layoutopt.onnx_io.serialize import to_bytes
from layoutopt.passes.base import Pass, PassContext
from layoutopt.runtime.errors import RUNTIME_ERRORS
from layoutopt.runtime.session import inference_session

ELEMENTWISE = frozenset(
    {
        *("DequantizeLinear", "QuantizeLinear"),
        *("Add", "Sub", "Mul", "Div"),
        *("Clip", "Erf", "Exp", "Gelu", "HardSigmoid", "Sigmoid", "Tanh"),
        *(f"com.microsoft::{each}" for each in ("Gelu", "QuickGelu")),
        *(f"com.microsoft::QLinear{each}" for each in ("Add", "Mul", "Sigmoid")),
    }
)
"""Kinds of ops that may be part of a chain; the cost table has a row for each op type."""

_INTEGERS = (DType.INT8, DType.UINT8)
_INT32 = 6  # the element type in ONNX
_MIN_OPSET = 11  # the first opset with GatherElements


@dataclass(frozen=True, slots=True)
class Chain:
    """Element-wise ops that compute one tensor from one tensor.

    Attributes:
        x: the integers that are read.
        y: the integers that are computed.
        ops: the ops, in order.
        replaced: those that the table replaces, because only ops of the chain read their results (`y` excepted).
    """

    x: Value
    y: Value
    ops: list[Op]
    replaced: list[Op]


@dataclass(frozen=True, slots=True)
class Tabulate(Pass):
    """Write chains of element-wise ops on 8-bit integers as tables where that is faster."""

    name = "tabulate-integers"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Look at every tensor of integers, the last one first, so that chains are as long as possible."""
        if graph.opsets.get("", 0) < _MIN_OPSET:
            return
        sources, removed = _sources(graph), set[Value | None]()
        for y in reversed(sources):
            producer = graph.producer(y) if y not in removed and y.dtype in _INTEGERS else None
            if producer is None:
                continue
            chain = _chain(graph, sources[y], y)
            table = _table(graph, chain) if _is_faster(chain) else None
            if table is not None:
                graph.replace_value(y, _look_up(graph, table, chain))
                graph.remove_if_dead(producer)
                removed.update(each for op in chain.replaced for each in op.outputs)


def _sources(graph: Graph) -> dict[Value, Value]:
    """The tensor of integers from which a value is computed element by element, in order of the ops."""
    found: dict[Value, Value] = {}
    for op in graph.ops:
        y = op.outputs[0] if len(op.outputs) == 1 and op.kind in ELEMENTWISE else None
        tensors = {found.get(x, x) for x in op.inputs if x is not None and not x.is_constant}
        if y is None or y.static_shape is None or len(tensors) != 1:
            continue
        (source,) = tensors
        constants = [x for x in op.inputs if x is not None and x.is_constant]
        are_scalars = all(x.static_shape is not None and prod(x.static_shape) == 1 for x in constants)
        if are_scalars and source.dtype in _INTEGERS and source.static_shape == y.static_shape:
            found[y] = source
    return found


def _chain(graph: Graph, x: Value, y: Value) -> Chain:
    """The ops between two values."""
    found: list[Op] = []
    pending = [y]
    seen = {x}
    while pending:
        value = pending.pop()
        producer = graph.producer(value)
        if value in seen or producer is None:
            continue
        seen.add(value)
        found.append(producer)
        pending.extend(each for each in producer.inputs if each is not None)
    positions = {op: position for position, op in enumerate(graph.ops)}
    ops = sorted(found, key=positions.__getitem__)
    replaced: list[Op] = []
    for op in reversed(ops):
        result = op.outputs[0]
        assert result is not None
        if result is y or not (graph.is_output(result) or any(use.op not in replaced for use in graph.uses(result))):
            replaced.append(op)
    return Chain(x, y, ops, replaced)


def _is_faster(chain: Chain) -> bool:
    """Whether a look-up is estimated to take less time than the ops that it replaces."""
    costs, shape = kernel_costs(), chain.y.static_shape
    assert shape is not None
    elements = prod(shape)
    before = sum(costs[op.op_type].seconds(elements) for op in chain.replaced)
    after = sum(costs[op].seconds(elements) for op in ("Reshape", "Cast", "GatherElements", "Reshape"))
    return after < before


def _table(graph: Graph, chain: Chain) -> Array | None:
    """The result of a chain for each of the 256 integers, negative ones behind the others; None if onnxruntime fails."""
    x, y = chain.x, chain.y
    assert x.dtype is not None and y.dtype is not None
    integers = np.arange(256).astype(np.uint8).view(x.dtype.numpy)
    part = Graph("table", graph.opsets)
    copies = {x: part.add_value(Value(x.name, TensorType(x.dtype, integers.shape)))}
    for op in chain.ops:
        for value in (*op.inputs, *op.outputs):
            if value is not None and value not in copies:
                copies[value] = part.add_value(_copy(value, integers.shape))
        inputs, outputs = (tuple(None if v is None else copies[v] for v in side) for side in (op.inputs, op.outputs))
        attributes = dict(op.attributes)
        part.add_op(Op(op.op_type, inputs, outputs, domain=op.domain, attributes=attributes, version=op.version))
    part.inputs, part.outputs = [copies[x]], [copies[y]]
    try:
        (table,) = inference_session(to_bytes(emit(part)), is_optimised=False).run(None, {x.name: integers})
    except RUNTIME_ERRORS:
        return None
    return np.asarray(table)


def _copy(value: Value, shape: tuple[int, ...]) -> Value:
    """A constant as a scalar, any other value in the shape of the table."""
    assert value.dtype is not None
    if value.data is None:
        return Value(value.name, TensorType(value.dtype, shape))
    return Value(value.name, TensorType(value.dtype, ()), data=ArrayData(value.data.numpy().reshape(())))


def _look_up(graph: Graph, table: Array, chain: Chain) -> Value:
    """The new result: an element of the table for every integer of `x`."""
    x, y = chain.x, chain.y
    assert y.dtype is not None and y.static_shape is not None
    near, shape = graph.producer(y), y.static_shape
    assert near is not None
    flat = add_reshape(graph, x, (prod(shape),), near)
    type = TensorType(DType.INT32, flat.shape)
    index = graph.new_result("Cast", (flat,), type, f"{y.name}/index", near, attributes={"to": _INT32})
    operands = (graph.new_constant(table, f"{y.name}/table"), index)
    type = TensorType(y.dtype, flat.shape)
    integers = graph.new_result("GatherElements", operands, type, f"{y.name}/integers", near, attributes={"axis": 0})
    return add_reshape(graph, integers, shape, near)
