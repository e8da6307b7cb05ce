"""Laws of channel-wise linear maps, averages and view ops, which the passes that move and merge maps rely on.

Every sample of the laws of layout rules is tested, with all inputs but the first as constants, if its rule declares one of
these properties.
"""

from copy import deepcopy
from itertools import product
from math import prod

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_rules_handmade import Sample, run
from test_rules_samples import samples

from layoutopt.formats import Dim, Extent, Shape
from layoutopt.formats.extent import product as product_of
from layoutopt.ir.types import Array, DType, Op, TensorType, Value
from layoutopt.ops import LinearMap, View, facts, rule_of, rules
from layoutopt.testing.rules import lifted

MAPS = ("Conv", "MatMul", "Gemm", "ConvTranspose")
AVERAGES = ("Resize", "Upsample", "AveragePool", "GlobalAveragePool", "MaxPool", "LpPool", "GlobalMaxPool")
RENAMES = tuple(kind for kind, rule in rules().items() if isinstance(rule, View))


def with_constants(sample: Sample, constants: dict[int, Array] | None = None) -> onnx.ModelProto:
    """The model of a sample with all inputs but the first as constants, some of them replaced by `constants`."""
    model = deepcopy(sample.model)
    (node,), feed = model.graph.node, sample.feeds[0]
    arrays = {name: feed[name] for name in node.input[1:] if name}
    for index, array in (constants or {}).items():
        node.input.extend([""] * (index + 1 - len(node.input)))
        node.input[index] = node.input[index] or f"constant_{index}"
        arrays[node.input[index]] = array
    kept = [info for info in model.graph.input if info.name == node.input[0]]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    return model


def with_numbers(sample: Sample, changed: dict[int, dict[int, int]]) -> onnx.ModelProto:
    """The model of a sample with some elements of its integer operands replaced."""
    constants = {}
    for index, numbers in changed.items():
        constants[index] = np.array(sample.feeds[0][sample.model.graph.node[0].input[index]])
        constants[index][list(numbers)] = list(numbers.values())
    return with_constants(sample, constants)


def output_of(model: onnx.ModelProto, x: Array) -> Array:
    """The output of a model for an x of any shape."""
    free = deepcopy(model)
    for info in (*free.graph.input, *free.graph.output):
        info.type.tensor_type.ClearField("shape")
    return run(free, {free.graph.input[0].name: x})[0]


def runnable(kind: str) -> list[tuple[Sample, onnx.ModelProto, Array, Op]]:
    """The samples of float32 that onnxruntime computes, each with its model, its x and its op."""
    found = []
    for sample in samples(kind, is_thorough=False):
        node = sample.model.graph.node[0]
        try:
            model, x = with_constants(sample), sample.feeds[0][node.input[0]]
            output_of(model, x)
        except Exception:  # onnxruntime lacks the kernel, or the inputs do not go together
            continue
        if len(node.output) == 1 and x.dtype == np.float32:
            (op,) = lifted(model).ops
            found.append((sample, model, x, op))
    return found


def applied(map: LinearMap, x: Array) -> Array:
    """The reference: the map of a LinearMap applied with numpy."""
    result = np.moveaxis(np.tensordot(map.matrix, x.astype(np.float64), axes=(1, map.axis)), 0, map.axis)
    return result + map.shift.reshape([-1 if axis == map.axis else 1 for axis in range(x.ndim)])


def close(one: Array, other: Array) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", MAPS)
def test_maps_are_what_they_say(kind: str) -> None:
    """`linear_map` describes the op, and the op with the constants of another map computes that map."""
    proven = 0
    for sample, model, x, op in runnable(kind):
        map = facts(op).linear_map(op)
        if map is None:
            continue
        assert facts(op).mapped_axis(op) == map.axis, sample
        assert close(output_of(model, x), applied(map, x)), sample
        proven += 1
        generator = np.random.default_rng(0)
        for shift in (np.zeros(6), generator.normal(size=6)):
            other = LinearMap(map.axis, generator.normal(size=(6, map.extents[1])), shift)
            constants = facts(op).with_linear_map(op, other)
            assert constants is not None or shift.any(), sample
            if constants is not None:
                rounded = {index: array.astype(np.float32) for index, array in constants.items()}
                assert close(output_of(with_constants(sample, rounded), x), applied(other, x)), sample
    assert bool(proven) == (kind != "ConvTranspose")


@pytest.mark.parametrize("kind", AVERAGES)
def test_averages_commute_with_maps(kind: str) -> None:
    """Averages commute with maps along every other axis, shift included; an average over no axes is the identity."""
    proven = 0
    for sample, model, x, op in runnable(kind):
        averaged = facts(op).averaged_axes(op)
        if averaged is None:
            continue
        y = output_of(model, x)
        assert averaged or np.array_equal(x, y), sample
        for axis in set(range(x.ndim)) - averaged:
            generator, extent = np.random.default_rng(axis), x.shape[axis]
            changed = facts(op).shape_edits(op, axis, extent + 3)
            wide = extent if changed is None else extent + 3
            map = LinearMap(axis, generator.normal(size=(wide, extent)), generator.normal(size=wide))
            after = with_numbers(sample, changed or {})
            try:
                found = output_of(after, applied(map, x).astype(np.float32))
            except Exception as error:
                pytest.fail(f"{sample}: {error}")
            assert close(found, applied(map, y)), f"{sample}: axis {axis}"
            proven += 1
    assert bool(proven) == (kind in ("Resize", "Upsample", "AveragePool", "GlobalAveragePool"))


