"""Calibration: fits the cost model of this machine's target to measured times of kernels and conversions in onnxruntime.

    from layoutopt.calibrate import calibrate
    calibrate().profile           # the text of a target file

    seconds = overhead + operations / rate + bytes / bandwidth

Convolutions and matrix products have all three terms; the other kernels are bound by memory, and conversions move bytes alone.
The coefficients of a group of kernels are not negative and have the smallest sum of squared relative errors; then they are
scaled so that the median of predicted / measured is 1. Peaks are the largest fitted values, and rows have fractions of them.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import cached_property
from itertools import combinations, permutations
from math import inf
from random import Random
from statistics import median
from string import Template
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir
import onnxruntime

from layoutopt import inference
from layoutopt.cost_models import RooflineModel, TargetSpec, load_target
from layoutopt.cost_models.registry import host_target
from layoutopt.cost_models.roofline import conversion_class, formats_of, operand_bytes
from layoutopt.cost_models.spec import Fraction, KernelSpec
from layoutopt.cost_models.target_files import Table, merge
from layoutopt.errors import TargetError
from layoutopt.formats import Format
from layoutopt.ir.graph import DOMAIN, cast_storages, is_cast
from layoutopt.ir.types import DType, Op, Signature, TensorType
from layoutopt.kernel_times.kernels import LoweredKernel, random_constant
from layoutopt.kernel_times.store import KernelStore, Machine, RequestedTimes
from layoutopt.ops import X, Y, canonical_signature, rule_of
from layoutopt.record import Record
from layoutopt.report.schema import ReportModel
from layoutopt.runtime.processor import processor_name
from layoutopt.version import VERSION

_BLOCKED = ("cpu-avx2", "cpu-avx512")  # targets with blocked kernels in the dialect onnxruntime


class FittedGroup(ReportModel):
    """The kernels that the same numbers of the target price, and the medians of |predicted - measured| / measured.

    Attributes:
        kernels: the number of kernels.
        error_before: that of the uncalibrated target.
    """

    group: str
    kernels: int
    error: float
    error_before: float


class CalibrationReport(ReportModel, extra="ignore"):
    """The results of a calibration: the schema of `layoutopt calibrate --json`.

    Attributes:
        date: date of the fit, YYYY-MM-DD.
        target: the built-in target that was calibrated.
        seconds: duration of this run.
        groups: the last one is all kernels together.
        profile: text of the target file, TOML.
    """

    layoutopt_version: str
    cpu: str
    onnxruntime_version: str
    threads: int
    date: str
    target: str
    seconds: float
    groups: list[FittedGroup]
    profile: str


def calibrate(*, threads: int = 1, progress: Callable[[str], None] = lambda step: None) -> CalibrationReport:
    """Time kernels, and fit the target of this machine to the times.

    Args:
        threads: threads of onnxruntime; with one, the process is pinned to one CPU.
        progress: called with the name of each step.

    Raises:
        TargetError: no target has the kernels of this machine's processor, or no group of kernels has enough times for a fit.
    """
    begin = perf_counter()
    name = host_target()
    if name not in _BLOCKED:
        raise TargetError("has no blocked kernels to calibrate", where=name, hint=f"it works on {', '.join(_BLOCKED)}")
    before = load_target("cpu")
    base, cpu, version = before.spec, processor_name(), str(onnxruntime.__version__)
    kernels = probes(before)
    progress(f"timing {len(kernels)} kernels")
    times = RequestedTimes(KernelStore(Machine.current(threads)), inf)
    times.request(Random(0).sample(kernels, len(kernels)))  # similar ones would share caches
    groups = grouped(kernels, times.get, before)
    if not groups:
        what = f"no kernel could be timed at {_MIN_KERNELS} shapes, which a fit needs"
        raise TargetError(what, where=name, hint="check that onnxruntime runs models on this machine")
    progress("fitting")
    today = date.today().isoformat()
    where = f"{cpu} with {name.removeprefix('cpu-').upper()}, {threads} thread{'s' if threads > 1 else ''}"
    tables = fitted_tables(groups, base, f"measured: onnxruntime {version}, {where}, {today}, layoutopt calibrate")
    after = RooflineModel(TargetSpec.model_validate(merge(base.model_dump(mode="json", exclude_defaults=True), tables)))
    everything = [sample for each in groups.values() for sample in each.samples]
    rows = [(group, each.samples) for group, each in sorted(groups.items())]
    about = f"{where}, calibrated {today}: blocks of {base.block(DType.FLOAT32)} channels"
    return CalibrationReport(
        layoutopt_version=VERSION,
        cpu=cpu,
        onnxruntime_version=version,
        threads=threads,
        date=today,
        target=name,
        seconds=perf_counter() - begin,
        groups=[
            FittedGroup(group=group, kernels=len(each), error=_error(each, after), error_before=_error(each, before))
            for group, each in (*rows, ("all", everything))
        ],
        profile=toml_text({"inherits": base.name, "dialect": base.dialect, "description": about, **tables}),
    )


# --- the fit ---

_MIN_KERNELS = 3  # that a fit needs
_WITH_ARITHMETIC = frozenset(("convolution", "matmul"))
"""Families whose kernels have different ratios of operations to bytes, so that the fit separates both terms."""


class Sample(NamedTuple):
    """A timed kernel: its arithmetic operations, the bytes that it reads and writes, and its time in seconds."""

    kernel: LoweredKernel
    operations: float
    nbytes: float
    seconds: float


class Fit(NamedTuple):
    """Seconds of a kernel, of an arithmetic operation and of a byte; 0 for a term that is never the bound."""

    overhead: float
    operation: float
    byte: float


def fit(samples: Sequence[Sample], *, has_arithmetic: bool) -> Fit:
    """The coefficients of a group of kernels: the least error of any set of terms whose coefficients are not negative."""
    terms = np.array([(1.0, each.operations, each.nbytes) for each in samples])
    relative = terms / np.array([[each.seconds] for each in samples])
    best, least = np.zeros(3), np.inf
    columns = (0, 1, 2) if has_arithmetic else (0, 2)
    for positive in (list(each) for count in (1, 2, 3) for each in combinations(columns, count)):
        found = np.zeros(3)
        found[positive] = np.linalg.lstsq(relative[:, positive], np.ones(len(samples)))[0]
        error = float(np.square(relative @ found - 1).sum())
        if found.min() >= 0 and error < least:
            best, least = found, error
    return Fit(*(best / np.median(relative @ best)).tolist())


class Group(Record, dict=True):
    """Kernels that the same numbers of a target price; its row is None for conversions."""

    row: KernelSpec | None
    samples: list[Sample]

    @property
    def has_arithmetic(self) -> bool:
        """Whether the fit has a term of arithmetic operations."""
        return self.row is not None and not _WITH_ARITHMETIC.isdisjoint(self.row.family)

    @cached_property
    def fit(self) -> Fit:
        """The coefficients."""
        return fit(self.samples, has_arithmetic=self.has_arithmetic)


def grouped(
    kernels: Iterable[LoweredKernel], time_of: Callable[[str], float | None], model: RooflineModel
) -> dict[str, Group]:
    """The groups with enough kernels for a fit, by name, without emulated ops and kernels without a time.

    The name of a row has op types or families, variants and formats; that of a class of conversions is the key of its number.
    """
    found: dict[str, Group] = {}
    for kernel in kernels:
        op, signature, seconds = kernel.op, kernel.op.signature, time_of(kernel.key)
        assert signature is not None
        if seconds is None:
            continue
        if is_cast(op):
            formats = formats_of(op, signature)
            name, row = conversion_class(formats[X], formats[Y], op.x.dims, model.spec.memory), None
            sample = Sample(kernel, 0.0, operand_bytes(op, formats), seconds)
        elif work := model.work(op, signature):
            row = work.kernel or _new_row(op)
            name = " ".join(("/".join(row.ops or row.family), *(row.variant or ()), *row.formats.values()))
            sample = Sample(kernel, work.operations, work.nbytes, seconds)
        else:
            continue
        found.setdefault(name, Group(row, [])).samples.append(sample)
    return {name: each for name, each in found.items() if len(each.samples) >= _MIN_KERNELS}


def _new_row(op: Op) -> KernelSpec:
    """A row for an op type without one, in all formats in which it has a direct lowering."""
    rule, ops = rule_of(op), (op.op_type,)
    assert rule is not None
    peak = Fraction(value=1.0, source="estimate: bound by memory")
    return KernelSpec(family=(rule.family,), ops=ops, dtypes=("float32",), direct=True, unit="vector", efficiency=peak)


def _error(samples: Sequence[Sample], model: RooflineModel) -> float:
    return median(abs(price(each.kernel, model) / each.seconds - 1) for each in samples)


def fitted_tables(groups: Mapping[str, Group], spec: TargetSpec, source: str) -> Table:
    """The tables of a target file that inherits a target: numbers of all groups, and medians for ops without a row.

    The source of each number is the conditions of the measurements and the number of kernels.
    """
    casts = [each.fit for each in groups.values() if each.row is None]
    direct = [each.fit for each in groups.values() if each.row is not None and each.row.direct]
    rates = [1 / each.fit.operation for each in groups.values() if each.fit.operation]
    bandwidths = [1 / each.byte for each in (*casts, *direct) if each.byte]
    rate = max(rates, default=spec.rates["vector"]["float32"].value)
    bandwidth = max(bandwidths, default=spec.memory.bandwidth.value)

    def number(value: float, how: str) -> Table:
        """A number of a target file, rounded to three digits, with its source."""
        return {"value": float(f"{value:.3g}"), "source": f"{source}; {how}"}

    def fraction(peak: float, seconds: float, how: str) -> Table:
        return number(min(1.0, 1 / (peak * seconds)) if seconds else 1.0, how)

    memory, launch, kernels = {"bandwidth": number(bandwidth, "the most that any kernel moves")}, {}, []
    if direct:
        middle = "the median of the op types"
        launch["overhead"] = number(median(each.overhead for each in direct), middle)
        memory["kernel_efficiency"] = fraction(bandwidth, median(each.byte for each in direct), middle)
    if casts:
        middle = "the median of the classes of conversions"
        launch["cast_overhead"] = number(median(each.overhead for each in casts), middle)
    for name, group in groups.items():
        how = f"fitted to {len(group.samples)} kernels"
        moved = fraction(bandwidth, group.fit.byte, how)
        if group.row is None:
            memory[name] = moved
            continue
        kernels.append(
            {
                **group.row.model_dump(mode="json", exclude_defaults=True),
                "efficiency": fraction(rate, group.fit.operation, how),
                "bandwidth_efficiency": moved,
                "overhead": number(group.fit.overhead, how),
                "overlaps": not group.has_arithmetic,
            }
        )
    fastest = {"float32": number(rate, "the fastest kernel")}
    return {"launch": launch, "memory": memory, "rates": {"vector": fastest}, "kernel": kernels}


def toml_text(tables: Table) -> str:
    """The text of a target file: its keys, its tables, and a table for each kernel."""
    sections = [("", {key: each for key, each in tables.items() if isinstance(each, str)})]
    sections += [(f"\n[{name}]\n", each) for name, each in tables.items() if isinstance(each, dict)]
    sections += [("\n[[kernel]]\n", row) for row in tables["kernel"]]
    lines = [(title, [f"{key} = {_toml(each)}\n" for key, each in table.items()]) for title, table in sections]
    return "".join(f"{title}{''.join(rows)}" for title, rows in lines)


def _toml(value: Any) -> str:
    """A value in TOML, which includes JSON's strings, numbers, booleans and lists."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_toml(each)}' for key, each in value.items())} }}"
    return json.dumps(value, ensure_ascii=False)


