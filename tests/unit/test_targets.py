"""Targets and runtimes: files of users and those that are built in, and the formats that vendors and onnxruntime document."""

import json
import platform
import re
import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
from parsed_models import text_model

import layoutopt
from layoutopt.cli import main
from layoutopt.cost import PropagatedFormats
from layoutopt.cost_models import (
    RooflineModel,
    RuntimeSpec,
    TargetSpec,
    find_runtime,
    load_target,
    registry,
    runtime_names,
    target_names,
)
from layoutopt.cost_models.runtime_spec import read_runtime
from layoutopt.cost_models.spec import KernelSpec, check, expand
from layoutopt.driver.job import runtime_and_dialect
from layoutopt.errors import ArgumentError, TargetError
from layoutopt.formats import Format, lookup
from layoutopt.ir.types import DType, Op, Signature, Slot, TensorType, Value
from layoutopt.kernel_times.kernels import random_constant
from layoutopt.ops import OperandFormats, canonical_signature, signature_of
from layoutopt.sample_inputs import SampleInputs
from layoutopt.verification.data_movement import executed_data_movement
from layoutopt.verification.runnable import Runnable


def message(error: pytest.ExceptionInfo[TargetError]) -> str:
    """The message of an error, which has one line."""
    text = str(error.value)
    assert "\n" not in text
    assert error.value.exit_code == 4
    return text


@pytest.mark.parametrize(
    ("text", "rank", "expected", "axes"),
    [
        ("N*C", 4, "NHWC", "NCHW"),
        ("N*C", 5, "NDHWC", "NCDHW"),
        ("NDC*{C0}c", 5, "NDCHW16c", "NCDHW"),
        ("NDC*{C0}c", 4, "NCHW16c", "NCHW"),
        ("I*O16o{C0}i", 4, "IHWO16o16i", "OIHW"),
        ("*NM16m{C0}n", 2, "NM16m16n", "MN"),
        ("*NM16m{C0}n", 4, "ABNM16m16n", "ABMN"),
        ("N*C", 6, "NABEFC", "NCABEF"),
        ("DNHM{C0}n", 4, "DNHM16n", "DHMN"),
    ],
)
def test_templates(text: str, rank: int, expected: str, axes: str) -> None:
    assert expand(text, rank, 16) == Format.parse(expected, axes)


@pytest.mark.parametrize("text", ["", "nhwc", "N**C", "NC*16x", "NXC*", "NC*{C1}c", "NNC", "16cN*", "NC*4_8c"])
def test_bad_templates(text: str) -> None:
    with pytest.raises(ValueError, match=";"):
        check(text)


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
    assert [(row.family, row.efficiency.value) for row in rows] == [(("convolution",), 0.9), (("pooling",), 0.5)]


def test_inherited_kernels_can_be_removed_and_no_others(tmp_path: Path) -> None:
    write(tmp_path / "base.toml", MINIMAL)
    row = """inherits = "base.toml"
    [[kernel]]
    family = "convolution"
    dtypes = "float32"
    formats = { x = "NC*8c", w = "OI*8i8o", y = "NC*8c" }
    removed = true
    """
    assert load_target(write(tmp_path / "child.toml", row)).spec.kernel == ()
    wrong = row.replace("float32", "float16")
    for name, text in {"wrong.toml": wrong, "again.toml": wrong.replace("base", "wrong")}.items():
        with pytest.raises(TargetError) as error:
            load_target(write(tmp_path / name, text))
        assert f"{name}:2: kernel[0]: removes no inherited kernel; give it the family" in message(error)


def test_the_template_is_a_target_with_every_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "npu.toml"
    for _ in range(2):
        assert main(["targets", "--new", str(tmp_path / "npu"), "--force"]) == 0
    assert load_target(str(file)).name == "npu"
    keys = set(re.findall(r"^#?\[*([\w.]+)", file.read_text(), re.MULTILINE))
    names = {part for key in keys for part in key.split(".")}
    assert names >= {key for table in (TargetSpec, *TargetSpec.tables) for key in table.model_fields} - {
        "value",
        "source",
    }
    file.write_text("edited")
    assert main(["targets", "--new", str(file)]) == 8 and "npu.toml: exists; name another" in capsys.readouterr().err
    assert file.read_text() == "edited"


