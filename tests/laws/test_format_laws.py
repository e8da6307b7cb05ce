"""Laws of formats, conversions, reshapes and symbolic extents, checked at every index and at all sizes."""

import copy
import math
import pickle
import re
from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise, product

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from tiers import tiered

from layoutopt.errors import FormatError
from layoutopt.formats import (
    Conversion,
    Entry,
    Extent,
    Format,
    Layout,
    Part,
    Reshape,
    Shape,
    Transpose,
    as_shape,
    entries,
    fractal_nz,
    is_unknown,
    lookup,
    pack,
    parse_extent,
    propagate_reshape,
    quoted,
    run,
    unpack,
    unquoted,
    volume,
)
from layoutopt.formats import product as product_of
from layoutopt.formats.extent import static_shape
from layoutopt.ir.graph import Graph, insert_cast
from layoutopt.ir.types import DType, Storage, TensorType
from layoutopt.onnx_io import emit, to_bytes
from layoutopt.runtime.session import inference_session
from layoutopt.testing.rules import lower

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128", "object", "U3", "S3"),
    *(name for name in dir(ml_dtypes) if name.startswith(("bfloat", "float", "int", "uint"))),
]


def numbered(shape: tuple[int, ...]) -> np.ndarray:
    """The array of a shape with the elements 1, 2, 3, ...: all differ, and none is 0 like padding."""
    return np.arange(1, 1 + math.prod(shape)).reshape(shape)


def check_format(format: Format, shape: tuple[int, ...]) -> None:
    """Assert that a format is read back from its name, and that packing, offsets and keys agree for a shape."""
    letters = "ZYXWVUTS"[: format.rank]
    assert Format.parse(str(format)) == format
    assert Format.parse(format.name(letters), letters) == format
    _check_construction(format)
    array = numbered(shape)
    physical = pack(array, format)
    assert physical.shape == format.physical_shape(shape)
    assert physical.flags.c_contiguous
    assert np.array_equal(unpack(physical, format, shape), array)
    assert np.count_nonzero(physical == 0) == physical.size - array.size
    assert format.has_padding(shape) == (physical.size > array.size)
    assert math.prod(static_shape(format.padded_shape(shape))) == physical.size
    layout = Layout(format, shape)
    assert layout.capacity == physical.size
    assert np.array_equal(physical.ravel()[layout.offset(*np.indices(array.shape))], array)


def _check_construction(format: Format) -> None:
    """Assert that redundant parts and steps make no other format, and that derived properties agree with the format."""
    assert Format(format.parts) == format
    assert Format(tuple(part for old in format.parts for part in (old, Part(old.axis, 1)))) == format
    spans = zip(format.parts, format.spans, strict=True)
    assert Format(tuple(Part(part.axis, part.block, span if part.block else 0) for part, span in spans)) == format
    assert format.is_plain == (format == Format.plain(format.order))
    assert format.is_canonical == (format == Format.canonical(format.rank))
    assert format.without_blocks(range(format.rank)) == Format.plain(format.order)
    assert format.restrict(range(format.rank)) == format


def check_conversion(source: Format, target: Format, shape: tuple[int, ...]) -> None:
    """Assert that the steps of a conversion equal unpacking and packing, and that every step has an effect."""
    conversion = Conversion(source, target)
    array = numbered(shape)
    physical, expected = pack(array, source), pack(array, target)
    assert np.array_equal(conversion.apply(physical, shape), expected), f"{source} to {target}"
    steps = conversion.steps(shape)
    ends = [source.physical_shape(shape), *(step.after for step in steps)]
    assert [step.before for step in steps] == ends[:-1]
    assert ends[-1] == target.physical_shape(shape)
    assert all(isinstance(step, Transpose) or step.before != step.after for step in steps)
    assert all(type(left) is not type(right) for left, right in pairwise(steps))
    assert sum(not isinstance(step, Reshape) for step in steps) <= 5