@pytest.mark.parametrize("kind", RENAMES)
def test_renames_keep_the_axes_that_they_say(kind: str) -> None:
    """A view op preserves the index along each axis that it maps to an axis of its result."""
    proven = 0
    for sample, _, x, op in runnable(kind):
        rule = rule_of(op)
        for axis in range(x.ndim) if isinstance(rule, View) else ():
            place = rule.unmerged_axis(op, axis)
            if place is None:
                continue
            for extent, changed in (
                (x.shape[axis], {}),
                (x.shape[axis] + 3, facts(op).shape_edits(op, axis, x.shape[axis] + 3)),
            ):
                if changed is None:
                    continue
                shape = (*x.shape[:axis], extent, *x.shape[axis + 1 :])
                y = output_of(with_numbers(sample, changed), np.indices(shape)[axis].astype(np.float32))
                assert np.array_equal(y, np.indices(y.shape)[place]), f"{sample}: axis {axis}, extent {extent}"
                assert y.shape[place] == extent
                proven += 1
    assert proven


# --- Reshapes with computed targets ------------------------------------------------------------------------

CHANNELS, OTHERS = 2, 5
NAMES = ("N", "H", "W")


def reshaped(shape: tuple[int, ...], target: tuple[int, ...], allowzero: bool) -> tuple[int, ...] | None:
    """The reference result of a Reshape; None if onnxruntime refuses it."""
    if not allowzero:
        if any(dim == 0 and axis >= len(shape) for axis, dim in enumerate(target)):
            return None
        target = tuple(shape[axis] if dim == 0 else dim for axis, dim in enumerate(target))
    elif 0 in target and -1 in target:
        return None
    rest = prod(dim for dim in target if dim != -1)
    if min(target, default=0) < -1 or target.count(-1) > 1:
        return None
    if -1 in target:
        if rest == 0 or prod(shape) % rest:
            return None
        target = tuple(prod(shape) // rest if dim == -1 else dim for dim in target)
    return target if prod(target) == prod(shape) else None


def at(dims: tuple[Dim, ...], sizes: dict[str, int]) -> tuple[int, ...]:
    found = [Extent.of(dim).at(sizes) for dim in dims]
    return tuple(dim for dim in found if dim is not None)


@st.composite
def grouped(draw: st.DrawFn, factors: list[Dim]) -> list[Dim]:
    """Axes that factors are multiplied up to, in their order; some of extent 1."""
    axes: list[list[Dim]] = []
    for factor in factors:
        if not axes or draw(st.booleans()):
            axes.append([])
        axes[-1].append(factor)
    for place in sorted(draw(st.lists(st.integers(0, len(axes)), max_size=1))):
        axes.insert(place, [])
    return [product_of(axis) for axis in axes]


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[Op, int]:
    """A Reshape and the axis of the channels in x, with each extent of its target computed, a number, 0 for a copy or -1."""
    factor = st.sampled_from([*map(Extent.of_atom, NAMES), 1, CHANNELS, 3])
    before, after = draw(st.lists(factor, max_size=3)), draw(st.lists(factor, max_size=3))
    front, back = draw(grouped(before)), draw(grouped(after))
    x: Shape = (*front, CHANNELS, *back)
    y: Shape = (*draw(grouped(before)), CHANNELS, *draw(grouped(after)))
    allowzero = draw(st.booleans())
    target: list[Dim | None] = list(y)
    for axis, dim in enumerate(y):
        if not allowzero and axis < len(x) and x[axis] == dim and draw(st.booleans()):
            target[axis] = 0
    if draw(st.booleans()):
        target[draw(st.integers(0, len(y) - 1))] = -1
    source = Value("x", TensorType(DType.FLOAT32, x))
    list_of = Value("target", TensorType(DType.INT64, (len(y),)))
    list_of.elements = tuple(target)
    result = Value("y", TensorType(DType.FLOAT32, y))
    op = Op("Reshape", (source, list_of), (result,), version=18, attributes={"allowzero": int(allowzero)})
    return op, len(front)


@given(reshapes())
def test_other_channels_go_the_same_way(case: tuple[Op, int]) -> None:
    """With the edited target, a Reshape of OTHERS channels gives the same axes around them, and preserves their order."""
    op, axis = case
    rule, allowzero = rule_of(op), bool(op.integer("allowzero"))
    x, y, elements = op.inputs[0], op.outputs[0], op.elements(1)
    changed = facts(op).shape_edits(op, axis, OTHERS)
    if changed is None:
        return
    place = rule.unmerged_axis(op, axis)
    assert place is not None and y.shape[place] == CHANNELS
    numbers = changed.get(1, {})
    assert all(isinstance(elements[each], int) for each in numbers)
    known = tuple(element for element in elements if element is not None)
    for point in product(range(4), repeat=len(NAMES)):
        sizes = dict(zip(NAMES, point, strict=True))
        before, target = at(x.shape, sizes), at(known, sizes)
        result = reshaped(before, target, allowzero)
        if result is None or result[place] != CHANNELS:
            continue
        wide = (*before[:axis], OTHERS, *before[axis + 1 :])
        other = tuple(numbers.get(index, dim) for index, dim in enumerate(target))
        found = reshaped(wide, other, allowzero)
        assert found == (*result[:place], OTHERS, *result[place + 1 :]), (sizes, wide, other)
        assert np.array_equal(np.indices(wide)[axis].reshape(found), np.indices(found)[place])