@pytest.mark.parametrize(
    ("base", "child", "expected"),
    [
        (MINIMAL, "[memory]\nbandwidth = { value = 2e11 }", ["child.toml:3: memory.bandwidth.source is missing"]),
        (
            MINIMAL.replace("value = 1e11", "value = -1.0"),
            '[memory]\nkernel_efficiency = { value = 0.5, source = "datasheet" }',
            ["base.toml:6", "memory.bandwidth.value: input"],
        ),
        ('inherits = "child.toml"', "", ["inherits itself by way of base"]),
    ],
    ids=["a number does not inherit its source", "an error in the inherited file", "a circle of two"],
)
def test_faults_of_files_that_inherit_are_located(base: str, child: str, expected: list[str], tmp_path: Path) -> None:
    write(tmp_path / "base.toml", base)
    with pytest.raises(TargetError) as error:
        load_target(write(tmp_path / "child.toml", f'inherits = "base.toml"\n{child}'))
    assert all(part in message(error) for part in expected)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('{ value = 1e11, source = "datasheet" }', "1e11", ["memory.bandwidth: expected a table", "1000", "source ="]),
        (', source = "datasheet" }', " }", ["memory.bandwidth.source is missing"]),
        ("value = 1e11", "value = -1.0", ["memory.bandwidth.value", "greater than 0", "found -1.0"]),
        ("value = 0.8", "value = 80", ["memory.kernel_efficiency.value", "less than or equal to 1", "found 80"]),
        (
            "bandwidth =",
            "bandwith =",
            ["memory.bandwith is not a key", "did you mean bandwidth?", "also memory.bandwidth is"],
        ),
        ("NC*8c", "NC*8q", ["kernel[0].formats.x", "unknown axes", "found 'NC*8q'"]),
        ("x = ", "z = ", ["kernel[0].formats.z", "should be 'x'"]),
        ('dtypes = "float32"', 'dtypes = "float33"', ["kernel[0].dtypes[0]", "not an element type", "'float33'"]),
        ('unit = "vector"', 'unit = "cube"', ["kernel[0] needs rates.cube.float32"]),
        ('family = "convolution"', 'family = "convolutoin"', ["kernel[0].family[0]", "no family of operations"]),
        ("NC*8c", "NC*{C0}c", ["kernel[0] needs c0.float32 or c0.default"]),
        ("unit =", "direct = true\nunit =", ["kernel[0]", "either formats or strided"]),
        ("unit =", "strided = true\nunit =", ["kernel[0]", "of the family matmul alone"]),
        ("formats =", "proposes = false\ndirect = true\n#formats =", ["kernel[0]", "that require formats alone"]),
        ("unit =", 'align = { value = 8, source = "x" }\nunit =', ["kernel[0]", "go together"]),
        ("[memory]", "[memory", ["ours.toml:5", "is not TOML"]),
        (
            'family = "npu"',
            'family = "npu"\ninherits = "gpu-hoper"',
            ["no target 'gpu-hoper'", "did you mean gpu-hopper"],
        ),
        (
            'family = "npu"',
            'family = "npu"\ninherits = 3',
            ["ours.toml:3: ", "inherits: expected a name or a path, found 3"],
        ),
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


