"""Element-wise ops on long rows, split Transposes and means of integers, which return the same integers."""

import numpy as np
import onnx
import pytest
from integer_models import kinds, model_of, rewritten, run, scalar

import layoutopt
from layoutopt.cost.size_growth import Growth
from layoutopt.dialects.onnxruntime.integer.costs import kernel_costs
from layoutopt.dialects.onnxruntime.integer.split_transposes import SplitTransposes, reversed_groups
from layoutopt.dialects.onnxruntime.integer.widen_rows import WidenRows

ROWS = """agraph (uint8[{n},56,56,16] q, uint8[{n},1,1,16] s) => (uint8[{n},56,56,16] p) {{
    a = com.microsoft.QLinearMul (q, xs, xz, c, ys, xz, ys, yz)
    b = com.microsoft.QLinearAdd (c, ys, xz, a, ys, yz, xs, xz)
    p = com.microsoft.QLinearMul (b, xs, xz, s, ys, xz, ys, yz)
}}"""


def rows_model(samples: int) -> onnx.ModelProto:
    return model_of(
        ROWS.format(n=samples),
        xs=scalar(0.02),
        ys=scalar(0.3),
        xz=scalar(11, np.uint8),
        yz=scalar(100, np.uint8),
        c=np.random.default_rng(0).integers(0, 256, (1, 1, 16)).astype(np.uint8),
    )


@pytest.mark.parametrize("samples", [1, 2])
def test_rows_are_merged_with_one_reshape_at_either_end(samples: int) -> None:
    model = rows_model(samples)
    graph, result = rewritten(model, WidenRows())
    chain = ["QLinearMul", "QLinearAdd", "QLinearMul"]
    assert [kind for kind in kinds(graph) if kind.startswith("QLinear")] == chain
    between = [op.inputs[0] for op in graph.ops if op.op_type == "QLinearMul"]
    assert all(value is not None and value.shape == (samples, 56, 56 * 16) for value in between)
    random = np.random.default_rng(1)
    feed = {name: random.integers(0, 256, (samples, *size)).astype(np.uint8) for name, size in
            (("q", (56, 56, 16)), ("s", (1, 1, 16)))}  # fmt: skip
    for optimised in (False, True):
        expected = run(model.SerializeToString(), feed, is_optimised=optimised)
        np.testing.assert_array_equal(run(result, feed, is_optimised=optimised), expected)


def test_rows_stay_short_where_constants_may_not_grow() -> None:
    model = rows_model(1)
    graph, _ = rewritten(model, WidenRows(), Growth(max_growth=1.0, source_bytes=-(1 << 30)))
    assert not any(value.name.startswith("c/columns") for value in graph.values)


@pytest.mark.parametrize(
    ("shape", "perm", "extents"),
    [
        ((1, 144, 256, 4), (0, 3, 2, 1), (144, 256, 4)),
        ((1, 12, 12, 256, 1, 4), (0, 4, 5, 3, 1, 2), (144, 256, 4)),
        ((32, 64, 16), (2, 1, 0), (32, 64, 16)),
    ],
)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_a_reversal_of_three_groups_of_axes_is_split(
    shape: tuple[int, ...], perm: tuple[int, ...], extents: tuple[int, int, int], dtype: str
) -> None:
    assert reversed_groups(shape, perm) == extents
    result_shape = [shape[axis] for axis in perm]
    model = model_of(
        f"agraph ({dtype}{list(shape)} q) => ({dtype}{result_shape} p) {{ p = Transpose <perm = {list(perm)}> (q) }}"
    )
    graph, result = rewritten(model, SplitTransposes())
    assert kinds(graph).count("Transpose") == 2
    feed = {"q": np.random.default_rng(0).integers(0, 128, shape).astype(dtype)}
    for optimised in (False, True):
        np.testing.assert_array_equal(run(result, feed, is_optimised=optimised)[0], feed["q"].transpose(perm))


@pytest.mark.parametrize(
    ("shape", "perm"),
    [((8, 16, 32), (0, 2, 1)), ((8, 16, 32), (1, 2, 0)), ((8, 1, 32), (2, 1, 0)), ((2, 3, 4, 5), (3, 2, 1, 0))],
)
def test_transposes_that_are_no_reversal_of_three_groups(shape: tuple[int, ...], perm: tuple[int, ...]) -> None:
    assert reversed_groups(shape, perm) is None


MEAN = """agraph (uint8[1,{image}] q) => (uint8[1,1,1,8] p) {{
    a = DequantizeLinear (q, xs, xz)
    m = ReduceMean <keepdims = 0> (a, axes)
    v = Reshape (m, shape)
    p = QuantizeLinear (v, xs, xz)
}}"""


@pytest.mark.parametrize(("image", "axes"), [("12,14,8", (1, 2)), ("8,12,14", (-2, -1))])
def test_a_mean_that_is_reshaped_before_it_is_quantised_is_computed_on_integers(
    image: str, axes: tuple[int, ...]
) -> None:
    model = model_of(
        MEAN.format(image=image),
        xs=scalar(0.0231),
        xz=scalar(11, np.uint8),
        axes=np.array(axes, np.int64),
        shape=np.array([1, 1, 1, -1], np.int64),
    )
    result = layoutopt.optimize(model, "cpu")
    assert "QLinearGlobalAveragePool" in [node.op_type for node in result.proto.graph.node]
    feed = {"q": np.random.default_rng(0).integers(0, 256, (1, *map(int, image.split(",")))).astype(np.uint8)}
    np.testing.assert_array_equal(run(result.proto.SerializeToString(), feed), run(model.SerializeToString(), feed))


def test_the_costs_have_every_op_that_the_passes_look_up() -> None:
    needed = {"QLinearAdd", "QLinearMul", "QLinearConv", "DequantizeLinear", "QuantizeLinear", "Reshape", "Tile"}
    needed |= {"Transpose, reversed", "Transpose, split"}
    needed |= {"Add", "Sub", "Mul", "Div"}
    assert needed <= kernel_costs().keys()