@st.composite
def formats(draw: Callable, rank: int | None = None, blocks: int = 3) -> Format:
    rank = draw(st.integers(0, 4)) if rank is None else rank
    parts = [Part(axis) for axis in draw(st.permutations(range(rank)))]
    reach = [1] * rank
    for _ in range(draw(st.integers(0, blocks)) if rank else 0):
        axis, block = draw(st.integers(0, rank - 1)), draw(st.sampled_from((1, 2, 3, 4, 6)))
        parts.insert(draw(st.integers(0, len(parts))), Part(axis, block, reach[axis]))
        reach[axis] *= block
    return Format(tuple(parts))


def shapes(rank: int, least: int = 0) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*[st.sampled_from(range(least, 10))] * rank)


@st.composite
def bound(draw: Callable, least: int = 0) -> tuple[Format, tuple[int, ...]]:
    fmt = draw(formats())
    return fmt, draw(shapes(fmt.rank, least))


@given(bound())
def test_names_packing_and_offsets_agree(case: tuple[Format, tuple[int, ...]]) -> None:
    check_format(*case)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_packs(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    fmt, shape = Format.parse("NCHW4c"), (1, 3, 2, 2)
    values = np.random.default_rng(0).integers(0, 2, shape)
    array = values.astype("U3").astype(object) if kind.hasobject else values.astype(kind)
    physical = pack(array, fmt)
    assert physical.dtype == kind
    assert unpack(physical, fmt, shape).tobytes() == array.tobytes()
    padding = physical[..., 3].ravel()
    assert set(padding) == {""} if kind.hasobject else not any(padding.tobytes())


def test_what_does_not_move_is_not_copied() -> None:
    array = numbered((2, 3))
    assert np.shares_memory(pack(array, Format.canonical(2)), array)
    assert np.shares_memory(unpack(array, Format.canonical(2), (2, 3)), array)


@given(bound(least=1))
def test_offsets_are_inverted(case: tuple[Format, tuple[int, ...]]) -> None:
    fmt, shape = case
    layout = Layout(fmt, shape)
    offsets = layout.offset(*np.indices(shape))
    assert np.unique(offsets).size == layout.size == math.prod(shape)
    assert all(map(np.array_equal, layout.decode(offsets)[0], np.indices(shape)))
    everywhere = np.arange(-2, layout.capacity + 2)
    assert np.array_equal(layout.decode(everywhere)[1], np.isin(everywhere, offsets))


@given(st.data())
def test_keys_are_equal_exactly_if_the_bytes_are(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 3))
    shape = data.draw(st.tuples(*[st.sampled_from((0, 1, 1, 2, 3, 4, 8))] * rank))
    one, other = data.draw(formats(rank, 2)), data.draw(formats(rank, 2))
    same = np.array_equal(pack(numbered(shape), one).ravel(), pack(numbered(shape), other).ravel())
    assert (one.key(shape) == other.key(shape)) == same, f"the keys of {one} and {other} contradict their bytes"


def test_keys_of_small_formats_are_exact() -> None:
    """All formats of two axes with up to two blocks of 2, against all others, at all small shapes."""
    blocks = [Part(0, 2), Part(1, 2)]
    family = set()
    for count in range(3):
        for extra, order in product(product(blocks, repeat=count), ((0, 1), (1, 0))):
            for places in product(range(5), repeat=count):
                parts = [Part(axis) for axis in order]
                reach = [1, 1]
                for part, place in zip(extra, places, strict=True):
                    parts.insert(place, Part(part.axis, part.block, reach[part.axis]))
                    reach[part.axis] *= part.block
                family.add(Format(tuple(parts)))
    for shape in product(range(1, 6), repeat=2):
        bytes_of = {fmt: pack(numbered(shape), fmt).tobytes() for fmt in family}
        classes = {(fmt.key(shape), bytes_of[fmt]) for fmt in family}
        assert len(classes) == len({key for key, _ in classes}) == len(set(bytes_of.values()))


@given(bound(), st.data())
def test_relabelling_is_a_transpose_of_the_same_bytes(
    case: tuple[Format, tuple[int, ...]], data: st.DataObject
) -> None:
    fmt, shape = case
    perm = data.draw(st.permutations(range(fmt.rank)))
    array = numbered(shape)
    assert np.array_equal(pack(array.transpose(perm), fmt.propagate_transpose(perm)), pack(array, fmt))