@pytest.mark.parametrize(
    ("machine", "features", "expected"),
    [
        ("aarch64", set(), "cpu-neon"),
        ("arm64", set(), "cpu-neon"),
        ("x86_64", {"avx2", "avx512f"}, "cpu-avx512"),
        ("AMD64", {"avx2"}, "cpu-avx2"),
    ],
)
def test_the_host(machine: str, features: set[str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(registry, "instruction_sets", lambda: features)
    assert load_target("cpu").name == expected


RUNTIMES = [find_runtime(name) for name in runtime_names()]
CONVOLUTIONS = """<ir_version: 10, opset_import: ["" : 18]>
g (float16[1,64,56,56] x) => (float16[1,64,56,56] y) <float16[64,64,3,3] w> {
    a = Conv <pads = [1, 1, 1, 1]> (x, w)
    b = Relu (a)
    y = Conv <pads = [1, 1, 1, 1]> (b, w)
}"""
TORN = """<ir_version: 10, opset_import: ["" : 18]>
g (float[1,16,16,8] x) => (float[1,16,16,8] y) {
    a = Transpose <perm = [0, 3, 1, 2]> (x)
    b = Relu (a)
    c = Transpose <perm = [0, 2, 3, 1]> (b)
    y = Tanh (c)
}"""


def test_runtime_and_dialect_follow_from_each_other() -> None:
    gpu, npu = load_target("gpu-hopper"), load_target("ascend-910b")
    assert runtime_and_dialect("compiler", None, gpu)[1].name == "functions"
    assert runtime_and_dialect("any", None, npu)[1].name == "standard"
    assert runtime_and_dialect(None, "ascend", gpu)[0].name == "compiler"
    assert runtime_and_dialect("compiler", "ops", gpu)[1].name == "ops"


@pytest.mark.parametrize(
    ("runtime", "dialect", "message"),
    [
        ("openvinos", None, "openvinos: no such runtime; did you mean openvino"),
        ("any", "functions", "dialect functions: the runtime any does not read it"),
        (3, None, "runtime=3: should be a valid string"),
    ],
)
def test_arguments_that_do_not_fit(runtime: object, dialect: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        layoutopt.optimize(text_model(TORN), "gpu-hopper", runtime=runtime, dialect=dialect)  # type: ignore[arg-type]


@pytest.mark.parametrize("target", target_names())
@pytest.mark.parametrize("text", [TORN, CONVOLUTIONS], ids=["torn", "convolutions"])
def test_any_writes_standard_operators_alone(target: str, text: str) -> None:
    """Whatever the hardware prefers, no convolution leaves the canonical format where that takes Transposes around it."""
    result = layoutopt.optimize(text_model(text), target, runtime="any")
    kinds = [node.op_type for node in result.proto.graph.node]
    assert {opset.domain for opset in result.proto.opset_import} == {""} and not result.proto.functions
    assert "Transpose" not in kinds
    assert result.report.runtime == "any" and result.report.verification.status == "passed"
    assert bool(result.report.runs_in) == result.report.changed == (text == TORN)


def test_executed_data_movement_is_that_of_onnxruntime() -> None:
    moving = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18]> g (float[4,5,6] x) => (float[6,5,4] y)'
        "{ a = Relu (x) b = Transpose <perm = [2, 1, 0]> (a) y = Softmax (b) }"
    )
    found = executed_data_movement(Runnable.of(moving.SerializeToString()), SampleInputs())
    assert (dict(found.ops), found.nbytes) == ({"Transpose": 1}, 2 * 4 * 5 * 6 * 4)


ABSORBED = [
    (spec.name, op, dtype) for spec in RUNTIMES for row in spec.absorbs for op in row.ops for dtype in row.dtypes
]


@pytest.mark.parametrize("operand", [0, 1])
@pytest.mark.parametrize(("runtime", "op", "dtype"), ABSORBED)
def test_onnxruntime_absorbs_the_transposes_that_a_runtime_file_lists(
    runtime: str, op: str, dtype: str, operand: int
) -> None:
    label = {"float32": "float", "float64": "double"}[dtype]
    shapes = ("2,5,4", "2,5,6") if operand == 0 else ("2,4,5", "2,6,5")
    pair = "t, b" if operand == 0 else "a, t"
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 18]> g ({label}[{shapes[0]}] a, {label}[{shapes[1]}] b) => ({label}[2,4,6] y)'
        f"{{ t = Transpose <perm = [0, 2, 1]> ({'ab'[operand]}) y = {op} ({pair}) }}"
    )
    found = executed_data_movement(Runnable.of(model.SerializeToString()), SampleInputs())
    assert found is not None and not found.ops, runtime


