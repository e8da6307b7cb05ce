"""No byte without a reason: equal content is stored once, stored types stay, and growth has a limit."""

from collections.abc import Iterator
from itertools import product

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import shared_weights
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper
from tiers import quick_first, tiered

import layoutopt
from layoutopt import inference
from layoutopt.cost.size_growth import Growth
from layoutopt.cost_models import load_target
from layoutopt.formats import Format
from layoutopt.ir.constants import representatives, stored_bytes
from layoutopt.ir.graph import insert_cast, is_cast
from layoutopt.ir.types import Array, ArrayData, DType, Storage, TensorType
from layoutopt.passes import AssignFormats, PretransformWeights, ShareCasts
from layoutopt.passes.base import PassContext

SLACK = 1 << 20  # bytes
LARGE = 1024  # bytes
TARGETS = ("cpu", "cpu-avx512", "gpu-hopper", "ascend-910b")
QUICK = [(name, TARGETS[place % len(TARGETS)]) for place, name in enumerate(shared_weights.MODELS)]


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        for each in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield from graphs(each)


def constants(model: onnx.ModelProto) -> Iterator[Array]:
    for graph in graphs(model.graph):
        yield from (numpy_helper.to_array(tensor) for tensor in graph.initializer)
        attributes = (each for node in graph.node if node.op_type == "Constant" for each in node.attribute)
        yield from (numpy_helper.to_array(attribute.t) for attribute in attributes if attribute.HasField("t"))


def assert_without_repetition(model: onnx.ModelProto) -> None:
    large = [array for array in constants(model) if array.nbytes > LARGE]
    contents = [(array.dtype, array.shape, array.tobytes()) for array in large]
    assert len(contents) == len(set(contents))


def assert_small(model: onnx.ModelProto, source: onnx.ModelProto, growth: float) -> None:
    assert model.ByteSize() <= growth * source.ByteSize() + SLACK


NARROW = {"half": np.float16, "scaled_integers": np.int8, "dequantized": np.int8}
WIDTHS = [(name, target) for target in ("cpu", "cpu-avx512", "ascend-910b") for name in NARROW]


@pytest.mark.parametrize(("name", "target"), quick_first(QUICK, product(shared_weights.MODELS, TARGETS)))
def test_equal_content_is_stored_once(name: str, target: str) -> None:
    source = shared_weights.MODELS[name]()
    result = layoutopt.optimize(source, target)
    assert result.report.verification.status == "passed"
    if result.report.changed:
        assert_without_repetition(result.proto)
    assert_small(result.proto, source, 2.2)


@pytest.mark.parametrize(("name", "target"), tiered(WIDTHS, len(NARROW)))
def test_weights_stay_in_the_type_in_which_they_are_stored(name: str, target: str) -> None:
    source = shared_weights.MODELS[name]()
    result = layoutopt.optimize(source, target)
    large = [array for array in constants(result.proto) if array.nbytes > 4096]
    growth = result.report.growth
    assert growth is not None or name == "dequantized"
    if growth is None or not any(each.source == "winograd" for each in growth.accepted):
        assert {array.dtype.name for array in large} == {np.dtype(NARROW[name]).name}
        assert_small(result.proto, source, 1.0)


@pytest.mark.parametrize("target", ["cpu-avx512", "ascend-910b"])
def test_narrow_weights_are_planned_as_wide_ones(target: str) -> None:
    reports = [
        layoutopt.optimize(each(), target, verify=False).report for each in (shared_weights.half, shared_weights.full)
    ]
    plans = [report.plan for report in reports]
    assert plans[0] is not None and plans[1] is not None
    assert plans[0].seconds_after == pytest.approx(plans[1].seconds_after)
    assert reports[0].after == reports[1].after


@pytest.mark.parametrize("name", ["by_identity", "by_many_layers", "transposed_by_each", "in_branches"])
def test_a_shared_weight_is_packed_once(name: str) -> None:
    source = shared_weights.MODELS[name]()
    result = layoutopt.optimize(source, "cpu-avx512", dialect="ops", max_growth=1.0, verify=False)
    weights = [array for array in constants(result.proto) if array.size >= shared_weights.filters().size]
    assert len(weights) == 1


def test_a_table_may_take_its_place_only_within_the_total() -> None:
    result = layoutopt.optimize(shared_weights.fourier_tables(), "cpu", verify=False)
    assert sum(array.nbytes for array in constants(result.proto)) <= 128 << 10


def test_parameters_that_are_trained_stay_separate() -> None:
    """Equal when training begins, they need not be equal afterwards."""
    model = shared_weights.repeated()
    result = layoutopt.optimize(model, "ascend-910b", dialect="ascend", mode="training", verify=False)
    assert result.report.changed
    names = {tensor.name for tensor in model.graph.initializer}
    assert {tensor.name for tensor in result.proto.graph.initializer} == names and len(names) > 2


def test_copies_in_other_formats_are_declined_where_there_is_no_room() -> None:
    graph = inference.lift(ir.from_proto(shared_weights.by_many_layers()))
    context = PassContext(load_target("gpu-hopper"), growth=Growth(1.0, 1 << 10))
    AssignFormats().run(graph, context)
    value = graph.value("w")
    wanted = [Storage(Format.parse(name)) for name in ("NHWC", "HWCN", "NHWC")]
    for op, storage in zip([use.op for use in graph.uses(value)], wanted, strict=False):
        graph.set_input(op, 1, insert_cast(graph, value, storage))
    ShareCasts().run(graph, context)
    before = stored_bytes(graph.regions())
    context.growth.source_bytes = before
    context.growth.max_growth = 1.0 - (SLACK // 2) / before
    PretransformWeights().run(graph, context)
    assert stored_bytes(graph.regions()) == before
    assert sum(is_cast(op) for op in graph.ops) == 2
    assert [each.is_accepted for each in context.growth.requests] == [False, False]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(1, 4))
def test_only_equal_content_has_one_representative(contents: list[int], period: int) -> None:
    """Arrays that agree where they are sampled are compared as a whole."""
    arrays = [np.zeros(4096, np.float32) for _ in contents]
    for array, content in zip(arrays, contents, strict=True):
        array[1 : 1 + content * period : period] = 1.0
    data = [ArrayData(array) for array in arrays]
    found = representatives((TensorType(DType.FLOAT32, (4096,)), each) for each in data)
    for first, second in product(range(len(data)), repeat=2):
        is_same = found[data[first]] is found[data[second]]
        assert is_same == (arrays[first].tobytes() == arrays[second].tobytes())
