"""Generator of test inputs: sizes of symbolic dimensions, and values that the graph allows or that the caller gives.

A rewritten model must be correct at every size, so a comparison also uses sizes that the planner did not use: odd sizes, and
different heights and widths. A model need not run at all of them, so there are more proposals than a comparison needs. Sizes
that the caller does not give are inferred, with trial runs in onnxruntime within a time limit.
"""

import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from msgspec import field
from msgspec.structs import replace

from layoutopt import inference, onnx_io
from layoutopt.errors import InputError, LayoutoptError, ModelError
from layoutopt.formats import Extent
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Dims, Range, Sizes, Symbol, as_range, checked_ranges, default_size
from layoutopt.ir.types import Array, DType
from layoutopt.onnx_io.interface import Input, Interface, dimension_name, inputs_of
from layoutopt.record import Record
from layoutopt.runtime.errors import error_message
from layoutopt.runtime.session import Session, needs_ort_value
from layoutopt.runtime.type_names import short_name, tensor_name
from layoutopt.sample_inputs.dimensions import Dimensions, RunError, TrialRunner, plausible_sizes
from layoutopt.sample_inputs.input_ranges import RangeKind, ValueRange, value_ranges

_INDICES = (0, 2)  # range of integers that may be indices
_MAX_ELEMENTS = 1 << 40  # no memory is large enough for more
_LARGEST_SIZE = 4  # of an extent that is the value of an input, and of a length without a known limit
_RANGES = {
    DType.INT8: (-100, 100),
    DType.UINT8: (0, 256),
    DType.INT4: (-8, 8),
    DType.UINT4: (0, 16),
    DType.INT2: (-2, 2),
    DType.UINT2: (0, 4),
}
"""Ranges of integer types that hold quantised values rather than indices."""


class Style(Enum):
    """The distribution of values; later styles are used only if a model does not run with earlier ones."""

    RANDOM = "random"
    ONES = "integers are 1, floating-point values between 0 and 1"
    ZEROS = "zeros"


def random_values(
    name: str,
    type: str,
    shape: Sequence[int],
    generator: np.random.Generator,
    range: ValueRange | None,
    at: Mapping[str, int],
    style: Style,
) -> Array:
    """Random values of one input: normally distributed floating-point values, or values in the given range.

    Args:
        name: the name of the input, for error messages.
        type: its type name of onnxruntime.
        shape: its extents.
        generator: of random numbers.
        range: the values that the graph allows; None for all.
        at: sizes of the dimensions in the bounds of the range.
        style: the distribution of values.

    Raises:
        LayoutoptError: the type has no random values, or there are too many of them.
    """
    dtype = next((each for each in DType if each.label == short_name(type)), None)
    if dtype is None or dtype in (DType.COMPLEX64, DType.COMPLEX128):
        raise LayoutoptError(f"no random values for the type {type}", where=name)
    if prod(shape) > _MAX_ELEMENTS:
        raise LayoutoptError(f"{prod(shape)} elements are too many for any memory", where=name)
    if dtype is DType.STRING:
        return np.full(shape, "a", dtype=object)
    if style is not Style.RANDOM and (range is None or range.kind is not RangeKind.CHOICE):
        return _simple_values(dtype, shape, generator, style)
    if range is None:
        return _unrestricted_values(dtype, shape, generator)
    return np.asarray(_values_in_range(range, shape, generator, at)).astype(dtype.numpy)


def _simple_values(dtype: DType, shape: Sequence[int], generator: np.random.Generator, style: Style) -> Array:
    if dtype.is_float and style is Style.ONES:
        return generator.random(shape, _drawn_type(dtype)).astype(dtype.numpy, copy=False)
    return np.full(shape, style is Style.ONES).astype(dtype.numpy)


def _unrestricted_values(dtype: DType, shape: Sequence[int], generator: np.random.Generator) -> Array:
    if dtype is DType.FLOAT8E8M0:  # a type of powers of two
        return np.exp2(generator.integers(-2, 3, shape)).astype(dtype.numpy)
    if dtype.is_float:
        return generator.standard_normal(shape, _drawn_type(dtype)).astype(dtype.numpy, copy=False)
    return np.asarray(generator.integers(*_RANGES.get(dtype, _INDICES), shape)).astype(dtype.numpy)


def _drawn_type(dtype: DType) -> Any:
    """The numpy type in which values are drawn: float64 takes up to eight times the memory of narrower types."""
    return np.float64 if dtype is DType.FLOAT64 else np.float32