def test_a_malformed_runtime_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('descripton = "d"\nruns_in = "x"\ndialects = ["ops"]\nkernels = "standard"\n')
    with pytest.raises(TargetError, match="descripton is not a key of a runtime") as caught:
        read_runtime(path)
    assert "\n" not in str(caught.value) and str(path) in caught.value.where


def test_every_key_of_a_runtime_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "runtimes.md").read_text(encoding="utf-8")
    text = re.sub("```.*?```", "", text, flags=re.DOTALL)
    quoted = {word for part in re.findall("`([^`]+)`", text) for word in re.findall(r"\w+", part)}
    assert RuntimeSpec.known_keys() - {"value", "source"} <= quoted


IN_0, W, OUT_0 = Slot("in", 0), Slot("in", 1), Slot("out", 0)


def op_of(op_type: str, dtype: DType, *shapes: tuple[int, ...], constants: Sequence[int] = ()) -> Op:
    """An op with operands of these shapes, of which the last is the result and some are constants."""
    values = [
        Value(f"v{index}", TensorType(dtype, shape), data=random_constant(shape) if index in constants else None)
        for index, shape in enumerate(shapes)
    ]
    attributes: dict[str, Any] = {"kernel_shape": shapes[1][2:], "pads": (1, 1, 1, 1)} if op_type == "Conv" else {}
    return Op(op_type, tuple(values[:-1]), tuple(values[-1:]), version=18, attributes=attributes)


def conv(channels: int = 64, *, dtype: DType = DType.FLOAT32) -> Op:
    image = (1, channels, 56, 56)
    return op_of("Conv", dtype, image, (channels, channels, 3, 3), image, constants=[1])


@pytest.mark.parametrize(("rank", "has_blocks"), [(2, False), (3, True), (4, True), (5, False)])
def test_products_of_signals_and_images_have_blocked_kernels(rank: int, has_blocks: bool) -> None:
    """In other ranks, biases and activations would not be part of the kernel."""
    x, y = ((*[1] * (rank - 2), 16, extent) for extent in (32, 64))
    kernels = load_target("cpu-avx2").preferred_formats(op_of("MatMul", DType.FLOAT32, x, (32, 64), y, constants=[1]))
    assert [each for each in kernels if isinstance(each, PropagatedFormats)] == kernels[1:]
    assert (len(kernels) == 2) == has_blocks


def seconds(model: RooflineModel, op: Op, known: OperandFormats) -> float:
    signature = signature_of(op, known)
    assert isinstance(signature, Signature)
    return model.kernel_seconds(op, signature)


def preferred(model: RooflineModel, op: Op) -> tuple[str, str]:
    """The formats of x and y in the fastest of the target's preferred signatures."""
    best = min(model.preferred_formats(op), key=lambda known: seconds(model, op, known))
    assert seconds(model, op, best) <= model.kernel_seconds(op, canonical_signature(op))
    return str(best[IN_0]), str(best[OUT_0])


@pytest.mark.parametrize(
    ("target", "dtype", "format"),
    [
        ("gpu-turing", DType.FLOAT16, "NHWC"),
        ("gpu-turing", DType.FLOAT32, "NCHW"),
        ("gpu-ampere", DType.FLOAT32, "NHWC"),
        ("gpu-ampere", DType.BFLOAT16, "NHWC"),
        ("gpu-hopper", DType.FLOAT16, "NHWC"),
        ("cpu-avx512", DType.FLOAT32, "NCHW16c"),
        ("cpu-avx2", DType.FLOAT32, "NCHW8c"),
        ("cpu-avx2", DType.INT8, "NHWC"),
        ("cpu-neon", DType.FLOAT32, "NCHW"),
        ("ascend-310", DType.FLOAT16, "NCHW16c"),
        ("ascend-310", DType.INT8, "NCHW32c"),
        ("ascend-910b", DType.BFLOAT16, "NCHW16c"),
        ("ascend-910b", DType.INT4, "NCHW64c"),
    ],
)
def test_preferred_formats_of_a_convolution(target: str, dtype: DType, format: str) -> None:
    op = conv(256, dtype=dtype)
    assert preferred(load_target(target), op) == (format, format)


