"""Every format that has a name: its offsets, and the conversion to every other format of the same tensor, in three ways.

offsets        the digits of the notation, read from left to right, at every index
numpy          unpack, then pack
the chain      the steps of `Conversion`, run one after the other
ONNX           the body of the CastData that the dialect `functions` emits, run in onnxruntime
"""

import math
import re
from functools import cache
from itertools import product

import numpy as np
import onnxruntime
import pytest

from layoutopt.formats import Conversion, Entry, Format, Layout, entries, pack, unpack
from layoutopt.ir.graph import Graph, insert_cast
from layoutopt.ir.types import DType, Storage, TensorType
from layoutopt.onnx_io import emit, to_bytes
from layoutopt.testing.rules import lower

DTYPES = ("float16", "int8", "int4")
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
def formats(of: str) -> tuple[Format, ...]:
    """The formats that tensors of a kind may have, each once."""
    named = (entry for entry in entries() if kind(entry) == of)
    return tuple(dict.fromkeys(entry.format(dtype) for entry in named for dtype in DTYPES))


def numbered(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(1, 1 + math.prod(shape), dtype=np.int32).reshape(shape)


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
def test_offsets(entry: Entry) -> None:
    for dtype, shape in product(DTYPES if "{C0}" in entry.notation else DTYPES[:1], SHAPES[kind(entry)]):
        format = entry.format(dtype)
        layout = Layout.packed(format, shape)
        offsets = np.asarray(layout.offset(*np.indices(shape)))
        c0 = {"float16": "16", "int8": "32", "int4": "64"}[dtype]
        for index in np.ndindex(shape):
            assert offsets[index] == reference(entry.notation.replace("{C0}", c0), entry.axes, shape, index)
        assert np.array_equal(pack(numbered(shape), format).ravel()[offsets], numbered(shape))


def emitted(source: Format, shape: tuple[int, ...], targets: tuple[Format, ...]) -> list[np.ndarray]:
    """The tensor in every other format, converted by onnxruntime with one model that has a cast to each."""
    graph = Graph("casts", {"": 17})
    value = graph.new_value("x", TensorType(DType.INT32, shape), storage=Storage(source))
    graph.inputs = [value]
    graph.outputs = [insert_cast(graph, value, Storage(format)) for format in targets]
    graph.stage = "cast"
    model = to_bytes(emit(lower(graph, "functions")))
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return list(session.run(None, {session.get_inputs()[0].name: pack(numbered(shape), source)}))


@pytest.mark.parametrize(("of", "shape"), [(of, shape) for of in SHAPES for shape in SHAPES[of]], ids=str)
def test_every_pair_of_formats_converts_alike(of: str, shape: tuple[int, ...]) -> None:
    array = numbered(shape)
    for source in formats(of):
        memory = pack(array, source)
        assert np.array_equal(unpack(memory, source, shape), array)
        others = tuple(format for format in formats(of) if format != source)
        for target, run in zip(others, emitted(source, shape, others), strict=True):
            expected = pack(unpack(memory, source, shape), target)
            assert np.array_equal(Conversion(source, target).apply(memory, shape), expected), f"{source} to {target}"
            assert np.array_equal(run, expected), f"{source} to {target}"