def _values_in_range(
    range: ValueRange, shape: Sequence[int], generator: np.random.Generator, at: Mapping[str, int]
) -> Array:
    """Values in a range; a row of a mask has both values, whichever of them masks."""
    high = None if range.high is None else Extent.of(range.high).at(at)
    match range.kind:
        case RangeKind.INDEX:
            return generator.integers(0, max(1 if high is None else high, 0) + 1, shape)
        case RangeKind.CHOICE:
            return np.full(shape, generator.choice(range.choices))
        case RangeKind.LENGTH:
            longest = high or max(at.values(), default=_LARGEST_SIZE)
            lengths = np.asarray(generator.integers(max(1, longest // 2), longest + 1, shape))
            lengths.reshape(-1)[:1] = longest
            return lengths
        case RangeKind.SIZE:
            return generator.integers(1, _LARGEST_SIZE + 1, shape)
        case RangeKind.MASK:
            mask = np.atleast_1d(generator.integers(0, 2, shape))
            mask[..., -1:], mask[..., :1] = 0, 1
            return mask.reshape(shape)
        case RangeKind.POSITIVE:
            return np.abs(generator.normal(size=shape)) + 0.1


def perturbed(value: Array, generator: np.random.Generator) -> Array:
    """The values with every floating-point one changed by up to a hundredth of the largest magnitude."""
    if value.dtype.kind != "f" and not str(value.dtype).startswith(("bfloat", "float")):
        return value
    wide = value.astype(np.float64)
    largest: Any = np.abs(wide[np.isfinite(wide)]).max(initial=0.0)
    return np.asarray(wide + 0.01 * largest * generator.uniform(-1, 1, value.shape)).astype(value.dtype)


InputSet: TypeAlias = Mapping[str, Array]
"""Values of some inputs of a model, by name."""

Given: TypeAlias = InputSet | Sequence[InputSet]
"""One set of inputs, or several."""


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


def bound_sizes(inputs: Iterable[Input], given: InputSet, sizes: Mapping[str, int] | None = None) -> dict[str, int]:
    """The sizes of symbolic dimensions in given arrays.

    Args:
        inputs: the inputs of one model or several.
        given: the arrays.
        sizes: required sizes of dimensions.

    Raises:
        InputError: there is no such input, or it has another type or shape.
    """
    known = dict(sizes or {})
    declared: dict[str, list[Input]] = {}
    for one in inputs:
        declared.setdefault(one.name, []).append(one)
    for name, value in given.items():
        if name not in declared:
            raise InputError("no such input", where=name, hint=f"there are {', '.join(declared) or 'none'}")
        for one in declared[name]:
            _bind(one, value, known)
    return known


def _bind(one: Input, value: Array, known: dict[str, int]) -> None:
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


def given_ranges(inputs: Sequence[Input], sets: Sequence[InputSet], dims: Mapping[str, Range]) -> dict[str, Range]:
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


_SMALL = 2  # last resort: one size for all dimensions, because different names may have to be equal
_ROUND = 32  # usual divisor of the extents of images


def symbols_of(session: Any) -> list[Symbol]:
    """The symbolic dimensions of the inputs of a session, or of another object with `get_inputs`."""
    found: dict[str, Symbol] = {}
    for each in session.get_inputs():
        is_fraction = any(kind in each.type for kind in ("float", "double"))
        for axis, dim in enumerate(each.shape or ()):
            if not isinstance(dim, int):
                name = dimension_name(each.name, axis, dim)
                found.setdefault(name, Symbol(name, name, default_size(name, axis, len(each.shape), is_fraction)))
    return list(found.values())


def sizes_to_compare(
    symbols: Sequence[Symbol],
    given: Mapping[str, Range],
    planned: Mapping[str, int] | None = None,
    dimensions: Dimensions | None = None,
) -> list[Mapping[str, int]]:
    """Sizes at which models are compared, those of the planner first; one empty mapping without symbolic dimensions.

    Args:
        symbols: the dimensions.
        given: the given sizes.
        planned: the sizes that the planner uses for all other dimensions.
        dimensions: the symbolic dimensions of the graph, to whose relations sizes are adjusted.
    """
    defaults = {each.name: (planned or {}).get(each.name, each.default) for each in symbols}
    ranges = {name: given.get(name, (size, size)) for name, size in defaults.items()}
    low = {name: range[0] for name, range in ranges.items()}
    high = {name: range[1] for name, range in ranges.items()}
    uneven = {name: _uneven(range, index) for index, (name, range) in enumerate(ranges.items())}
    even, turned = ({name: _even(range, at + odd) for at, (name, range) in enumerate(ranges.items())} for odd in (0, 1))
    small = {name: range[0] if name in given else _SMALL for name, range in ranges.items()}
    proposals = [low, uneven, high, even, turned, small]
    if dimensions is not None:
        past = {each.name: 0 for each in dimensions.symbols if each.dim in dimensions.past and each.name not in given}
        first = [low | past] if past else []
        related = [_related(dimensions, each, given) for each in (low, uneven, *first, *proposals[2:])]
        proposals = [low, *related, *proposals]
    found: list[Mapping[str, int]] = []
    for sizes in proposals:
        if sizes not in found:
            found.append(sizes)
    return found


def _related(dimensions: Dimensions, proposed: Mapping[str, int], given: Mapping[str, Range]) -> dict[str, int]:
    """The proposed sizes with those of computed dimensions, clamped to given ranges."""
    texts = {each.name: each.dim for each in dimensions.symbols}
    sizes = dimensions.named(dimensions.complete({texts[name]: size for name, size in proposed.items()}))
    return {
        name: min(max(size, given[name][0]), given[name][1]) if name in given else size for name, size in sizes.items()
    }


def _uneven(range: Range, index: int) -> int:
    """An odd size in a range, different for every dimension."""
    low, high = range
    if low < high:
        middle = (low + high) // 2 + index
        return min(max(middle - (middle % 2 == 0), low), high)
    return low + 2 if low < _ROUND else (low - low // 8 - 4 * index) | 1


def _even(range: Range, index: int) -> int:
    """The high end of a range, or a size near its only one that is a multiple of the usual divisor of image extents."""
    low, high = range
    if low < high or low < 2 * _ROUND:
        return max(high, low + 1)
    return low // _ROUND * _ROUND + (_ROUND if index % 2 else -_ROUND)


MAX_ELEMENTS = 1 << 27
"""Elements of all inputs together above which inputs are generated only at sizes that the caller has given."""

Feed: TypeAlias = dict[str, Array]


class TestInputs(Record):
    """Test inputs at one choice of sizes.

    Attributes:
        sizes: the sizes of the symbolic dimensions, by name.
        feeds: two sets of inputs, generated on demand.
        group: the index of the given set of arrays; 0 if none is given.
    """

    sizes: Mapping[str, int]
    feeds: Iterator[Feed]
    group: int = 0


class SampleInputs(Record):
    """Generator of test inputs of one model.

    Attributes:
        ranges: the ranges of the inputs that the graph restricts, by name.
        dims: the sizes that the caller has given, by name.
        planned: the sizes that the planner uses, by name.
        dimensions: the symbolic dimensions of the graph; None without a graph.
        given: sets of arrays that the caller has given; inputs that are not in a set are random.
    """

    ranges: Mapping[str, ValueRange] = field(default_factory=dict)
    dims: Mapping[str, Range] = field(default_factory=dict)
    planned: Mapping[str, int] = field(default_factory=dict)
    dimensions: Dimensions | None = None
    given: tuple[InputSet, ...] = ()

    @classmethod
    def of(cls, graph: Graph | None = None, dims: Dims | None = None, given: Given | None = None) -> "SampleInputs":
        """The generator for a graph that no pass has changed yet.

        Args:
            graph: the graph; None if there is none.
            dims: sizes that the caller has given, or ranges of them.
            given: arrays that the caller has given.

        Raises:
            DimensionError: the graph has no dimension of a given name, or a size is invalid.
            InputError: an array fits no input of the graph.
        """
        sets = input_sets(given)
        requested = {name: as_range(size) for name, size in (dims or {}).items()}
        if graph is None:
            return cls({}, requested, {}, None, sets)
        found = Dimensions.of(graph, requested)
        if sets:
            requested = given_ranges(inputs_of(graph), sets, requested)
            found = Dimensions.of(graph, requested)
        planned = found.named(next(found.candidates())) if found.symbols else {}
        return cls(value_ranges(graph), requested, planned, found, sets)

    def with_sizes(self, sizes: Sizes) -> "SampleInputs":
        """The same generator with the sizes that the planner uses, which verification tries first."""
        return replace(self, planned={name: low for name, (low, _) in sizes.ranges.items()})

    def sizes_to_compare(self, session: Any) -> list[Mapping[str, int]]:
        """Sizes at which models are compared, for a session or another object with `get_inputs`.

        Raises:
            DimensionError: there is no dimension of a given name, or a size is invalid.
        """
        symbols = symbols_of(session)
        known = checked_ranges([each.name for each in symbols], self.dims)
        names = {each.name for each in self.dimensions.symbols} if self.dimensions else set()
        dimensions = self.dimensions if names == {each.name for each in symbols} else None
        return sizes_to_compare(symbols, known, self.planned, dimensions)

    def sets(self, session: Any, seed: int, style: Style = Style.RANDOM) -> Iterator[TestInputs]:
        """Test inputs for every choice of sizes.

        Given arrays replace random values; in the second set of inputs they are perturbed.

        Raises:
            LayoutoptError: there are no random values for a type.
        """
        for group, given in enumerate(self.given or ({},)):
            bound = bound_sizes(session.get_inputs(), given)
            fixed = replace(self, dims={**self.dims, **{name: (size, size) for name, size in bound.items()}})
            fitting = [sizes for sizes in fixed.sizes_to_compare(session) if sizes.items() >= bound.items()]
            for sizes in fitting:
                yield TestInputs(sizes, self._feeds(session, seed + 2 * group, sizes, style, given), group)

    def _feeds(
        self, session: Any, seed: int, sizes: Mapping[str, int], style: Style, given: InputSet
    ) -> Iterator[Feed]:
        """Two sets of inputs at the given sizes; in the second, given arrays are perturbed."""
        yield {**self.draw(session, seed, sizes, style), **given}
        generator = np.random.default_rng(seed + 1)
        changed = {name: perturbed(each, generator) for name, each in given.items()}
        yield {**self.draw(session, seed + 1, sizes, style), **changed}

    def feed(self, session: Any, sizes: Mapping[str, int], style: Style = Style.RANDOM) -> Feed:
        """One set of inputs at the given sizes: the first given arrays, and random values of all other inputs."""
        given = self.given[0] if self.given else {}
        return {**self.draw(session, 0, sizes, style), **given}

    def has_random_integers_or_scalars(self, session: Any) -> bool:
        """Whether integers or a scalar of any type are random: as a shape, an axis or a count they may fit no op."""
        given = self.given[0] if self.given else {}
        others = (each.name for each in session.get_inputs() if each.type not in _FLOATING_POINT or not each.shape)
        return any(name not in given for name in others)

    def draw(
        self, session: Any, seed: int, sizes: Mapping[str, int] | None = None, style: Style = Style.RANDOM
    ) -> Feed:
        """Random values of all inputs, within the ranges of the graph.

        Args:
            session: a session, or another object with `get_inputs`.
            seed: of the values.
            sizes: of symbolic dimensions, by name, or by `input[axis]` for unnamed ones; by default 2.
            style: the distribution of values.

        Raises:
            InputError: the inputs would have too many elements at sizes that the caller has not given.
            LayoutoptError: there are no random values for a type.
        """
        generator = np.random.default_rng(seed)
        known = sizes or {}
        point = self._by_text(known)
        feed: Feed = {}
        shapes = {each.name: _extents(each, known) for each in session.get_inputs()}
        if not known.keys() <= self.dims.keys() and sum(map(prod, shapes.values())) > MAX_ELEMENTS:
            raise InputError(
                "inputs would be too large", where=sizes_text(known), hint="give sizes with --dim NAME=SIZE"
            )
        for each in session.get_inputs():
            range = self.ranges.get(each.name)
            feed[each.name] = random_values(each.name, each.type, shapes[each.name], generator, range, point, style)
        return feed

    def _by_text(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Sizes by the texts of the dimensions in shapes."""
        symbols = self.dimensions.symbols if self.dimensions is not None else ()
        return {each.dim: sizes[each.name] for each in symbols if each.name in sizes} or dict(sizes)


_FLOATING_POINT = {tensor_name(dtype.label) for dtype in DType if dtype.is_float}


def _extents(one: Input, sizes: Mapping[str, int]) -> list[int]:
    return [
        dim if isinstance(dim, int) else sizes.get(dimension_name(one.name, axis, dim), _SMALL)
        for axis, dim in enumerate(one.shape or ())
    ]


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Sizes as text, `N = 1, H = 224`."""
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())


RUN_SECONDS = 20.0  # time limit of one run; sizes at which a model takes longer have to be given
_STYLES = (Style.RANDOM, Style.ONES)

Source: TypeAlias = bytes | str | PathLike[str]


def prepare_inputs(
    model: Source, graph: Graph | None, dims: Dims | None = None, given: Given | None = None, *, may_run: bool = True
) -> tuple[SampleInputs, Sizes]:
    """The generator of test inputs of a model, and the given or inferred sizes of its symbolic dimensions.

    Args:
        model: a file, or its bytes, which is run if there are symbolic dimensions.
        graph: the graph of the model, before any rewrite; None if layoutopt cannot read it.
        dims: sizes that the caller has given, or ranges of them.
        given: arrays that the caller has given.
        may_run: whether the model may be loaded and run.

    Raises:
        DimensionError: there is no dimension of a given name, or a size is invalid.
        InputError: an array fits no input.
    """
    inputs = SampleInputs.of(graph, dims, given)
    is_run = may_run and inputs.dimensions is not None and bool(inputs.dimensions.symbols)
    sizes = plausible_sizes(inputs.dimensions, _trial_runner(model, inputs) if is_run else None)
    return inputs.with_sizes(sizes), sizes


def sample_inputs_for(model: Source, dims: Dims | None = None, given: Given | None = None) -> SampleInputs:
    """The generator of test inputs of a file or message; without its graph if layoutopt cannot read it.

    Raises:
        DimensionError, InputError: as for `prepare_inputs`.
    """
    return prepare_inputs(model, lift_source(model), dims, given)[0]


def lift_source(model: Source) -> Graph | None:
    """The graph of a file or message; None if layoutopt cannot read it."""
    try:
        if isinstance(model, bytes):
            return inference.lift(onnx_io.from_message(onnx_io.parse_message(model)))
        return inference.lift(onnx_io.read(model))
    except ModelError:
        return None


def same_inputs(
    models: Sequence[Path],
    interfaces: Sequence[Interface],
    dims: Mapping[str, int],
    given: Mapping[str, Array],
    seed: int,
) -> tuple[dict[str, int], dict[str, int], list[Feed]]:
    """The sizes of symbolic dimensions, those of them that are inferred, and the inputs of every model.

    A size is given by name or by arrays, or else inferred from the first model, or else the default, at least 2, since size 1
    would broadcast where other sizes are an error. Inputs that are not given are random, and equal for equal inputs.

    Raises:
        DimensionError: no model has such a dimension.
        InputError: no model has such an input, or it has another type or shape.
        LayoutoptError: a type has no random values.
    """
    inputs = [one for each in interfaces for one in each.inputs]
    for one in (one for one in inputs if needs_ort_value(one.type)):
        raise LayoutoptError(f"the runtimes accept no arrays of {short_name(one.type)}", where=one.name)
    defaults = {symbol.name: max(symbol.default, 2) for each in interfaces for symbol in symbols_of(each)}
    checked_ranges(list(defaults), dims)
    known = bound_sizes(inputs, given, dims)
    own, names = {symbol.name for symbol in symbols_of(interfaces[0])}, {each.name for each in interfaces[0].inputs}
    samples = sample_inputs_for(models[0], _among(own, known), _among(names, given))
    sizes = defaults | _among(defaults, samples.planned) | _among(defaults, known)
    first, *_ = feeds = [samples.draw(each, seed, sizes) for each in interfaces]
    for feed in feeds:
        types = {name: (value.dtype, value.shape) for name, value in feed.items()}
        equal = {name: each for name, each in first.items() if types.get(name) == (each.dtype, each.shape)}
        feed |= equal | _among(feed, given)
    return sizes, {name: size for name, size in sizes.items() if name not in known}, feeds


def _among(names: Collection[str], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in names}


def _trial_runner(model: Source, inputs: SampleInputs) -> TrialRunner:
    """A function that runs a model at given sizes, with random inputs and, if it does not run, with simpler ones."""
    try:
        session = Session(model, is_optimised=False)
    except Exception as error:  # onnxruntime's exceptions have no common base
        message = error_message(error)
        return lambda sizes: message

    def run(sizes: Mapping[str, int]) -> RunError:
        reason = ""
        for style in _STYLES:
            try:
                session.run(None, inputs.feed(session, sizes, style), RUN_SECONDS)
            except Exception as error:
                reason = reason or error_message(error)
            else:
                return ""
        return reason

    return run
