"""Laws of channel-wise linear maps, averages and view ops, which the passes that move and merge maps rely on.

Every sample of the laws of layout rules is tested, with all inputs but the first as constants, if its rule declares one of
these properties.
"""

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest
from test_rules_handmade import Sample, made, run
from test_rules_samples import samples

from layoutopt.ir.types import Array, Op
from layoutopt.ops import LinearMap, View, facts, rule_of, rules
from layoutopt.testing.rules import lifted

MAPS = ("Conv", "MatMul", "Gemm", "ConvTranspose")
AVERAGES = ("Resize", "Upsample", "AveragePool", "GlobalAveragePool", "MaxPool", "LpPool", "GlobalMaxPool")
RENAMES = tuple(kind for kind, rule in rules().items() if isinstance(rule, View))


def with_constants(sample: Sample, constants: dict[int, Array] | None = None) -> onnx.ModelProto:
    """The model of a sample with all inputs but the first as constants, some of them replaced by `constants`."""
    model = onnx.ModelProto()
    model.CopyFrom(sample.model)
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


def op_of(model: onnx.ModelProto) -> Op:
    (op,) = lifted(model).ops
    return op


def first(sample: Sample) -> Array:
    return sample.feeds[0][sample.model.graph.node[0].input[0]]


def output_of(model: onnx.ModelProto, x: Array) -> Array:
    """The output of a model for an x of any shape."""
    free = onnx.ModelProto()
    free.CopyFrom(model)
    for info in (*free.graph.input, *free.graph.output):
        info.type.tensor_type.ClearField("shape")
    return run(free, {free.graph.input[0].name: x})[0]


def runnable(kind: str, extra: tuple[Sample, ...] = ()) -> list[Sample]:
    """The samples of float32 that onnxruntime computes."""
    found = []
    for sample in (*samples(kind, is_thorough=False), *extra):
        try:
            if len(sample.model.graph.node[0].output) == 1 and first(sample).dtype == np.float32:
                output_of(with_constants(sample), first(sample))
                found.append(sample)
        except Exception:  # onnxruntime lacks the kernel, or the inputs do not go together
            continue
    return found


def applied(map: LinearMap, x: Array) -> Array:
    """The reference: the map of a LinearMap applied with numpy."""
    result = np.moveaxis(np.tensordot(map.matrix, x.astype(np.float64), axes=(1, map.axis)), 0, map.axis)
    return result + map.shift.reshape([-1 if axis == map.axis else 1 for axis in range(x.ndim)])


def close(one: Array, other: Array) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-4, atol=1e-4)


MADE = {
    "Conv": (
        made("y = Conv (x, w)", x=(2, 5, 3, 4), w=(7, 5, 1, 1)),
        made('y = Conv <auto_pad="SAME_UPPER"> (x, w, b)', x=(1, 5, 6), w=(3, 5, 1), b=(3,)),
        made("y = Conv <group=5> (x, w)", x=(2, 5, 3, 4), w=(5, 1, 1, 1)),
        made("y = Conv <strides=[2,2]> (x, w)", x=(2, 5, 3, 4), w=(7, 5, 1, 1)),
        made("y = Conv <pads=[1,0,0,0]> (x, w, b)", x=(2, 5, 3, 4), w=(7, 5, 1, 1), b=(7,)),
    ),
    "MatMul": (made("y = MatMul (x, w)", x=(2, 3, 5), w=(5, 4)), made("y = MatMul (x, w)", x=(2, 3, 5), w=(2, 5, 4))),
    "Gemm": (
        made("y = Gemm <transB=1> (x, w, b)", x=(3, 5), w=(4, 5), b=(4,)),
        made("y = Gemm (x, w, b)", x=(3, 5), w=(5, 4), b=(1, 4)),
        made("y = Gemm (x, w, b)", x=(3, 5), w=(5, 4), b=(3, 1)),
        made("y = Gemm <alpha=2.0> (x, w)", x=(3, 5), w=(5, 4)),
    ),
}


@pytest.mark.parametrize("kind", MAPS)
def test_maps_are_what_they_say(kind: str) -> None:
    """`linear_map` describes the op, and the op with the constants of another map computes that map."""
    proven = 0
    for sample in runnable(kind, MADE.get(kind, ())):
        model, x = with_constants(sample), first(sample)
        op = op_of(model)
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
    for sample in runnable(kind):
        model, x = with_constants(sample), first(sample)
        op = op_of(model)
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
    for sample in runnable(kind):
        model, x = with_constants(sample), first(sample)
        op = op_of(model)
        rule = rule_of(op)
        for axis in range(x.ndim) if isinstance(rule, View) else ():
            assert isinstance(rule, View)
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
