"""The laws of formats, cost models, dialects, passes and fusion patterns."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise, permutations, product
from os import PathLike

import numpy as np
import onnx

from layoutopt.api import optimize
from layoutopt.cost import CostModel
from layoutopt.driver.arguments import Target
from layoutopt.driver.job import pipeline_for
from layoutopt.formats import Conversion, Entry, Format, Layout, Part, Reshape, Shape, Transpose, pack, unpack
from layoutopt.formats.extent import static_shape
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, DType, Op, Padding, Signature, Storage, TensorType, Value
from layoutopt.ops import Inapplicable, OperandFormats, canonical_signature, signature_of
from layoutopt.ops.region_ops import regions_with_rule
from layoutopt.passes.base import Mode, Pass, Pipeline
from layoutopt.patterns import FusionPattern, Match
from layoutopt.testing.rules import lifted

_EXTENTS = (3, 17, 5, 4, 2)  # none of them is a multiple of a usual block
_DTYPE = "float16"  # for notations with {C0}


def numbered(shape: tuple[int, ...]) -> Array:
    """The array of a shape with the elements 1, 2, 3, ...: all differ, and none is 0 like padding."""
    return np.arange(1, 1 + math.prod(shape)).reshape(shape)


def check_format(format: Format, shape: tuple[int, ...]) -> None:
    """Assert that a format is read back from its name, and that packing, offsets and keys agree for a shape.

    Raises:
        AssertionError: they do not.
    """
    letters = "ZYXWVUTS"[: format.rank]
    assert Format.parse(str(format)) == format
    assert Format.parse(format.name(letters), letters) == format
    _check_construction(format)
    array = numbered(shape)
    physical = pack(array, format)
    assert physical.shape == format.physical_shape(shape)
    assert physical.flags.c_contiguous
    assert np.array_equal(unpack(physical, format, shape), array)
    assert np.count_nonzero(physical == 0) == format.padding_elements(shape)
    assert format.has_padding(shape) == (format.padding_elements(shape) > 0)
    assert math.prod(static_shape(format.padded_shape(shape))) == physical.size
    layout = Layout.packed(format, shape)
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
    """Assert that the steps of a conversion equal unpacking and packing, and that every step has an effect.

    Raises:
        AssertionError: they do not.
    """
    conversion = Conversion(source, target)
    array = numbered(shape)
    physical, expected = pack(array, source), pack(array, target)
    for padding_is_zero in (False, True):
        assert np.array_equal(conversion.apply(physical, shape, padding_is_zero=padding_is_zero), expected), (
            f"{source} to {target}"
        )
        steps = conversion.steps(shape, padding_is_zero=padding_is_zero)
        ends = [source.physical_shape(shape), *(step.after for step in steps)]
        assert [step.before for step in steps] == ends[:-1]
        assert ends[-1] == target.physical_shape(shape)
        assert all(isinstance(step, Transpose) or step.before != step.after for step in steps)
        assert all(type(left) is not type(right) for left, right in pairwise(steps))
        assert sum(not isinstance(step, Reshape) for step in steps) <= 5


def check_keys(one: Format, other: Format, shape: tuple[int, ...]) -> None:
    """Assert that two formats have the same key for a shape exactly if they have the same bytes.

    Raises:
        AssertionError: they do not.
    """
    same = np.array_equal(pack(numbered(shape), one).ravel(), pack(numbered(shape), other).ravel())
    assert (one.key(shape) == other.key(shape)) == same, f"the keys of {one} and {other} contradict their bytes"


def check_format_system(entries: Sequence[Entry]) -> None:
    """Assert the laws of every format of a system, and of the conversions between those of the same axes.

    Raises:
        AssertionError: a format breaks a law, or two formats have one name.
    """
    names = [entry.name for entry in entries]
    assert len(set(names)) == len(names), f"two formats have one name: {sorted(names)}"
    by_axes: dict[str, list[Format]] = {}
    for entry in entries:
        assert entry.system and entry.source, f"{entry.name}: a format needs a system and a source"
        by_axes.setdefault(entry.axes, []).append(entry.format(_DTYPE))
    for axes, formats in by_axes.items():
        shape = _EXTENTS[: len(axes)]
        for format in formats:
            check_format(format, shape)
        for source, target in permutations([Format.canonical(len(axes)), *formats], 2):
            check_conversion(source, target, shape)
            check_keys(source, target, shape)


FORMATS = tuple(map(Format.parse, ("NCHW", "NHWC", "CHWN", "NCHW4c", "NCHW16c", "NCHW32c", "CHWN4c")))
"""Formats of feature maps with which conversions are tested."""

_SHAPES: tuple[Shape, ...] = ((1, 64, 56, 56), (2, 3, 17, 9), (1, 1, 1, 1), (1, 16, 1, 1))
_DTYPES = (DType.FLOAT32, DType.FLOAT16, DType.INT8)


def check_cost_model(model: CostModel, ops: Iterable[Op] = ()) -> None:
    """Assert the laws of a cost model.

    Args:
        model: the cost model.
        ops: ops to price, besides convolutions of several sizes and element types.

    Raises:
        AssertionError: it breaks a law.
    """
    assert model.name and model.dialect, "a cost model needs a name and a dialect"
    for shape, dtype in product(_SHAPES, _DTYPES):
        value = tensor(shape, dtype)
        for source, target in product(FORMATS, FORMATS):
            check_conversion_price(model, value, source, target)
            check_growth(model, value, source, target)
        for source, via, target in product(FORMATS[:5], FORMATS[:5], FORMATS[:5]):
            check_detour(model, value, source, via, target)
        for format, before, after in product(FORMATS, Padding, Padding):
            check_padding_price(model, value, format, before, after)
        for op in (convolution(shape, 24, 3, dtype), *ops):
            check_op_prices(model, op)


def check_conversion_price(model: CostModel, value: Value, source: Format, target: Format) -> None:
    """Assert that a conversion is free exactly if no byte moves, and costs the same in both directions."""
    assert value.shape is not None
    there = model.conversion_seconds(value, Storage(source), Storage(target))
    back = model.conversion_seconds(value, Storage(target), Storage(source))
    case = f"{value.type} from {source} to {target} in {there} s, back in {back} s"
    assert math.isfinite(there) and there >= 0, case
    assert (there == 0) == (source.key(value.shape) == target.key(value.shape)), case
    assert math.isclose(there, back, rel_tol=1e-6), case


def check_detour(model: CostModel, value: Value, source: Format, via: Format, target: Format) -> None:
    """Assert that a conversion by way of a third format is not cheaper."""
    one, other, third = Storage(source), Storage(via), Storage(target)
    direct = model.conversion_seconds(value, one, third)
    detour = model.conversion_seconds(value, one, other) + model.conversion_seconds(value, other, third)
    case = f"{value.type} from {source} to {target}: {direct} s, by way of {via} {detour} s"
    assert direct <= detour * (1 + 1e-9), case


def check_growth(model: CostModel, value: Value, source: Format, target: Format) -> None:
    """Assert that a conversion of a tensor with a larger extent is not cheaper."""
    assert isinstance(value.type, TensorType) and value.type.shape is not None
    shape = value.type.shape
    small = model.conversion_seconds(value, Storage(source), Storage(target))
    for axis, dim in enumerate(shape):
        assert isinstance(dim, int)
        larger = tensor((*shape[:axis], dim + 32, *shape[axis + 1 :]), value.type.dtype)
        large = model.conversion_seconds(larger, Storage(source), Storage(target))
        assert small <= large, f"{value.type} from {source} to {target}: {small} s, {larger.type}: {large} s"


def check_padding_price(model: CostModel, value: Value, format: Format, before: Padding, after: Padding) -> None:
    """Assert that a change of the padding alone costs time exactly if the padding has to become cleaner."""
    seconds = model.conversion_seconds(value, Storage(format, before), Storage(format, after))
    assert (seconds == 0) == (before <= after), f"{value.type} in {format}, {before} to {after}: {seconds} s"


def check_op_prices(model: CostModel, op: Op) -> None:
    """Assert that an op has a finite price above 0 in canonical formats and in those of each kernel of the target."""
    assert price(model, op, canonical_signature(op)) > 0
    for formats in model.preferred_formats(op):
        signature = signature_of(op, formats)
        if not isinstance(signature, Inapplicable):
            assert price(model, op, signature) > 0


def price(model: CostModel, op: Op, signature: Signature) -> float:
    """The price of an op in seconds, which has to be finite."""
    seconds = model.kernel_seconds(op, signature)
    assert math.isfinite(seconds), f"{op.kind} with {signature}: {seconds} s"
    return seconds


def price_of(model: CostModel, op: Op, formats: OperandFormats) -> float:
    """The price of an op with the given formats of some operands."""
    signature = signature_of(op, formats)
    assert isinstance(signature, Signature)
    return price(model, op, signature)


def tensor(shape: Shape, dtype: DType) -> Value:
    """A value without a graph."""
    return Value("x", TensorType(dtype, shape))


def convolution(shape: Shape, filters: int, kernel: int, dtype: DType) -> Op:
    """A convolution with stride 1 that keeps the size of the image."""
    n, c, h, w = shape
    values = (tensor(shape, dtype), tensor((filters, c, kernel, kernel), dtype))
    result = tensor((n, filters, h, w), dtype)
    attributes = {"kernel_shape": (kernel, kernel), "pads": (kernel // 2,) * 4}
    return Op("Conv", values, (result,), attributes=dict(attributes), version=18)


_TARGETS = ("gpu-hopper", "ascend-910b", "cpu-avx2")  # plans in channels-last order, in fractals and in blocks


def check_dialect(
    name: str, *models: str | PathLike[str] | onnx.ModelProto, targets: tuple[Target, ...] = _TARGETS
) -> int:
    """Assert that models which are planned for several targets and written in a dialect are equivalent to the originals.

    Args:
        name: the name of the dialect.
        models: the models.
        targets: the targets; each plan may have other formats.

    Returns:
        The number of models that were rewritten, over all targets.

    Raises:
        AssertionError: a result could not be compared with the original.
        VerificationError: a result is not equivalent to its original.
    """
    changed = 0
    for number, model in enumerate(models):
        for target in targets:
            report = optimize(model, target, dialect=name).report
            assert report.verification.status == "passed", f"model {number}: {report.verification.reason}"
            changed += report.changed
    return changed


def check_pass(
    step: Pass,
    *models: str | PathLike[str] | onnx.ModelProto,
    target: Target = "gpu-hopper",
    mode: Mode = "inference",
    dialect: str | None = None,
) -> int:
    """Assert that a pass changes no result of the models, and that a second run right after the first changes no graph.

    The pass runs at its position in the pipeline of a mode, which `before`, `after` or the pipeline itself determines.

    Args:
        step: the pass.
        models: the models; the pass has to change one of them.
        target: the hardware target.
        mode: the mode.
        dialect: the dialect; None for the target's own.

    Returns:
        The number of models that the pass changed.

    Raises:
        AssertionError: the pass breaks a law.
        InvariantError: it leaves a graph that breaks an invariant.
    """
    check_declaration(step)
    pipeline = _repeated(pipeline_for(mode, target, None, dialect), step)
    changed = 0
    for number, model in enumerate(models):
        report = optimize(model, target, dialect=dialect, pipeline=pipeline, mode=mode).report
        assert report.verification.status == "passed", f"model {number}: {report.verification.reason}"
        runs = [each.changed for each in report.passes if each.name == step.name]
        firsts, seconds = runs[::2], runs[1::2]
        assert not any(seconds), f"model {number}: a second run of {step.name} changes its own result"
        changed += any(firsts)
    assert changed, f"{step.name} changes none of the {len(models)} models"
    return changed


def check_declaration(step: Pass) -> None:
    """Assert that a pass can be copied, and has a name and a description."""
    kind = type(step)
    assert replace(step) == step
    assert step.name and step.name == step.name.lower(), f"{kind.__name__} needs a name in lower case"
    assert (kind.__doc__ or "").strip(), f"{step.name} needs a description as its docstring"


def _repeated(pipeline: Pipeline, step: Pass) -> Pipeline:
    """The pipeline with the pass twice in a row wherever it runs; verification of invariants is on."""
    names = [each.name for each in pipeline.passes]
    whole = pipeline if step.name in names else pipeline.extended([step])
    assert len(whole.passes) > len(names) or step.name in names, f"{step.name} has no position in the pipeline"
    return Pipeline(tuple(_twice(whole.passes, step)))


def _twice(passes: Iterable[Pass], step: Pass) -> Iterable[Pass]:
    for each in passes:
        yield from (step, step) if each.name == step.name else (each,)


def check_pattern(pattern: FusionPattern, *models: onnx.ModelProto) -> int:
    """Assert that the fused op can replace each match of a fusion pattern in the models.

    Returns:
        The number of matches.

    Raises:
        AssertionError: a match names ops or values that are not in the graph, or reads what it replaces.
    """
    assert pattern.name and pattern.fused_op and pattern.root_ops, (
        "a fusion pattern needs a name, a fused op and root ops"
    )
    graphs = [graph for model in models for graph in regions_with_rule(lifted(model))]
    roots = [(graph, op) for graph in graphs for op in graph.ops if op.kind in pattern.root_ops]
    matches = [(graph, op, match) for graph, op in roots if (match := pattern.match(graph, op)) is not None]
    for graph, op, match in matches:
        _check(pattern, graph, op, match)
    return len(matches)


def _check(pattern: FusionPattern, graph: Graph, root_op: Op, match: Match) -> None:
    case = f"{pattern.name} at {root_op.op_type} {root_op.name}"
    computed = {value for op in match.inner for value in op.outputs if value is not None}
    assert root_op in match.inner, f"{case}: the root op is not among the ops of the match"
    assert all(op in graph for op in match.inner), f"{case}: an op of the match is not in the graph"
    assert match.result in computed, f"{case}: no op of the match computes its result"
    for value in match.inputs:
        assert value not in computed, f"{case}: the fused op would read a value that it replaces"
        is_new_constant = value is not None and value.data is not None
        assert value is None or value in graph or is_new_constant, f"{case}: {value.name} is not in the graph"