def test_the_filter_of_a_convolution() -> None:
    for target, dtype, expected in (
        ("gpu-hopper", DType.FLOAT32, "OHWI"),
        ("ascend-310", DType.INT8, "IHWO16o32i"),
        ("cpu-avx512", DType.FLOAT32, "OIHW16i16o"),
    ):
        assert load_target(target).preferred_formats(conv(dtype=dtype))[0][W].name("OIHW") == expected


@pytest.mark.parametrize("target", ["gpu-hopper", "cpu-avx2"])
def test_matrix_products_take_strides(target: str) -> None:
    model = load_target(target)
    dtype = DType.FLOAT32 if target == "cpu-avx2" else DType.FLOAT16
    op = op_of("MatMul", dtype, (1, 12, 197, 64), (1, 12, 64, 197), (1, 12, 197, 197))
    plain = model.kernel_seconds(op, canonical_signature(op))
    heads = {IN_0: Format.plain((0, 2, 1, 3)), Slot("in", 1): Format.plain((0, 3, 1, 2))}
    assert seconds(model, op, heads) == plain
    assert seconds(model, op, {IN_0: Format.plain((3, 0, 1, 2))}) == plain
    assert seconds(model, op, {IN_0: Format.plain((0, 2, 3, 1))}) > plain


def test_matrix_products_on_ascend() -> None:
    half, whole = (
        op_of("MatMul", dtype, (1, 512, 512), (512, 512), (1, 512, 512), constants=[1])
        for dtype in (DType.FLOAT16, DType.INT8)
    )
    first = load_target("ascend-310").preferred_formats(half)[0]
    assert (first[IN_0].name("BMN"), first[W].name("MN")) == ("BNM16m16n", "NM16m16n")
    assert load_target("ascend-310").preferred_formats(whole)[0][W].name("MN") == "MN16n32m"
    model = load_target("ascend-910b")
    known = model.preferred_formats(whole)
    assert known[0][W].name("MN") == "NM16m32n"
    mixed = next(each for each in known if each[IN_0].is_canonical and not each[W].is_canonical)
    assert seconds(model, whole, mixed) < model.kernel_seconds(whole, canonical_signature(whole)) * 1.001


ROOT = Path(__file__).parents[2]
PUBLISHED = json.loads((ROOT / "tests" / "published" / "megengine.json").read_text())
DIMENSIONS: dict[str, list[str]] = dict(PUBLISHED["tensor_formats"])
GPUS = ("gpu-turing", "gpu-ampere", "gpu-hopper")
CPUS = (str(ROOT / "examples" / "neon_blocks.toml"), "cpu-avx2")


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


GENERATIONS = runpy.run_path(str(ROOT / "benchmarks" / "generations.py"))


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
    model = GENERATIONS["convolutions"](dtype, shape, rounded=end == "integers")
    for got, names in zip(GENERATIONS["chosen"](model, target), formats.split(), strict=True):
        assert got in [str(lookup(name)) for name in names.split("|")]


PREDICTED = runpy.run_path(str(ROOT / "benchmarks" / "published.py"))


def test_published_times_of_layouts() -> None:
    """The order of MegEngine's layouts and their ratio within 10 %; the gain of channels last within 40 %."""
    first, last = PREDICTED["integer"]("NCHW32", "CHWN4")
    assert first < last and last / first == pytest.approx(11.08 / 9.24, rel=0.1)
    for name, (_, _, ratio) in PREDICTED["HALF"].items():
        assert 0.7 < PREDICTED["half"](name) / ratio < 1.4, name
