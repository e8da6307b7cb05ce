"""Constant evaluation: computes values that depend on constants alone in onnxruntime.

The ancestors of the values become a model without inputs: constants are initializers, because onnxruntime supports more
element types for these than for inputs. The model runs once without optimisations, so that every operator computes its
result as defined.
"""

from collections.abc import Sequence

from layoutopt.errors import InvariantError, ModelError
from layoutopt.ir.constants import Deferred
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, DType, Op, Opaque, TensorType, Value
from layoutopt.onnx_io.emission import emit
from layoutopt.onnx_io.schema import find_schema
from layoutopt.onnx_io.serialize import IN_ONE_FILE, to_bytes
from layoutopt.ops import estimated_volume, is_dequantizer
from layoutopt.runtime.custom_ops import registered_libraries
from layoutopt.runtime.errors import RUNTIME_ERRORS
from layoutopt.runtime.session import Session

_RANDOM = {  # for onnx before 1.21, whose schemas do not declare non-determinism
    "Bernoulli",
    "Dropout",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}
_VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
_EXACT_IN_FLOAT32 = frozenset({DType.FLOAT16, DType.BFLOAT16, DType.INT8, DType.UINT8, DType.INT4, DType.UINT4})
_MAX_BYTES_PER_MODEL = 64 << 20  # bytes of constants that are evaluated in one model


def is_foldable(op: Op) -> bool:
    """Whether constant folding may replace an op: it is deterministic, on tensors, and no DequantizeLinear."""
    opaque = [value.kind for value in op.attributes.values() if isinstance(value, Opaque)]
    if op.bodies or any(kind != "tensor" for kind in opaque):
        return False
    if not all(isinstance(value.type, TensorType) for value in op.values):
        return False
    schema = find_schema(op.op_type, op.domain, op.version)
    if op.domain:  # kernels in a library of custom operators are assumed to be deterministic
        return schema is None and bool(registered_libraries())
    if schema is None or op.op_type in _RANDOM or is_dequantizer(op):
        return False
    return not str(getattr(schema, "node_determinism", "")).endswith("NonDeterministic")


def evaluate(graph: Graph, values: Sequence[Value]) -> list[Array | None]:
    """The elements of values that are computed from constants alone, None for values at which onnxruntime fails.

    onnxruntime fails if it has no kernel for an element type or does not support the opset. Arrays may be views of constants,
    whose memory may be a mapped file.

    Raises:
        ModelError: a value depends on a graph input or an op that is not foldable.
    """
    targets = [value for value in dict.fromkeys(values) if value.data is None]
    found = _computed(graph, targets) if targets else {}
    return [value.data.numpy() if value.data is not None else found[value] for value in values]


def defer(graph: Graph, value: Value, is_expanded: bool) -> Deferred | None:
    """A deferred constant for a value that is computed from constants alone; None if onnxruntime cannot compute the value.

    The elements are computed once to check that, and again whenever they are read.
    """
    part = _constant_subgraph(graph, [value])
    dtype, shape = value.dtype, value.static_shape
    if dtype is None or shape is None or (_rearranged(part) is None and evaluate(graph, [value])[0] is None):
        return None
    return Deferred(part, estimated_volume(shape) * dtype.bits // 8, _output, is_expanded)


def _output(part: Graph) -> Array:
    """The only output of a graph without inputs."""
    (array,) = evaluate(part, part.outputs)
    if array is None:
        raise InvariantError("cannot be computed a second time", where=part.outputs[0].name)
    return array


def _rearranged(part: Graph) -> Array | None:
    """The only output of a graph whose ops only rearrange or upcast the elements of one constant, as a view if possible.

    None for any other graph.
    """
    arrays = {value: value.data.numpy() for value in part.values if value.data is not None}
    for op in part.ops:
        x, y = op.inputs[0] if op.inputs else None, op.outputs[0]
        if x is None or y is None or x not in arrays or y.static_shape is None or y.dtype in (None, DType.STRING):
            return None
        array = arrays[x]
        if op.kind == "Transpose":
            arrays[y] = array.transpose(op.integers("perm") or None)
        elif op.kind in _VIEWS:
            if array.size != estimated_volume(y.static_shape):  # onnxruntime would raise an error
                return None
            arrays[y] = array.reshape(y.static_shape)
        elif op.kind == "Cast" and y.dtype is not None and _is_widening(x.dtype, y.dtype):
            arrays[y] = array.astype(y.dtype.numpy)
        else:
            return None
    return arrays.get(part.outputs[0]) if len(part.outputs) == 1 else None


def _is_widening(old: DType | None, new: DType | None) -> bool:
    """Whether a Cast is exact, so that numpy and onnxruntime agree."""
    return old in _EXACT_IN_FLOAT32 and new in (DType.FLOAT32, DType.FLOAT64)


def _computed(graph: Graph, targets: list[Value]) -> dict[Value, Array | None]:
    """The values in one model, or in one model each if their constants are large or one of them cannot be computed."""
    part = _constant_subgraph(graph, targets)
    if len(targets) == 1 and (array := _rearranged(part)) is not None:
        return {targets[0]: array}
    is_large = sum(value.data.nbytes for value in part.values if value.data is not None) > _MAX_BYTES_PER_MODEL
    arrays = None if is_large and len(targets) > 1 else _run(part)
    if arrays is not None:
        return dict(zip(targets, arrays, strict=True))
    if len(targets) == 1:
        return {targets[0]: None}
    return {value: array for each in targets for value, array in _computed(graph, [each]).items()}


def _constant_subgraph(graph: Graph, targets: Sequence[Value]) -> Graph:
    """The ancestors of the given values as a graph without inputs."""
    part = Graph("constants", graph.opsets)
    ops: dict[Op, None] = {}
    copies: dict[Value, Value] = {}
    pending = list(targets)
    while pending:
        value = pending.pop()
        if value in copies:
            continue
        copies[value] = part.add_value(Value(value.name, value.type, data=value.data))
        producer = graph.producer(value)
        if producer is not None and is_foldable(producer):
            ops[producer] = None
            pending.extend(producer.values)
        elif value.data is None:
            raise ModelError("is not computed from constants alone", where=value.name)
    for op in ops:
        part.add_op(op.copy_on(copies, order=(), origin=None))
    part.outputs = [copies[value] for value in targets]
    return part


def _run(part: Graph) -> list[Array] | None:
    """The elements of the outputs; None if onnxruntime fails."""
    if sum(value.data.nbytes for value in part.values if value.data is not None) > IN_ONE_FILE:
        return None
    content = to_bytes(emit(part))
    try:
        return Session(content, is_optimised=False).run(None, {})
    except RUNTIME_ERRORS:
        return None
