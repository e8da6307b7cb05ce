"""MegEngine's formats, kernels and choices equal those of its sources (tests/published/megengine.json)."""

import importlib.util
import json
import math
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from layoutopt.cost_models import load_target
from layoutopt.cost_models.spec import KernelSpec, expand
from layoutopt.formats import Layout, lookup
from layoutopt.ir.types import DType

ROOT = Path(__file__).parents[2]
PUBLISHED = json.loads((ROOT / "tests" / "published" / "megengine.json").read_text())
DIMENSIONS: dict[str, list[str]] = dict(PUBLISHED["tensor_formats"])
GPUS = ("gpu-turing", "gpu-ampere", "gpu-hopper")
CPUS = (str(ROOT / "examples" / "neon_blocks.toml"), "cpu-avx2")


# --- formats ------------------------------------------------------------------------------------------------


def axes(name: str) -> str:
    """The axes of the tensor: those of ONNX, one of 1 for each `C%1` behind the C of a depthwise filter."""
    if ones := DIMENSIONS[name].count("C%1"):
        return "C" + "1" * ones + "RS"
    letters = {dimension[0] for dimension in DIMENSIONS[name]}
    return "".join(sorted(letters, key="GNKCHWRS".index))


def digit(dimension: str, extent: int, index: int) -> tuple[int, int]:
    """Extent and coordinate of a named dimension `C`, `C//4` or `C%4`."""
    if "//" in dimension:
        block = int(dimension.split("//")[1])
        return math.ceil(extent / block), index // block
    if "%" in dimension:
        block = int(dimension.split("%")[1])
        return block, index % block
    return extent, index


def reference(name: str, shape: tuple[int, ...], index: tuple[int, ...]) -> int:
    """The row-major offset in the named dimensions, digit by digit."""
    letters, offset = axes(name), 0
    for dimension in DIMENSIONS[name]:
        axis = letters.index(dimension[0])
        extent, place = digit(dimension, shape[axis], index[axis])
        offset = offset * extent + place
    return offset


def shapes(name: str) -> list[tuple[int, ...]]:
    letters = axes(name)
    rows = [
        {"N": 2, "K": 5, "C": 7, "H": 3, "W": 2, "R": 3, "S": 2, "G": 2},
        {"N": 3, "K": 9, "C": 33, "H": 1, "W": 5, "R": 1, "S": 3, "G": 3},
        {"N": 1, "K": 4, "C": 64, "H": 2, "W": 2, "R": 2, "S": 1, "G": 1},
        {"N": 2, "K": 1, "C": 65, "H": 2, "W": 1, "R": 3, "S": 3, "G": 5},
        {"N": 5, "K": 8, "C": 1, "H": 3, "W": 3, "R": 1, "S": 1, "G": 2},
    ]
    return [tuple(row.get(letter, 1) for letter in letters) for row in rows]


@pytest.mark.parametrize("name", DIMENSIONS)
def test_every_offset_is_that_of_the_named_dimensions(name: str) -> None:
    format = lookup(name)
    for shape in shapes(name):
        layout = Layout.packed(format, shape)
        indices = list(product(*map(range, shape)))
        assert [layout.offset(*index) for index in indices] == [reference(name, shape, index) for index in indices]
        extents = [digit(each, shape[axes(name).index(each[0])], 0)[0] for each in DIMENSIONS[name]]
        assert layout.capacity == math.prod(extents)


def test_formats_of_operators() -> None:
    for operator, tensor in PUBLISHED["operators"].items():
        assert lookup(operator) == lookup(tensor)


# --- kernels ------------------------------------------------------------------------------------------------


def takes(kernel: KernelSpec, block: int, x: str, y: str, source: str, result: str) -> bool:
    """Whether a kernel reads images in format x and writes them in format y, in these element types."""
    if "convolution" not in kernel.family or source not in kernel.dtypes or not kernel.formats:
        return False
    formats = [expand(kernel.formats[role], 4, block) for role in "xy"]
    return formats == [lookup(x), lookup(y)] and (kernel.results is None or result in kernel.results)


@pytest.mark.parametrize("row", PUBLISHED["kernels"], ids=lambda row: row[0])
def test_every_kernel_is_a_row_of_some_target(row: list[Any]) -> None:
    """Every published kernel is in a target, except integer kernels on Arm, which are channels-last in onnxruntime."""
    _, where, x, _, y, types = row
    specs = [load_target(target).spec for target in (GPUS if where == "cuda" else CPUS)]
    for source, result in types:
        if where == "cuda" or source == "float32":
            rows = ((kernel, spec.block(DType[source.upper()])) for spec in specs for kernel in spec.kernel)
            assert any(takes(kernel, block, x, y, source, result) for kernel, block in rows), f"{source} to {result}"


# --- what is chosen -----------------------------------------------------------------------------------------


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generations", ROOT / "benchmarks" / "generations.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("dtype", "shape", "target", "end", "formats"),
    [
        ("int8", (1, 64, 64, 28), "gpu-turing", "integers", "NCHW32 NCHW32 NCHW32"),
        ("int8", (1, 64, 64, 28), "gpu-ampere", "integers", "NHWC NHWC NHWC"),
        ("int8", (1, 3, 64, 56), "gpu-turing", "integers", "NCHW4 NCHW32 NCHW32"),
        ("int8", (8, 24, 8, 56), "gpu-turing", "integers", "NCHW32 NCHW4 NCHW4|NHWC"),
        ("int8", (8, 12, 12, 56), "gpu-turing", "sums", "NCHW4 NCHW4 NCHW"),
        ("int8", (32, 16, 16, 28), "gpu-turing", "integers", "CHWN4|NHWC CHWN4|NHWC CHWN4|NHWC"),
        ("int4", (1, 64, 64, 28), "gpu-turing", "integers", "NCHW64 NCHW64 NCHW64"),
        ("int4", (1, 32, 32, 28), "gpu-turing", "integers", "NHWC NHWC NHWC"),
    ],
)
def test_formats_by_element_type_and_generation(
    dtype: str, shape: tuple[int, int, int, int], target: str, end: str, formats: str
) -> None:
    """The formats before, between and behind two convolutions are MegEngine's; `|` separates formats of equal price."""
    generations = script()
    model = generations.convolutions(dtype, shape, rounded=end == "integers")
    for got, names in zip(generations.chosen(model, target), formats.split(), strict=True):
        assert got in [str(lookup(name)) for name in names.split("|")]
