"""Target files: templates of formats, files of users, and the errors for malformed ones."""

import re
from pathlib import Path

import pytest
from target_errors import message

from layoutopt.cost_models import TargetSpec, load_target
from layoutopt.cost_models.spec import KernelSpec, check, expand
from layoutopt.errors import FormatError, TargetError
from layoutopt.formats import Format
from layoutopt.ir.types import DType, Op, Storage, TensorType, Value
from layoutopt.ops import canonical_signature


@pytest.mark.parametrize(
    ("text", "rank", "expected", "axes"),
    [
        ("N*C", 4, "NHWC", "NCHW"),
        ("N*C", 2, "NC", "NC"),
        ("N*C", 5, "NDHWC", "NCDHW"),
        ("NC*{C0}c", 3, "NCW16c", "NCW"),
        ("NDC*{C0}c", 5, "NDCHW16c", "NCDHW"),
        ("NDC*{C0}c", 4, "NCHW16c", "NCHW"),
        ("NDC*{C0}c", 2, "NC16c", "NC"),
        ("NCHW4c", 4, "NCHW4c", "NCHW"),
        ("I*O16o{C0}i", 4, "IHWO16o16i", "OIHW"),
        ("*NM16m{C0}n", 2, "NM16m16n", "MN"),
        ("*NM16m{C0}n", 4, "ABNM16m16n", "ABMN"),
        ("N*C", 6, "NABEFC", "NCABEF"),
    ],
)
def test_templates(text: str, rank: int, expected: str, axes: str) -> None:
    assert expand(text, rank, 16) == Format.parse(expected, axes)


@pytest.mark.parametrize("text", ["", "nhwc", "N**C", "NC*16x", "NXC*", "NC*{C1}c", "NNC", "16cN*", "NC*4_8c"])
def test_bad_templates(text: str) -> None:
    with pytest.raises(FormatError):
        check(text)


# --- files of users -----------------------------------------------------------------------------------------


MINIMAL = """
family = "npu"
description = "a chip of ours"

[memory]
bandwidth = { value = 1e11, source = "datasheet" }
kernel_efficiency = { value = 0.8, source = "estimate: usual" }
plain_cast_efficiency = { value = 0.5, source = "estimate: usual" }
blocked_cast_efficiency = { value = 0.5, source = "estimate: usual" }

[launch]
overhead = { value = 0, source = "datasheet" }

[rates.vector]
float32 = { value = 1e12, source = "datasheet" }

[[kernel]]
family = "convolution"
dtypes = "float32"
formats = { x = "NC*8c", w = "OI*8i8o", y = "NC*8c" }
unit = "vector"
efficiency = { value = 0.5, source = "estimate: usual" }
"""


ROW = """[[kernel]]
family = "pooling"
dtypes = "float32"
formats = { x = "NC*", y = "NC*" }
unit = "vector"
efficiency = { value = 0.5, source = "estimate: usual" }
"""


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_inheriting_a_file_and_replacing_a_row(tmp_path: Path) -> None:
    write(tmp_path / "base.toml", MINIMAL)
    text = """
    inherits = "base.toml"
    [[kernel]]
    family = ["convolution"]
    dtypes = ["float32"]
    formats = { x = "NC*8c", w = "OI*8i8o", y = "NC*8c" }
    unit = "vector"
    efficiency = { value = 0.9, source = "measured: our lab" }
    [[kernel]]
    family = "pooling"
    dtypes = ["float32"]
    formats = { x = "NC*8c", y = "NC*8c" }
    unit = "vector"
    efficiency = { value = 0.5, source = "estimate: usual" }
    """
    rows: tuple[KernelSpec, ...] = load_target(write(tmp_path / "child.toml", text)).spec.kernel
    assert [(row.family, row.efficiency.value) for row in rows] == [
        (("convolution",), 0.9),
        (("pooling",), 0.5),
    ]


def test_a_number_does_not_inherit_its_source(tmp_path: Path) -> None:
    write(tmp_path / "base.toml", MINIMAL)
    text = 'inherits = "base.toml"\n[memory]\nbandwidth = { value = 2e11 }'
    with pytest.raises(TargetError, match=r"memory\.bandwidth\.source is missing"):
        load_target(write(tmp_path / "child.toml", text))