@given(bound(least=1), st.data())
def test_restriction_is_what_the_other_axes_leave(case: tuple[Format, tuple[int, ...]], data: st.DataObject) -> None:
    fmt, shape = case
    axes = sorted(data.draw(st.sets(st.sampled_from(range(fmt.rank))))) if fmt.rank else []
    plain = fmt.without_blocks(set(range(fmt.rank)) - set(axes))
    single = tuple(dim if axis in axes else 1 for axis, dim in enumerate(shape))
    kept = tuple(shape[axis] for axis in axes)
    inside = pack(numbered(kept), fmt.restrict(axes)).ravel()
    assert np.array_equal(pack(numbered(single), plain).ravel(), inside)


@given(formats(), st.data())
def test_blocked_axes_need_known_extents(fmt: Format, data: st.DataObject) -> None:
    shape = as_shape(data.draw(st.sampled_from((5, f"d{axis}"))) for axis in range(fmt.rank))
    fits = all(isinstance(shape[axis], int) for axis in fmt.blocked_axes)
    assert fmt.fits(shape) == fits
    if fits:
        assert [dim for dim in fmt.physical_shape(shape) if isinstance(dim, Extent)] == [
            shape[axis] for axis in fmt.order if isinstance(shape[axis], Extent)
        ]
    else:
        with pytest.raises(FormatError):
            fmt.key(shape)


@st.composite
def conversions(draw: Callable) -> tuple[Conversion, tuple[int, ...]]:
    src = draw(formats())
    return Conversion(src, draw(formats(src.rank))), draw(shapes(src.rank))


@given(conversions())
def test_steps_do_what_packing_again_does(case: tuple[Conversion, tuple[int, ...]]) -> None:
    conversion, shape = case
    check_conversion(conversion.src, conversion.dst, shape)


@given(conversions())
def test_new_padding_is_zero_whatever_the_old_padding_held(case: tuple[Conversion, tuple[int, ...]]) -> None:
    conversion, shape = case
    assume(not conversion.is_identity(shape))
    src, dst = conversion.src.padded_shape(shape), static_shape(conversion.dst.padded_shape(shape))
    clean = pack(numbered(shape), conversion.src)
    result = conversion.apply(np.where(clean == 0, -1, clean), shape)
    assert np.array_equal(unpack(result, conversion.dst, shape), numbered(shape))
    whole = unpack(result, conversion.dst, dst)
    for axis, dim in enumerate(shape):
        if src[axis] != dst[axis]:
            assert not np.any(np.moveaxis(whole, axis, 0)[dim:])


@given(conversions())
def test_what_does_not_move_takes_at_most_a_reshape(case: tuple[Conversion, tuple[int, ...]]) -> None:
    conversion, shape = case
    if conversion.is_identity(shape):
        assert not any(isinstance(step, Transpose) for step in conversion.steps(shape))
        assert len(conversion.steps(shape)) == (
            conversion.src.physical_shape(shape) != conversion.dst.physical_shape(shape)
        )


@given(conversions(), st.data())
def test_conversions_compose(case: tuple[Conversion, tuple[int, ...]], data: st.DataObject) -> None:
    first, shape = case
    second = Conversion(first.dst, data.draw(formats(first.src.rank)))
    physical = pack(numbered(shape), first.src)
    there = second.apply(first.apply(physical, shape), shape)
    assert np.array_equal(Conversion(first.src, second.dst).apply(physical, shape), there)


@given(conversions(), st.data())
def test_steps_for_symbolic_extents_hold_for_every_value(
    case: tuple[Conversion, tuple[int, ...]], data: st.DataObject
) -> None:
    conversion, shape = case
    free = set(range(len(shape))) - {*conversion.src.blocked_axes, *conversion.dst.blocked_axes}
    symbolic = as_shape(
        f"d{axis}" if axis in free and data.draw(st.booleans()) else dim for axis, dim in enumerate(shape)
    )
    values = dict(zip(symbolic, shape, strict=True))
    array = pack(numbered(shape), conversion.src)
    for step in conversion.steps(symbolic):
        after = tuple(dim if isinstance(dim, int) else values[dim] for dim in step.after)
        array = run(replace(step, after=after), array)
    assert np.array_equal(array, pack(numbered(shape), conversion.dst))


