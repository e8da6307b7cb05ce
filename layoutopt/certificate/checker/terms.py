"""Terms: expressions over values of the original model, in which the checker states what a node computes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from layoutopt.errors import CertificateError

Array: TypeAlias = np.ndarray[Any, Any]
Extent: TypeAlias = int | str
Shape: TypeAlias = tuple[Extent, ...]

LEAF, CONSTANT, VIEW = "leaf", "constant", "view"
FLOATS = (1, 10, 11, 16)  # onnx.TensorProto: float32, float16, double, bfloat16
NUMBERS = (*FLOATS, 2, 3, 4, 5, 6, 7, 9, 12, 13)  # and integers, of 8 to 64 bits, and bool


class UnprovableError(CertificateError):
    """A term cannot be formed, e.g. since extents do not agree for all sizes, or two terms differ."""


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """One tensor, as an expression.

    Attributes:
        op: an operator of ONNX in its newest form, or `leaf`, `constant` or `view`.
        args: operands; a missing optional operand is None.
        attributes: sorted pairs; values are hashable. Every attribute is present, with its default where a node has none.
        shape: extents; a symbolic extent is a string.
        dtype: the element type, a number of onnx.TensorProto.
        array: the elements of a constant; floating-point numbers are float64.
        bound: for every element of a constant the sum of the absolute values that a lemma has added.
        key: a text that is equal for terms that can be equal; constants are in it by type only.
    """

    op: str
    args: tuple["Term | None", ...] = ()
    attributes: tuple[tuple[str, Any], ...] = ()
    shape: Shape = ()
    dtype: int = 1
    array: Array | None = None
    bound: Array | None = None
    key: str = field(default="", compare=False)

    def __getitem__(self, name: str) -> Any:
        """The attribute of that name; None if there is none."""
        return next((value for key, value in self.attributes if key == name), None)

    @property
    def is_static(self) -> bool:
        """Whether all extents are numbers."""
        return all(isinstance(extent, int) for extent in self.shape)

    @property
    def elements(self) -> Array:
        """The elements of a constant."""
        assert self.array is not None
        return self.array

    @property
    def magnitudes(self) -> Array:
        """The bound of a constant."""
        return np.abs(self.elements) if self.bound is None else self.bound


def leaf(name: str, shape: Shape, dtype: int, is_sum: bool = False) -> Term:
    """The value of that name of the original model; `is_sum` if a convolution or matrix product computes it."""
    return Term(LEAF, (), (("is_sum", is_sum), ("name", name)), shape, dtype, key=f"leaf {name!r}")


def constant(array: Array, dtype: int, bound: Array | None = None) -> Term:
    """A tensor of known elements."""
    if dtype not in NUMBERS:
        raise UnprovableError("constants of texts, complex numbers or fewer than 8 bits have no terms")
    if dtype in FLOATS:
        array = np.asarray(array, np.float64)
    bound = None if bound is None else np.broadcast_to(bound, array.shape)
    return Term(CONSTANT, (), (), tuple(array.shape), dtype, array, bound, f"constant {dtype}")


def apply(op: str, args: tuple[Term | None, ...], shape: Shape, dtype: int, /, **attributes: Any) -> Term:
    """A term of an operator."""
    pairs = tuple(sorted(attributes.items()))
    keys = ", ".join("-" if arg is None else arg.key for arg in args)
    key = f"{op}{pairs}{shape}{dtype}({keys})"
    return Term(op, args, pairs, shape, dtype, None, None, key if len(key) < 400 else sha256(key.encode()).hexdigest())


_UNARY = """
Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Cast Ceil Celu Cos Cosh Elu Erf Exp Floor HardSigmoid IsInf IsNaN LeakyRelu Log
Neg Not Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh ThresholdedRelu
"""
_NARY = "Add And Clip Div Equal Greater GreaterOrEqual Less LessOrEqual Max Min Mul Or PRelu Pow Sub Where Xor"
_GENERAL = """
ArgMax ArgMin ConvInteger ConvTranspose CumSum DepthToSpace DequantizeLinear Einsum Expand Gather GatherElements GatherND
GlobalLpPool InstanceNormalization LRN LpPool MatMulInteger QLinearConv QLinearMatMul QuantizeLinear Range Resize Slice
SpaceToDepth Tile
"""
UNARY, NARY = frozenset(_UNARY.split()), frozenset(_NARY.split())
COMMUTATIVE = frozenset(["Add", "And", "Equal", "Mul", "Or", "Xor"])
PREDICATES = frozenset(["Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual"])
REDUCTIONS = frozenset(["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"])
SAME_IN_BLOCKS = UNARY | NARY | {"Concat", "Gelu", "HardSwish", "Identity", "Sum"}
"""Operators that treat a blocked array as an image of four axes, and give the same result as on the unblocked image."""

GENERAL = frozenset(_GENERAL.split())
"""Operators that are proven where both models have them, with equal attributes and operands."""


OPSET = 18
_EVALUATED = {"Add": np.add, "Mul": np.multiply}


def node_of(
    op: str, args: Sequence[Term | None], attributes: dict[str, Any]
) -> tuple[onnx.NodeProto, dict[str, Array]]:
    """A node of that operator, and the array of the attribute of terms that is an operand in ONNX, the pads of a Pad."""
    names = ["" if arg is None else f"x{index}" for index, arg in enumerate(args)]
    given: dict[str, Any] = {
        name: list(value) if isinstance(value, tuple) else value for name, value in attributes.items()
    }
    given.pop("opset", None)
    arrays = {"pads": np.asarray(given.pop("pads"), np.int64)} if op == "Pad" else {}
    names[1:1] = arrays
    return helper.make_node(op, names, ["y"], **given), arrays


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
    imports = [helper.make_opsetid("", opset)]
    schema = onnx.defs.get_schema(op, opset, "")
    found = onnx.shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=imports)
    result = found["y"].tensor_type
    extents = tuple(dim.dim_param or (dim.dim_value if dim.HasField("dim_value") else None) for dim in result.shape.dim)
    if not result.HasField("shape") or None in extents or 0 in extents:
        raise UnprovableError(f"the extents of the result of {op} are zero, or not known for all sizes")
    return tuple(extent for extent in extents if extent is not None), result.elem_type


def evaluated(op: str, args: Sequence[Term | None], dtype: int) -> Array | None:
    """The sum or product of constants, computed in their element type; None for other operators, and beyond its range."""
    constants = [arg for arg in args if arg is not None and arg.op == CONSTANT]
    if op not in _EVALUATED or len(constants) < len(args) or dtype not in (TensorProto.FLOAT, TensorProto.DOUBLE):
        return None
    with np.errstate(all="ignore"):
        found = np.asarray(_EVALUATED[op](*map(stored, constants)))
    return found if np.all(np.isfinite(found)) else None


def stored(term: Term) -> Array:
    """The elements of a constant in its element type."""
    return term.elements.astype(helper.tensor_dtype_to_np_dtype(term.dtype))


ROUNDINGS = 16
"""How many roundings a constant may differ by, relative to the element, or to the numbers that a lemma adds to one element."""

LARGEST_GROWTH = 4
"""How much larger the numbers may be that a lemma adds to one element than those of the original."""

_CONTINUOUS = {"Conv", "MatMul", *NARY} - PREDICATES  # other operators need numbers that are exactly equal
_PRECISION = {1: 2.0**-24, 11: 2.0**-53}  # numbers of other element types have to be equal


def difference(found: Term, expected: Term) -> str:
    """The first difference of two terms in normal form, in a few words; an empty text if they are equal."""
    return _difference(found, expected, set())


def _difference(found: Term, expected: Term, equal: set[tuple[int, int]], reader: str = "") -> str:
    if found is expected or (id(found), id(expected)) in equal:
        return ""
    if found.op != expected.op:
        return f"{_name(found)} where the original has {_name(expected)}"
    if found.dtype != expected.dtype or (
        found.shape != expected.shape and not (found.op == CONSTANT and reader in NARY)
    ):
        return f"{_name(found)} of {_type(found)} where the original has {_type(expected)}"
    if found.op == CONSTANT:
        return _numbers(found, expected, ROUNDINGS if reader in _CONTINUOUS else 0)
    if found.attributes != expected.attributes or len(found.args) != len(expected.args):
        return f"{_name(found)} has other attributes or operands than in the original"
    for first, second in zip(found.args, expected.args, strict=True):
        if (first is None) != (second is None):
            return f"{found.op} has an operand that is omitted in the other model"
        if first is not None and second is not None and (reason := _difference(first, second, equal, found.op)):
            return reason
    equal.add((id(found), id(expected)))
    return ""


def _name(term: Term) -> str:
    return f"{term.op} {term['name']}" if term.op == "leaf" else term.op


def _type(term: Term) -> str:
    return f"{helper.tensor_dtype_to_string(term.dtype).rpartition('.')[2].lower()} {term.shape}"


def _numbers(found: Term, expected: Term, roundings: int) -> str:
    try:
        a, b = np.broadcast_arrays(found.elements, expected.elements)
        bounds = np.maximum(*np.broadcast_arrays(found.magnitudes, expected.magnitudes))
    except ValueError:
        return f"a constant of {found.shape} where the original has {expected.shape}"
    is_folded = found.bound is not None or expected.bound is not None
    exact = (a == b) & (is_folded | (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        near = np.abs(np.subtract(a, b, dtype=np.float64)) < roundings * _PRECISION.get(found.dtype, 0) * bounds
    is_grown = found.magnitudes > LARGEST_GROWTH * expected.magnitudes
    same = (exact | (near & np.isfinite(a) & np.isfinite(b) & (a != b))) & ~is_grown
    if np.all(same):
        return ""
    place = tuple(int(k) for k in np.argwhere(~same)[0])
    where = f"element {list(place)} is {a[place]:.9g} and not {b[place]:.9g}"
    return f"{np.count_nonzero(~same)} of {same.size} numbers of a constant differ, {where}"