# --- malformed ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            '{ value = 1e11, source = "datasheet" }',
            "1e11",
            ["memory.bandwidth: expected a table", "1000", "source ="],
        ),
        (', source = "datasheet" }', " }", ["memory.bandwidth.source is missing"]),
        ('source = "datasheet"', 'source = "  "', ["memory.bandwidth.source", "at least 1 character"]),
        ("value = 1e11", "value = -1.0", ["memory.bandwidth.value", "greater than 0", "found -1.0"]),
        ("value = 1e11", 'value = "fast"', ["memory.bandwidth.value", "valid number", "found 'fast'"]),
        (
            "value = 0.8",
            "value = 80",
            ["memory.kernel_efficiency.value", "less than or equal to 1", "found 80"],
        ),
        ("bandwidth =", "bandwith =", ["memory.bandwith is not a key", "did you mean bandwidth?", "1 more"]),
        ('family = "npu"', 'family = "tpu"', ["family", "'gpu', 'cpu' or 'npu'", "found 'tpu'"]),
        ('description = "a chip of ours"', "", ["description is missing"]),
        ("NC*8c", "NC*8q", ["kernel[0].formats.x", "unknown axes", "found 'NC*8q'"]),
        ("OI*8i8o", "OI*8ii", ["kernel[0].formats.w: not a format; write it", "found 'OI*8ii'"]),
        ("x = ", "z = ", ["kernel[0].formats.z", "no operand"]),
        (
            'dtypes = "float32"',
            'dtypes = "float33"',
            ["kernel[0].dtypes[0]", "not an element type", "'float33'"],
        ),
        ('dtypes = "float32"', 'dtypes = "int8"', ["kernel[0] needs rates.vector.int8"]),
        ('unit = "vector"', 'unit = "cube"', ["kernel[0] needs rates.cube.float32"]),
        (
            'family = "convolution"',
            'family = "convolutoin"',
            ["kernel[0].family[0]", "no family of operations"],
        ),
        ("NC*8c", "NC*{C0}c", ["kernel[0] needs c0.float32 or c0.default"]),
        ("unit =", "direct = true\nunit =", ["kernel[0]", "either formats or strided"]),
        ("unit =", "strided = true\nunit =", ["kernel[0]", "of the family matmul alone"]),
        ("unit =", 'strided = "any"\nunit =', ["kernel[0].strided", "expected true, pointers or modes"]),
        ("unit =", 'align = { value = 8, source = "x" }\nunit =', ["kernel[0]", "go together"]),
        (
            "unit =",
            "effeciency = 1\nunit =",
            ["kernel[0].effeciency is not a key", "did you mean efficiency?"],
        ),
        ("float32 = {", "float16 = {", ["rates.vector.float32 is missing"]),
        ("[memory]", "[memory", ["ours.toml:5", "is not TOML"]),
        ("[memory]", '[memory]\nbandwidth = { value = 1, source = "a" }', ["ours.toml:7", "is not TOML"]),
        (
            'family = "npu"',
            'family = "npu"\ninherits = "gpu-hoper"',
            ["no target 'gpu-hoper'", "did you mean gpu-hopper"],
        ),
        ('family = "npu"', 'family = "npu"\ninherits = 3', ["inherits: expected a name or a path, found 3"]),
        ('family = "npu"', 'family = "npu"\ninherits = "ours.toml"', ["inherits itself"]),
        ('family = "npu"', 'family = "npu"\ninherits = "no.toml"', ["no.toml", "cannot be read"]),
        ("[[kernel]]", "[kernel]", ["kernel: expected rows, found a table", "[[...]]"]),
    ],
)
def test_malformed_files_are_told_in_one_line(old: str, new: str, expected: list[str], tmp_path: Path) -> None:
    assert old in MINIMAL
    path = write(tmp_path / "ours.toml", MINIMAL.replace(old, new, 1))
    with pytest.raises(TargetError) as error:
        load_target(path)
    text = message(error)
    assert "toml" in text
    assert "Traceback" not in text
    for part in expected:
        assert part in text


def test_what_fits_into_a_cache_comes_from_there(tmp_path: Path) -> None:
    level = """
[[memory.level]]
name = "L2"
capacity = { value = 1000000, source = "datasheet" }
bandwidth = { value = 1e12, source = "datasheet" }

[launch]"""
    models = [
        load_target(write(tmp_path / "ours.toml", text)) for text in (MINIMAL, MINIMAL.replace("[launch]", level))
    ]
    plain, nhwc = Storage(Format.parse("NCHW")), Storage(Format.parse("NHWC"))
    for channels, times in ((8, 10.0), (1000, 1.0)):
        x = Value("x", TensorType(DType.FLOAT32, (1, channels, 100, 100)))
        main, cached = (model.conversion_seconds(x, plain, nhwc) for model in models)
        assert main == pytest.approx(times * cached)
        relu = Op("Relu", (x,), (Value("y", x.type),), version=14)
        main, cached = (model.kernel_seconds(relu, canonical_signature(relu)) for model in models)
        assert main == pytest.approx(times * cached)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("value = 1e11", "value = -1.0", "bandwidth"),
        ("bandwidth =", "bandwith =", "bandwith"),
        (', source = "datasheet" }', " }", "bandwidth"),
        ("NC*8c", "NC*8q", "formats"),
        ('dtypes = "float32"', 'dtypes = "float33"', "dtypes"),
        ('dtypes = "float32"', 'dtypes = [\n  "float32",\n  "float33",\n]', "dtypes"),
        ('unit = "vector"', 'unit = "cube"', "[[kernel]]"),
        ("unit =", "strided = true\nunit =", "[[kernel]]"),
        ('family = "npu"', 'family = "npu"\ninherits = 3', "inherits"),
    ],
)
def test_errors_name_the_line(old: str, new: str, line: str, tmp_path: Path) -> None:
    """An error names the file and line of the faulty entry, also in an inherited file."""
    text = MINIMAL.replace(old, new, 1)
    number = next(number for number, each in enumerate(text.splitlines(), 1) if each.startswith(line))
    base = write(tmp_path / "base.toml", text)
    child = write(tmp_path / "child.toml", f'inherits = "base.toml"\n{ROW}')
    for path in (base, child):
        with pytest.raises(TargetError) as error:
            load_target(path)
        assert f"base.toml:{number}: " in message(error)


def test_a_circle_of_two(tmp_path: Path) -> None:
    write(tmp_path / "a.toml", 'inherits = "b.toml"')
    write(tmp_path / "b.toml", 'inherits = "a.toml"')
    with pytest.raises(TargetError) as error:
        load_target(str(tmp_path / "a.toml"))
    assert "inherits itself by way of b" in message(error)


def test_the_documentation_names_every_key() -> None:
    text = (Path(__file__).parents[2] / "docs" / "targets.md").read_text(encoding="utf-8")
    text = re.sub("```.*?```", "", text, flags=re.DOTALL)
    quoted = {word for part in re.findall("`([^`]+)`", text) for word in re.findall(r"\w+", part)}
    assert TargetSpec.known_keys() - {"value", "source"} <= quoted