PARSE = Format.parse


@st.composite
def cut(draw: Callable, primes: list[int]) -> tuple[int, ...]:
    """A shape whose row-major elements are numbered by these factors, with some axes of extent 1."""
    shape = [1]
    for prime in primes:
        if draw(st.booleans()):
            shape.append(1)
        shape[-1] *= prime
    for _ in range(draw(st.integers(0, 1))):
        shape.insert(draw(st.integers(0, len(shape))), 1)
    return tuple(shape)


@st.composite
def reshapes(draw: Callable) -> tuple[Format, tuple[int, ...], tuple[int, ...]]:
    primes = draw(st.lists(st.sampled_from((2, 3)), max_size=6))
    before, after = (draw(cut(primes)), draw(cut(draw(st.permutations(primes)) if draw(st.booleans()) else primes)))
    return draw(formats(len(before), 2)), before, after


@given(reshapes())
@example((PARSE("NCHW16c"), (2, 64, 3, 3), (2, 4, 16, 3, 3)))
@example((PARSE("NCHW16c"), (2, 17, 3, 3), (2, 17, 9)))
@example((PARSE("NHWC"), (2, 6, 4, 4), (2, 6, 16)))
@example((Format.plain((0, 1, 3, 4, 2)), (2, 4, 16, 3, 3), (2, 64, 3, 3)))
@example((Format.plain((0, 1, 3, 2)), (2, 4, 6, 5), (8, 6, 5)))
def test_a_carried_format_reads_the_same_bytes(case: tuple[Format, tuple[int, ...], tuple[int, ...]]) -> None:
    fmt, before, after = case
    carried = propagate_reshape(fmt, before, after)
    array = numbered(before)
    if carried is not None:
        assert np.array_equal(pack(array.reshape(after), carried).ravel(), pack(array, fmt).ravel())
    if fmt.is_canonical:
        assert carried is not None and carried.is_canonical


@given(reshapes())
def test_carrying_back_gives_the_same_bytes(case: tuple[Format, tuple[int, ...], tuple[int, ...]]) -> None:
    fmt, before, after = case
    carried = propagate_reshape(fmt, before, after)
    back = propagate_reshape(carried, after, before) if carried else None
    assert back is None or back.key(before) == fmt.key(before)


@given(st.data())
def test_a_split_of_a_plain_format_is_always_carried_and_merged_again(data: st.DataObject) -> None:
    factors = [data.draw(st.lists(st.sampled_from((2, 3)), min_size=1, max_size=3)) for _ in range(3)]
    before = tuple(int(np.prod(group)) for group in factors)
    after = tuple(factor for group in factors for factor in group)
    fmt = data.draw(formats(3, 0))
    split = propagate_reshape(fmt, before, after)
    assert propagate_reshape(split, after, before) == fmt


BLOCK_DTYPES = ("float16", "int8", "int4")
"""They say what C0 is: 16, 32, 64."""

SHAPES = {
    "maps of 1 axis": ((2, 17, 3), (1, 32, 5)),
    "maps of 2 axes": ((2, 33, 3, 2), (3, 7, 1, 5), (1, 64, 2, 2)),
    "maps of 3 axes": ((2, 17, 2, 1, 3), (1, 32, 3, 2, 2)),
    "filters": ((5, 7, 3, 1), (33, 17, 1, 2), (16, 32, 2, 2)),
    "filters of groups": ((9, 3, 5, 1, 2), (2, 8, 16, 2, 1)),
    "filters of 3 axes": ((17, 5, 1, 3, 2), (16, 32, 2, 1, 1)),
    "matrices": ((17, 33), (5, 70), (32, 64)),
}
_LEVEL = re.compile(r"([A-Z])|([0-9]+)([a-z])")


