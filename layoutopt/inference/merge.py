"""The type of a value from its inferred and its declared type."""

from typing import TypeAlias

from layoutopt.errors import ModelError
from layoutopt.formats import UNKNOWN, Dim, Extent, is_unknown
from layoutopt.inference.onnx_inference import InferredType
from layoutopt.ir.types import DType, OpaqueType, TensorType
from layoutopt.onnx_io.converter.vocabulary import DimNames

ValueType: TypeAlias = TensorType | OpaqueType
"""The type of a value, where every unknown extent has a name; an `InferredType` may lack the element type or extents."""

UNTYPED = OpaqueType(UNKNOWN)
"""The type of a value whose type is unknown."""

HINT = "export the model again"

_TOO_LARGE = 1 << 63  # an extent that no file can contain, and no kernel computes
_NAMES = {DType.FLOAT32: "float", DType.FLOAT64: "double"}  # of element types in onnx's messages


def without_names(type: ValueType, names: DimNames) -> ValueType:
    """A declared type with fresh names for the named dimensions of its shape."""
    if not isinstance(type, TensorType) or type.shape is None:
        return type
    return TensorType(type.dtype, tuple(_dim(None, dim, names) for dim in type.shape))


def merged_type(
    found: InferredType, declared: ValueType, names: DimNames, where: str, *, is_lenient: bool = False
) -> ValueType:
    """The type of a value: of each extent a number if either type has one, else the inferred expression, else a fresh name.

    Args:
        found: the inferred type.
        declared: the declared type. Its names of dimensions are ignored: exporters use names of inputs for outputs.
        names: generates names of unknown dimensions.
        where: the op that computes the value, for messages.
        is_lenient: whether the declared shape is used if the two contradict each other.

    Raises:
        ModelError: they contradict each other.
    """
    if found is None:
        return declared
    if isinstance(found, OpaqueType) or (isinstance(declared, OpaqueType) and declared != UNTYPED):
        if isinstance(found, OpaqueType) and isinstance(declared, OpaqueType):
            return found
        what = found if isinstance(found, OpaqueType) else "a tensor"
        raise ModelError(f"is declared as {declared}, but is {what}", where=where, hint=HINT)
    given = declared if isinstance(declared, TensorType) else None
    dtype = found.dtype or (given.dtype if given is not None else None)
    if dtype is None:
        return declared
    if given is not None and given.dtype is not dtype:
        types = f"{_NAMES.get(dtype, dtype)} vs {_NAMES.get(given.dtype, given.dtype)}"
        raise ModelError(f"inferred elem type differs from existing elem type: {types}", where=where, hint=HINT)
    shape = given.shape if given is not None else None
    if shape is not None and found.shape is not None and not is_lenient:
        _check_compatible(found.shape, shape, where)
    if found.shape is None or (shape is not None and len(shape) != len(found.shape)):
        return without_names(TensorType(dtype, shape), names)
    old = shape if shape is not None else (None,) * len(found.shape)
    pairs = zip(found.shape, old, strict=True)
    return TensorType(dtype, tuple(_dim(new, dim, names) for new, dim in pairs))


def _dim(found: Dim | None, declared: Dim | None, names: DimNames) -> Dim:
    for dim in (declared, found):
        if isinstance(dim, int) and 0 <= dim < _TOO_LARGE:
            return dim
    if isinstance(found, Extent):
        return found
    return declared if isinstance(declared, Extent) and is_unknown(declared) else names.fresh()


def _check_compatible(found: tuple[Dim | None, ...], declared: tuple[Dim, ...], where: str) -> None:
    if len(found) != len(declared):
        raise ModelError(
            f"inferred shape and existing shape differ in rank: ({len(found)}) vs ({len(declared)})",
            where=where,
            hint=HINT,
        )
    for axis, (one, other) in enumerate(zip(found, declared, strict=True)):
        if isinstance(one, int) and isinstance(other, int) and one != other:
            what = f"inferred shape and existing shape differ in dimension {axis}: ({one}) vs ({other})"
            raise ModelError(what, where=where, hint=HINT)


__all__ = ["HINT", "UNTYPED", "ValueType", "merged_type", "without_names"]