# --- the kernels: ops of networks in all formats of the target's kernels, and conversions ---
#
# The numbers of channels include odd ones and ones that are no multiple of a block. onnxruntime runs a plain convolution as a
# blocked one between two reorders, which its time includes.

_OPSETS = {"": 20, "com.microsoft": 1, DOMAIN: 1}

_IMAGES = ((64, 112), (256, 56), (512, 14), (960, 7), (96, 56), (240, 28), (17, 30), (24, 56), (32, 8))
"""Channels, and pixels per side."""

_SEQUENCES = ((6, 197, 64), (12, 197, 64), (12, 49, 32), (3, 784, 32), (8, 100, 32), (3, 16, 64), (1, 1024, 96))
"""Heads, tokens, and channels per head."""

_OF_IMAGES = Template("""<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
images (
    float[1,$channels,$side,$side] x, float[1,3,$twice,$twice] colours, float[$half,$channels,1,1] w_point,
    float[$half,$channels,3,3] w_dense, float[$channels,1,3,3] w_depthwise, float[32,3,3,3] w_colours,
    float[$channels] w_scale
) => () <float[4] scales = {1.0, 1.0, 2.0, 2.0}, int64[2] image = {2, 3}, float zero = {0.0}>
{
    point = Conv (x, w_point)
    strided = Conv <strides = [2, 2]> (x, w_point)
    dense = Conv <pads = [1, 1, 1, 1]> (x, w_dense)
    depthwise = Conv <group = $channels, pads = [1, 1, 1, 1]> (x, w_depthwise)
    halved = Conv <group = $channels, pads = [1, 1, 1, 1], strides = [2, 2]> (x, w_depthwise)
    first = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (colours, w_colours)
    stem = Conv <pads = [1, 1, 1, 1]> (colours, w_colours)
    pooled = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (x)
    mean = GlobalAveragePool (x)
    repeated = Resize <mode = "nearest", nearest_mode = "floor", coordinate_transformation_mode = "asymmetric"> (x, , scales)
    linear = Resize <mode = "linear"> (x, , scales)
    aligned = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (x, , scales)
    joined = Concat <axis = 1> (x, depthwise)
    reduced = ReduceMean (x, image)
    normalised = InstanceNormalization (x, w_scale, w_scale)
    scaled = Mul (x, mean)
    sum = Add (x, depthwise)
    quotient = Div (x, depthwise)
    clip = Clip (x, zero)
    $unary
}""")
_UNARY = "Relu Sigmoid HardSigmoid HardSwish Tanh Erf Gelu Sqrt Softplus com.microsoft.QuickGelu com.microsoft.FastGelu"
_OF_SEQUENCES = Template("""<ir_version: 10, opset_import: ["" : 20]>
sequences (
    float[1,$tokens,$channels] x, float[1,$heads,$tokens,$head] q, float[1,$heads,$head,$tokens] k,
    float[$channels,$channels] w_square, float[$channels,$wide] w_wide, float[$channels] w_scale
) => () <int64[1] last = {-1}>
{
    square = MatMul (x, w_square)
    wide = MatMul (x, w_wide)
    normalised = LayerNormalization (x, w_scale, w_scale)
    reduced = ReduceMean (x, last)
    scores = MatMul (q, k)
    weights = Softmax (scores)
    attended = MatMul (weights, q)
}""")


