"""Shapes and element types of operators, as onnx infers them, and the value of an operator on constants."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from layoutopt.certificate.checker.terms import CONSTANT, FLOATS, Array, Shape, Term, UnprovableError

OPSET = 18
AS_INPUT = {
    "Clip": (),
    "Pad": ("pads",),
    "Slice": ("starts", "ends", "axes", "steps"),
    "Reshape": ("shape",),
    "Expand": ("shape",),
    "Tile": ("repeats",),
}
_CONTINUOUS = frozenset(
    (  # noqa: SIM905
        "Abs Clip Concat Conv Cos Div Erf Exp Expand Gather Gemm IsNaN Log MatMul Max Min Neg Pad Pow Reciprocal "
        "ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu "
        "Reshape Sigmoid Sin Slice Softmax Split Sqrt Squeeze Sub Tanh Tile Transpose Unsqueeze Where"
    ).split()
)
"""Operators whose result changes little if their operands do."""
FIRST_INPUT = frozenset({"Pad", "Slice", "Reshape"})


def node_of(
    op: str, args: Sequence[Term | None], attributes: dict[str, Any]
) -> tuple[onnx.NodeProto, dict[str, Array]]:
    """A node of that operator, and the arrays of attributes that are inputs in ONNX."""
    names = ["" if arg is None else f"x{index}" for index, arg in enumerate(args)]
    arrays: dict[str, Array] = {}
    given = {name: value for name, value in attributes.items() if name != "output"}
    moved = [*AS_INPUT.get(op, ()), *(["axes"] if op.startswith("Reduce") else [])]
    for name in moved:
        if name in given:
            arrays[name] = np.asarray(given.pop(name), np.int64)
            names.insert(1 + moved.index(name), name)
    given = {
        name: list(value) if isinstance(value, tuple) else value for name, value in given.items() if value is not None
    }
    return helper.make_node(op, names, [f"y{index}" for index in range(int(given.pop("outputs", 1)))], **given), arrays


def inferred(op: str, args: Sequence[Term | None], attributes: dict[str, Any]) -> tuple[Shape, int]:
    """The shape and element type of the first output, for all sizes of symbolic dimensions."""
    output = attributes.get("output", 0)
    node, arrays = node_of(op, args, attributes)
    types = {f"x{index}": _type(arg) for index, arg in enumerate(args) if arg is not None}
    types |= {name: helper.make_tensor_type_proto(TensorProto.INT64, array.shape) for name, array in arrays.items()}
    data = {
        f"x{index}": _tensor(arg)
        for index, arg in enumerate(args)
        if arg is not None and arg.op == CONSTANT and arg.elements.size < 64
    }
    data |= {name: numpy_helper.from_array(array) for name, array in arrays.items()}
    try:
        found = onnx.shape_inference.infer_node_outputs(
            _schema(op), node, types, data, opset_imports=[helper.make_opsetid("", OPSET)]
        )
        result = found[f"y{output}"].tensor_type
    except Exception as fault:
        raise UnprovableError(f"onnx infers no type for {op}: {str(fault).splitlines()[0]}") from fault
    extents = tuple(dim.dim_param or (dim.dim_value if dim.HasField("dim_value") else None) for dim in result.shape.dim)
    if not result.HasField("shape") or None in extents:
        raise UnprovableError(f"the extents of the result of {op} are not known for all sizes")
    return tuple(extent for extent in extents if extent is not None), result.elem_type


def evaluated(op: str, args: Sequence[Term | None], attributes: dict[str, Any]) -> Array:
    """The value of an operator on constants, by the reference implementation of onnx, floating-point numbers in float64."""
    from onnx.reference import ReferenceEvaluator

    _check_exact(op, args)
    node, arrays = node_of(op, args, attributes)
    feeds = {f"x{index}": arg.elements for index, arg in enumerate(args) if arg is not None} | arrays
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
    graph = helper.make_graph([node], "constant", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    try:
        return np.asarray(ReferenceEvaluator(model).run(None, feeds)[attributes.get("output", 0)])
    except Exception as fault:
        raise UnprovableError(f"onnx does not evaluate {op} on constants ({type(fault).__name__})") from fault


def _check_exact(op: str, args: Sequence[Term | None]) -> None:
    """Check that numbers whose rounding could change the result of a step function are numbers of their element type.

    Raises:
        UnprovableError: they are not, so the model computes with other ones.
    """
    for arg in args if op not in _CONTINUOUS else ():
        if arg is None or arg.dtype not in FLOATS:
            continue
        kind = helper.tensor_dtype_to_np_dtype(arg.dtype)
        if not np.array_equal(arg.elements, arg.elements.astype(kind).astype(np.float64), equal_nan=True):
            raise UnprovableError(f"{op} of constants that are rounded")


@cache
def _schema(op: str) -> Any:
    return onnx.defs.get_schema(op, OPSET, "")


def _type(term: Term) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(term.dtype, term.shape)


def _tensor(term: Term) -> onnx.TensorProto:
    return numpy_helper.from_array(
        np.ascontiguousarray(term.elements.astype(helper.tensor_dtype_to_np_dtype(term.dtype)))
    )
