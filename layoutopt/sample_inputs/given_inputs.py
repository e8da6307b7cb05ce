"""Inputs given by the caller: sets of arrays by the name of the input, from memory or from .npz files."""

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np

from layoutopt.errors import InputError
from layoutopt.ir.sizes import Range
from layoutopt.ir.types import Array
from layoutopt.onnx_io.interface import dimension_name
from layoutopt.runtime.type_names import short_name, tensor_name

InputSet: TypeAlias = Mapping[str, Array]
"""Values of some inputs of a model, by name."""

Given: TypeAlias = InputSet | Sequence[InputSet]
"""One set of inputs, or several."""


class Declared(Protocol):
    """A declared input of a model; the inputs of an onnxruntime session have the same attributes."""

    @property
    def name(self) -> str:
        """The name of the input."""

    @property
    def type(self) -> str:
        """The type name of onnxruntime, such as tensor(float)."""

    @property
    def shape(self) -> Sequence[int | str | None] | None:
        """Extents, or names of symbolic dimensions; None if the rank is unknown."""


def read_inputs(path: str | PathLike[str]) -> dict[str, Array]:
    """The arrays in a .npz file, by name.

    Raises:
        InputError: the file is not an .npz file, or contains Python objects.
    """
    hint = "name a file that numpy.savez has written, with an array for each input"
    try:
        found = np.load(Path(path), allow_pickle=False)
        if isinstance(found, np.ndarray):
            raise InputError("a single array", where=str(path), hint=hint)
        with found:
            return {name: found[name] for name in found.files}
    except InputError:
        raise
    except OSError as error:
        raise InputError((error.strerror or str(error)).lower(), where=str(path), hint=hint) from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError("not a file of numpy arrays", where=str(path), hint=hint) from error


def input_sets(given: Given | None) -> tuple[InputSet, ...]:
    """The given sets of inputs as arrays.

    Raises:
        InputError: a set is not a mapping from names to arrays.
    """
    sets = () if given is None else (given,) if isinstance(given, Mapping) else tuple(given)
    if not all(isinstance(each, Mapping) for each in sets):
        raise InputError("not a set of inputs", where="inputs", hint="give a mapping from names to arrays")
    return tuple({name: np.asarray(value) for name, value in each.items()} for each in sets if each)


def bound_sizes(inputs: Iterable[Declared], given: InputSet, sizes: Mapping[str, int] | None = None) -> dict[str, int]:
    """The sizes of symbolic dimensions in given arrays.

    Args:
        inputs: the inputs of one model or several.
        given: the arrays.
        sizes: required sizes of dimensions.

    Raises:
        InputError: there is no such input, or it has another type or shape.
    """
    known = dict(sizes or {})
    declared: dict[str, list[Declared]] = {}
    for one in inputs:
        declared.setdefault(one.name, []).append(one)
    for name, value in given.items():
        if name not in declared:
            raise InputError("no such input", where=name, hint=f"there are {', '.join(declared) or 'none'}")
        for one in declared[name]:
            _bind(one, value, known)
    return known


def _bind(one: Declared, value: Array, known: dict[str, int]) -> None:
    """Add the sizes of symbolic dimensions in a value to `known`; raise an error if the value does not fit."""
    type = tensor_name("string" if value.dtype.kind in "OU" else value.dtype.name)
    if type != one.type:
        raise InputError(
            f"the values are {short_name(type)}", where=one.name, hint=f"the input is {short_name(one.type)}"
        )
    if one.shape is None:
        return
    dims = [dim if isinstance(dim, int) else dimension_name(one.name, axis, dim) for axis, dim in enumerate(one.shape)]
    if len(dims) == value.ndim:
        for dim, size in zip(dims, value.shape, strict=True):
            if isinstance(dim, str):
                known.setdefault(dim, size)
    expected = [known.get(dim, dim) if isinstance(dim, str) else dim for dim in dims]
    if expected != list(value.shape):
        has, takes = ("x".join(map(str, shape)) or "a scalar" for shape in (value.shape, expected))
        raise InputError(f"the values are {has}", where=one.name, hint=f"the input is {takes}")


def given_ranges(inputs: Sequence[Declared], sets: Sequence[InputSet], dims: Mapping[str, Range]) -> dict[str, Range]:
    """The given sizes of dimensions: those given by name, and those in the arrays of the sets.

    Raises:
        InputError: an array does not fit an input, or contradicts a size that is given by name.
    """
    found = dict(dims)
    fixed = {name: low for name, (low, high) in dims.items() if low == high}
    for each in sets:
        for name, size in bound_sizes(inputs, each, fixed).items():
            if name in dims:
                low, high = dims[name]
                if not low <= size <= high:
                    hint = f"{name} is given as {low}:{high}"
                    raise InputError(f"{name} is {size} in the values", where=", ".join(each), hint=hint)
            else:
                low, high = found.get(name, (size, size))
                found[name] = min(low, size), max(high, size)
    return found


__all__ = ["Declared", "Given", "InputSet", "bound_sizes", "given_ranges", "input_sets", "read_inputs"]
