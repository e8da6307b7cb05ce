"""MegEngine's formats, kernels and choices equal those of its sources (tests/published/megengine.json)."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from layoutopt.cost_models import load_target
from layoutopt.cost_models.spec import KernelSpec, expand
from layoutopt.formats import Format, lookup
from layoutopt.ir.types import DType

ROOT = Path(__file__).parents[2]
PUBLISHED = json.loads((ROOT / "tests" / "published" / "megengine.json").read_text())
DIMENSIONS: dict[str, list[str]] = dict(PUBLISHED["tensor_formats"])
GPUS = ("gpu-turing", "gpu-ampere", "gpu-hopper")
CPUS = (str(ROOT / "examples" / "neon_blocks.toml"), "cpu-avx2")


# --- formats ------------------------------------------------------------------------------------------------


def named_format(name: str) -> Format:
    """The format with the digits of the named dimensions `C`, `C//4` and `C%4`; `C%1` is an axis of extent 1."""
    digits, ones = "", iter("AB")
    for dimension in DIMENSIONS[name]:
        letter, _, block = dimension.partition("%")
        digits += next(ones) if block == "1" else f"{block}{letter.lower()}" if block else letter[0]
    return Format.parse(digits, "".join(sorted({*filter(str.isupper, digits)}, key="GNKCABHWRS".index)))


@pytest.mark.parametrize("name", DIMENSIONS)
def test_formats_have_the_named_dimensions(name: str) -> None:
    """The offsets of every format in the catalogue are those of its digits: laws/test_format_laws.py."""
    assert lookup(name) == named_format(name)


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