def kind(entry: Entry) -> str:
    """The kind of tensors that a named format describes."""
    letters, rank = entry.axes, len(entry.axes)
    if set(letters) <= set("MNK"):
        return "matrices"
    if letters[0] == "N":
        return f"maps of {rank - 2} {'axis' if rank == 3 else 'axes'}"
    return "filters" if rank == 4 else "filters of groups" if letters[0] == "G" else "filters of 3 axes"


@cache
def named_formats(of: str) -> tuple[Format, ...]:
    """The formats that tensors of a kind may have, each once."""
    named = (entry for entry in entries() if kind(entry) == of)
    return tuple(dict.fromkeys(entry.format(dtype) for entry in named for dtype in BLOCK_DTYPES))


def reference(notation: str, axes: str, shape: tuple[int, ...], index: tuple[int, ...]) -> int:
    """The offset of an element: a number in mixed radix, whose digits are the levels from left to right."""
    levels = [(upper or lower.upper(), int(block or 0)) for upper, block, lower in _LEVEL.findall(notation)]
    offset = 0
    for place, (letter, block) in enumerate(levels):
        axis = axes.index(letter)
        inner = math.prod(each for other, each in levels[place + 1 :] if other == letter and each)
        extent = block or math.ceil(shape[axis] / inner)
        offset = offset * extent + index[axis] // inner % extent
    return offset


def test_every_name_is_of_a_kind() -> None:
    assert {kind(entry) for entry in entries()} == set(SHAPES)


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: f"{entry.system}-{entry.name}")
def test_offsets_of_named_formats(entry: Entry) -> None:
    assert lookup(entry.name, "int8") == lookup(entry.name, "int8", entry.axes) == entry.format("int8")
    assert entry.system in entry.source
    for dtype, shape in product(BLOCK_DTYPES if "{C0}" in entry.notation else BLOCK_DTYPES[:1], SHAPES[kind(entry)]):
        format = entry.format(dtype)
        layout = Layout(format, shape)
        offsets = np.asarray(layout.offset(*np.indices(shape)))
        c0 = {"float16": "16", "int8": "32", "int4": "64"}[dtype]
        for index in np.ndindex(shape):
            assert offsets[index] == reference(entry.notation.replace("{C0}", c0), entry.axes, shape, index)
        assert np.array_equal(pack(numbered(shape), format).ravel()[offsets], numbered(shape))


def emitted(source: Format, shape: tuple[int, ...], targets: tuple[Format, ...]) -> list[np.ndarray]:
    """The tensor in every other format, converted by onnxruntime with one model that has a cast to each."""
    graph = Graph("casts", {"": 17})
    value = graph.new_value("x", TensorType(DType.INT64, shape), storage=Storage(source))
    graph.inputs = [value]
    graph.outputs = [insert_cast(graph, value, Storage(format)) for format in targets]
    graph.stage = "cast"
    model = to_bytes(emit(lower(graph, "functions")))
    session = inference_session(model)
    return list(session.run(None, {session.get_inputs()[0].name: pack(numbered(shape), source)}))


@pytest.mark.parametrize("step", tiered([8, 1], 1))
@pytest.mark.parametrize(("of", "shape"), [(of, shape) for of in SHAPES for shape in SHAPES[of]], ids=str)
def test_every_pair_of_formats_converts_alike(of: str, shape: tuple[int, ...], step: int) -> None:
    """From every format, in the quick tier to every eighth other one, which differ by source and by shape."""
    array, step = numbered(shape), min(step, len(named_formats(of)) - 1)
    for number, source in enumerate(named_formats(of)):
        memory = pack(array, source)
        assert np.array_equal(unpack(memory, source, shape), array)
        first = (number + SHAPES[of].index(shape)) % step
        others = tuple(format for format in named_formats(of) if format != source)[first::step]
        for target, stored in zip(others, emitted(source, shape, others), strict=True):
            expected = pack(unpack(memory, source, shape), target)
            assert np.array_equal(Conversion(source, target).apply(memory, shape), expected), f"{source} to {target}"
            assert np.array_equal(stored, expected), f"{source} to {target}"


