"""Shapes and element types of operators, as onnx infers them, and the values of operators on constants."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from layoutopt.certificate.checker.terms import CONSTANT, FLOATS, Array, Shape, Term, UnprovableError

OPSET = 18
AS_INPUT = {"Pad": ("pads",), "Slice": ("starts", "ends", "axes", "steps")}
"""Attributes of terms that are inputs in ONNX."""
_MOVEMENT = frozenset(["Concat", "Expand", "Gather", "Range", "Shape", "Size", "Slice", "Split", "Tile"])
_ARITHMETIC = frozenset(["Add", "Div", "Mul", "Neg", "Reciprocal", "Sqrt", "Sub"])
_LARGEST_INTEGER = 2**31


Node = tuple[onnx.NodeProto, dict[str, Array]]


def node_of(op: str, args: Sequence[Term | None], attributes: dict[str, Any]) -> Node:
    """A node of that operator, and the arrays of attributes that are inputs in ONNX."""
    names = ["" if arg is None else f"x{index}" for index, arg in enumerate(args)]
    arrays: dict[str, Array] = {}
    given = {name: value for name, value in attributes.items() if name not in ("output", "opset")}
    for place, name in enumerate(AS_INPUT.get(op, ())):
        arrays[name] = np.asarray(given.pop(name), np.int64)
        names.insert(1 + place, name)
    given = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
    return helper.make_node(op, names, [f"y{index}" for index in range(int(given.pop("outputs", 1)))], **given), arrays


def inferred(op: str, args: Sequence[Term | None], attributes: dict[str, Any]) -> tuple[Shape, int]:
    """The shape and element type of the first output, for all sizes of symbolic dimensions."""
    opset = attributes.get("opset", OPSET)
    node, arrays = node_of(op, args, attributes)
    given = {f"x{index}": arg for index, arg in enumerate(args) if arg is not None}
    types = {name: helper.make_tensor_type_proto(arg.dtype, arg.shape) for name, arg in given.items()}
    types |= {name: helper.make_tensor_type_proto(TensorProto.INT64, array.shape) for name, array in arrays.items()}
    small = {name: arg for name, arg in given.items() if arg.op == CONSTANT and arg.elements.size < 64}
    arrays |= {name: np.ascontiguousarray(stored(arg)) for name, arg in small.items()}
    data = {name: numpy_helper.from_array(array) for name, array in arrays.items()}
    try:
        imports = [helper.make_opsetid("", opset)]
        found = onnx.shape_inference.infer_node_outputs(_schema(op, opset), node, types, data, opset_imports=imports)
        result = found[f"y{attributes.get('output', 0)}"].tensor_type
    except Exception as fault:
        raise UnprovableError(f"onnx infers no type for {op}: {str(fault).splitlines()[0]}") from fault
    extents = tuple(dim.dim_param or (dim.dim_value if dim.HasField("dim_value") else None) for dim in result.shape.dim)
    if not result.HasField("shape") or None in extents or 0 in extents:
        raise UnprovableError(f"the extents of the result of {op} are zero, or not known for all sizes")
    return tuple(extent for extent in extents if extent is not None), result.elem_type


def evaluated(op: str, args: Sequence[Term | None], attributes: dict[str, Any], dtype: int) -> Array | None:
    """The value of an operator on constants, computed in their element type; None unless every runtime computes this one.

    These are movements of elements, and operators that IEEE 754 defines, on integers below 2**31 and finite numbers.
    """
    terms = [arg for arg in args if arg is not None]
    is_float = dtype in FLOATS
    if not terms or any(arg.op != CONSTANT for arg in terms) or op not in _MOVEMENT | _ARITHMETIC:
        return None
    if op in _ARITHMETIC and (dtype not in (1, 7, 11) or (dtype == TensorProto.INT64 and not _is_small(terms, op))):
        return None
    node, arrays = node_of(op, args, attributes)
    feeds = {f"x{index}": stored(arg) for index, arg in enumerate(args) if arg is not None} | arrays
    with np.errstate(all="ignore"):
        try:
            evaluator = ReferenceEvaluator(node, opsets={"": attributes.get("opset", OPSET)})
            found = np.asarray(evaluator.run(None, feeds)[attributes.get("output", 0)])
        except Exception as fault:
            raise UnprovableError(f"onnx does not evaluate {op} on constants ({type(fault).__name__})") from fault
    return None if op in _ARITHMETIC and is_float and not np.all(np.isfinite(found)) else found


def _is_small(terms: Sequence[Term], op: str) -> bool:
    """Whether integers neither overflow, nor are divided with a remainder that operators round differently."""
    is_exact = all(np.all(np.abs(arg.elements) < _LARGEST_INTEGER) for arg in terms)
    return is_exact and (op != "Div" or bool(np.all(terms[0].elements >= 0) and np.all(terms[1].elements > 0)))


def stored(term: Term) -> Array:
    """The elements of a constant in its element type."""
    return term.elements.astype(helper.tensor_dtype_to_np_dtype(term.dtype))


@cache
def _schema(op: str, opset: int) -> Any:
    return onnx.defs.get_schema(op, opset, "")