def probes(model: RooflineModel) -> list[LoweredKernel]:
    """The kernels for a target: every op in the formats of each of its kernels, and conversions between them."""
    found = list(_conversions(f"NCHW{model.spec.block(DType.FLOAT32)}c"))
    for op in _ops():
        rule = rule_of(op)
        assert rule is not None
        signatures = [rule.signature(op, dict(formats)) for formats in model.preferred_formats(op)]
        legal = [each for each in signatures if isinstance(each, Signature)]
        found += [LoweredKernel.of(op, formats_of(op, each), _OPSETS) for each in legal or [canonical_signature(op)]]
    return list({each.key: each for each in found if each is not None}.values())


def price(kernel: LoweredKernel, model: RooflineModel) -> float:
    """The price of a kernel, in seconds."""
    op, signature = kernel.op, kernel.op.signature
    assert signature is not None
    if is_cast(op):
        return model.conversion_seconds(op.x, *cast_storages(op))
    return model.kernel_seconds(op, signature)


def _ops() -> Iterator[Op]:
    unary = " ".join(f"y{index} = {op} (x)" for index, op in enumerate(_UNARY.split()))
    for channels, side in _IMAGES:
        half, twice = channels // 2 + 8, 2 * side
        yield from _parsed(_OF_IMAGES, channels=channels, half=half, side=side, twice=twice, unary=unary)
    for heads, tokens, head in _SEQUENCES:
        channels = heads * head
        yield from _parsed(_OF_SEQUENCES, heads=heads, tokens=tokens, head=head, channels=channels, wide=4 * channels)


def _parsed(text: Template, **parts: int | str) -> Iterator[Op]:
    """The ops of a model; its inputs whose names begin with `w` become constants."""
    model = onnx.parser.parse_model(text.substitute(parts))
    for node in model.graph.node:
        model.graph.output.add().name = node.output[0]
    graph = inference.lift(onnx_ir.from_proto(model))
    for value in graph.inputs:
        if value.name.startswith("w"):
            value.data = random_constant(value.dims)
    yield from graph.ops


def _conversions(blocked: str) -> Iterator[LoweredKernel | None]:
    images = (((1, channels, side, side), ("NCHW", "NHWC", blocked)) for channels, side in _IMAGES)
    sequences = (((1, tokens, heads, head), ("NCHW", "NHCW", "NHWC")) for heads, tokens, head in _SEQUENCES)
    for shape, names in (*images, *sequences):
        for source, target in permutations([Format.parse(each, "NCHW") for each in names], 2):
            if not source.same_bytes(target, shape):
                yield LoweredKernel.of_conversion(TensorType(DType.FLOAT32, shape), source, target, _OPSETS)