# Laws of symbolic extents: they evaluate to the computed numbers at all sizes, and parsing inverts printing.


NAMES = ("H", "W", "?1", "'a b'")
Meaning = Callable[[Mapping[str, int]], int]


@st.composite
def computed(draw: st.DrawFn, depth: int = 3) -> tuple[Extent, Meaning]:
    """An extent, and a function that computes it from sizes with Python's integers."""
    if not depth or draw(st.integers(0, 3)) == 0:
        name = draw(st.sampled_from((*NAMES, "")))
        if name:
            return parse_extent(name), lambda sizes: sizes[name]
        number = draw(st.integers(-5, 9))
        return Extent.of(number), lambda sizes: number
    (one, f), (two, g) = draw(computed(depth - 1)), draw(computed(depth - 1))
    divisor = draw(st.integers(1, 9))
    return draw(
        st.sampled_from(
            (
                (one + two, lambda sizes: f(sizes) + g(sizes)),
                (one - two, lambda sizes: f(sizes) - g(sizes)),
                (one * two, lambda sizes: f(sizes) * g(sizes)),
                (one // divisor, lambda sizes: f(sizes) // divisor),
                (one % divisor, lambda sizes: f(sizes) % divisor),
            )
        )
    )


SIZES = st.fixed_dictionaries({name: st.integers(1, 50) for name in NAMES})


@given(computed(), SIZES)
def test_an_extent_is_the_number_that_it_says(pair: tuple[Extent, Meaning], sizes: Mapping[str, int]) -> None:
    extent, meaning = pair
    assert extent.at(sizes) == meaning(sizes)
    assert extent.names <= set(NAMES)
    assert extent.number is None or extent.number == meaning(sizes)


@given(computed(), SIZES)
def test_it_is_never_below_its_least(pair: tuple[Extent, Meaning], sizes: Mapping[str, int]) -> None:
    extent, meaning = pair
    for low in (extent.low(), extent.low({"H": sizes["H"]}, 1)):
        assert low is None or meaning(sizes) >= low


@given(computed())
def test_it_reads_back_as_it_is_written(pair: tuple[Extent, Meaning]) -> None:
    extent, _ = pair
    assert parse_extent(str(extent)) == extent
    assert Extent.of(extent.dim) == extent


@given(computed())
def test_it_is_the_product_of_its_factors(pair: tuple[Extent, Meaning]) -> None:
    extent, _ = pair
    number, factors = extent.factors
    assert product_of((number, *map(Extent.of_atom, factors))) == extent.dim
    assert volume((extent.dim,)) == (number, factors) or not number


@given(computed(2), computed(2), SIZES)
def test_what_was_multiplied_comes_out_of_a_quotient(
    pair: tuple[Extent, Meaning], other: tuple[Extent, Meaning], sizes: Mapping[str, int]
) -> None:
    extent, divisor = pair[0], other[0]
    low = divisor.low({}, 1)
    assume(low is not None and low > 0 and "?1" not in divisor.names)
    assert (extent * divisor // divisor).at(sizes) == extent.at(sizes)
    assert extent - extent == Extent.of(0)


def test_quotients_have_one_normal_form() -> None:
    height = parse_extent("H")

    def window(size: Extent, kernel: int, stride: int, pads: int) -> Extent:
        return (size + (pads - kernel)) // stride + 1

    assert str(window(height, 3, 1, 2)) == "H"
    quarter = window(height, 7, 4, 6)
    assert str(quarter) == "(H+3)//4"
    assert str(window(window(quarter, 3, 2, 2), 3, 2, 2)) == "(H+15)//16"
    whole = height + -(height % 7) % 7  # padded to a multiple of 7
    assert str(whole) == "7*((H+6)//7)"
    assert whole // 7 * 7 == whole
    assert -(-height // 7) == (height + 6) // 7


def test_products_keep_their_factors() -> None:
    assert volume(as_shape(("N", "H*W", 4))) == volume(as_shape((2, "W", "N*H", 2))) == (4, ("H", "N", "W"))
    assert volume(as_shape(("N*((H+3)//4)", 2))) == volume(as_shape((2, "(H+3)//4", "N")))
    assert str(product_of(as_shape(("N", 3, "H+1", "N")))) == "3*(H+1)*N*N"
    assert parse_extent("6*N*(H+1)") // parse_extent("2*N") == parse_extent("3*H+3")
    assert product_of(as_shape((0, "N"))) == 0


def test_a_symbolic_extent_of_a_shape_has_no_value() -> None:
    """Numbers are numbers however they are written, and equal extents are one key."""
    assert as_shape((3, "2+1", parse_extent("H") // parse_extent("H"), "W*H")) == (3, 3, 1, parse_extent("H*W"))
    assert int(parse_extent("7")) == 7
    with pytest.raises(FormatError, match="H is symbolic"):
        int(parse_extent("H"))
    window = (parse_extent("H") + 3) // 4
    assert pickle.loads(pickle.dumps(window)) == copy.deepcopy(window) == window == parse_extent("(H+3)//4")
    assert {window: "found"}[parse_extent("(3+H)//4")] == "found"


def test_names_of_any_kind_are_names() -> None:
    for name in ("batch", "past + 1", "it's", "", "3d", "a*b", "(x)", "input.1"):
        assert unquoted(quoted(name)) == name
        assert parse_extent(quoted(name)).names == {quoted(name)}
        assert str(parse_extent(quoted(name))) == quoted(name)
    assert unquoted("H*W") is None
    assert is_unknown("?3") and is_unknown(quoted("?x y[0]")) and not is_unknown("N") and not is_unknown(3)


@pytest.mark.parametrize("text", ["", "H*", "(H", "H)", "H**2", "H/2", "past + 1 days", "'open"])
def test_what_is_no_extent_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        parse_extent(text)


# --- names, known conversions and reshapes, and error messages -------------------------------------------


@pytest.mark.parametrize(
    ("name", "spelling"),
    [
        ("Channels_Last", "NHWC"),
        ("aBcd16b", "NCHW16c"),
        ("OIhw4i16o4i", "OIHW4i16o4i"),
        ("gOIhw16i16o", "GOIHW16i16o"),
        ("TensorNCxHWx<16>", "NCHW16c"),
        ("NZ", "NM16m32n"),
        ("nZ", "MN16n32m"),
    ],
)
def test_names_of_many_systems(name: str, spelling: str) -> None:
    assert lookup(name, "int8") == PARSE(spelling)


@pytest.mark.parametrize(
    ("text", "axes", "parts"),
    [("NHWC", None, (0, 2, 3, 1)), ("L", None, (0,)), ("BSD", "BSD", (0, 1, 2)), ("scalar", None, ())],
)
def test_letters_are_only_for_people(text: str, axes: str | None, parts: tuple[int, ...]) -> None:
    assert PARSE(text, axes) == Format.plain(parts)


def kinds(src: str, dst: str, shape: Shape) -> str:
    conversion = Conversion(PARSE(src), PARSE(dst))
    return " ".join(type(step).__name__ for step in conversion.steps(shape))


@pytest.mark.parametrize(
    ("src", "dst", "shape", "expected"),
    [
        ("NCHW", "NHWC", (2, 3, 1, 1), "Reshape"),
        ("NCHW", "NCHW16c", (2, 32, 4, 5), "Reshape Transpose"),
        ("NCHW", "NCHW16c", ("N", 17, "H", "W"), "Pad Reshape Transpose"),
        ("NCHW16c", "NCHW", (2, 32, 4, 5), "Transpose Reshape"),
        ("NCHW16c", "NHWC", ("N", 17, "H", "W"), "Transpose Reshape Slice"),
        ("NCHW16c", "NCHW8c", (2, 32, 4, 5), "Reshape Transpose Reshape"),
        ("NCHW8c", "NCHW16c", (2, 8, 4, 5), "Reshape Pad Reshape"),
        ("NCHW16c", "NHCW16c", ("N", 17, "H", "W"), "Transpose"),
        ("NCHW12c", "NCHW16c", (2, 48, 4, 5), "Transpose Reshape Transpose"),
        ("NCHW16c", "NCHW8c", (2, 17, 4, 5), "Transpose Reshape Slice Pad Reshape Transpose"),
    ],
)
def test_chains_are_short(src: str, dst: str, shape: tuple[int | str, ...], expected: str) -> None:
    assert kinds(src, dst, as_shape(shape)) == expected


@pytest.mark.parametrize(
    ("fmt", "before", "after", "expected"),
    [
        ("NCHW16c", (2, 64, 5, 5), (2, 4, 16, 5, 5), "ABDEC"),  # channel shuffle: split into groups
        ("NHWC", ("N", 64, "H", "W"), ("N", 64, "H*W"), "NWC"),
        ("NHWC", ("N", 64, 1, 1), ("N", 64), "MN"),
        ("NHWC", ("N", 64, 7, 7), ("N", 3136), "M49nN"),  # the minor digit first
        ("NHWC", ("N", 64, "H", "W"), ("N", "K"), None),  # whose extent has to be known
        ("NCHW16c", ("N", 17, 8, 4), ("N", 17, 32), "NCW16c"),  # padding elements move with their axis
        ("NCHW16c", (1, 17, 8, 4), (1, 17 * 32), None),  # and cannot be merged into another
        ("ACBD", ("B", 12, "S", 64), ("B", 768, "S"), None),  # rows of heads, cut across a symbolic axis
        ("NWC", ("B", "S", 768), ("B", "S", 12, 64), "ACDB"),
        ("NM", (6, 5), ("one", 6, 5), "NWC"),  # a symbol that can only be 1
        ("ADECB", (2, 4, 16, 5, 5), (2, 64, 5, 5), "NHW16cC"),  # channel shuffle: groups innermost
        ("CBAD", (2, 3, 5, 7), (30, 7), "5_1m3_5mMN"),  # all digits the other way round
        ("NWC", (4, 6, 5), (8, 5, 3), None),  # 6 and 5 against 5 and 3: no common cuts
        ("CHWN", (5, "N", 1, 4), (5, "N", 1), None),  # a Reshape at no size
    ],
)
def test_carried_formats(
    fmt: str, before: tuple[int | str, ...], after: tuple[int | str, ...], expected: str | None
) -> None:
    carried = propagate_reshape(PARSE(fmt), as_shape(before), as_shape(after))
    assert carried == (PARSE(expected) if expected else None)


def refusals() -> dict[str, object]:
    nchw16c, matrix = PARSE("NCHW16c"), Format.canonical(2)
    return {
        "unknown letters": lambda: PARSE("NCXW"),
        "no grammar": lambda: PARSE("N-C"),
        "axis missing": lambda: PARSE("NHW", "NCHW"),
        "blocks that overlap": lambda: Format((Part(0), Part(0, 4, 2), Part(0, 4))),
        "block of no axis": lambda: Format((Part(0), Part(1, 4))),
        "wrong rank": lambda: nchw16c.physical_shape((1, 2, 3)),
        "symbolic block": lambda: nchw16c.physical_shape(as_shape((1, "C", 3, 3))),
        "no permutation": lambda: matrix.propagate_transpose((0, 0)),
        "unknown name": lambda: lookup("NCHWC5"),
        "no dtype": lambda: lookup("NC1HWC0"),
        "no matrix": lambda: fractal_nz(1),
        "wrong memory": lambda: Conversion(matrix, PARSE("NM")).apply(np.zeros((3, 2)), (2, 3)),
        "elements lost": lambda: propagate_reshape(matrix, (2, 3), (7,)),
        "outside": lambda: Layout(matrix, (2, 3)).offset(2, 0),
    }


@pytest.mark.parametrize("case", refusals())
def test_errors_are_one_line(case: str) -> None:
    with pytest.raises(FormatError) as refusal:
        refusals()[case]()
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 160


def test_a_near_miss_is_named() -> None:
    with pytest.raises(FormatError, match=r"did you mean FRACTAL_NZ\?"):
        lookup("FRACTL_NZ")
