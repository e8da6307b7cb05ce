"""No byte without a reason: equal content is stored once, stored types stay, and growth has a limit."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from parsed_models import parsed
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

CHANNELS, IMAGE = 32, 12
HEAD = '<ir_version: 9, opset_import: ["" : 17]> g'
IN_BRANCHES = f"""{HEAD} (float[1,{CHANNELS},{IMAGE},{IMAGE}] x) => (float[?,?,?,?] y) {{
    a = Conv <pads = [1, 1, 1, 1]> (x, w)
    total = ReduceSum <keepdims = 0> (a)
    is_positive = Greater (total, zero)
    y = If (is_positive) <
        then_branch = t () => (float[?,?,?,?] r) {{ f = Identity (w) c = Conv <pads = [1, 1, 1, 1]> (a, f) r = Relu (c) }},
        else_branch = e () => (float[?,?,?,?] s) {{ g = Identity (w) d = Conv <pads = [1, 1, 1, 1]> (a, g) s = Tanh (d) }}>
}}"""
"""Both branches of an If read the filter of the main graph, under names of their own for it."""


def random(*shape: int, dtype: type = np.float32, seed: int = 0) -> Array:
    numbers = np.random.default_rng(seed).standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    if np.issubdtype(dtype, np.integer):
        return np.clip(np.round(numbers * 127 * np.sqrt(np.prod(shape[1:])) / 3), -127, 127).astype(dtype)
    return numbers.astype(dtype)


def filters(dtype: type = np.float32, seed: int = 0) -> Array:
    return random(CHANNELS, CHANNELS, 3, 3, dtype=dtype, seed=seed)


def chain(layers: int, weight: str, made: str = "", affine: str = "", **constants: Array) -> onnx.ModelProto:
    """Convolutions and Relus one behind the other; the number of the layer takes the place of #."""
    layer = f"{made} c# = Conv <pads = [1, 1, 1, 1]> (h#, {weight}) "
    layer += f"a# = {affine} (c#, b#) h#+ = Relu (a#)" if affine else "h#+ = Relu (c#)"
    body = " ".join(layer.replace("#+", str(number + 1)).replace("#", str(number)) for number in range(layers))
    image = f"float[1,{CHANNELS},{IMAGE},{IMAGE}] h0"
    return parsed(f"{HEAD} ({image}) => (float[?,?,?,?] h{layers}) {{ {body} }}", **constants)


def each(layers: int, dtype: type = np.float32, period: int = 100) -> dict[str, Array]:
    """A filter for every layer; those of `period` layers are different."""
    return {f"w{layer}": filters(dtype, layer % period) for layer in range(layers)}


def repeated_constants() -> onnx.ModelProto:
    model = chain(6, "w#")
    for layer in range(6):
        value = numpy_helper.from_array(filters())
        model.graph.node.insert(0, helper.make_node("Constant", [], [f"w{layer}"], value=value))
    return model


def numbers_per_channel() -> dict[str, Array]:
    return {f"b{layer}": random(1, CHANNELS, 1, 1, seed=layer) + 1 for layer in range(6)}


SCALE = np.full((CHANNELS, 1, 1, 1), 0.002, np.float32)
STEP: dict[str, Any] = {"scale": np.full((CHANNELS,), 0.002, np.float32), "zero": np.zeros((CHANNELS,), np.int8)}
TIED = f"""{HEAD} (float[1,16] x) => (float[?,?,?] y) {{
    ids = Cast <to = 7> (x) a = Gather (w, ids) b = MatMul (a, v) c = Relu (b)
    t = Transpose <perm = [1, 0]> (w) y = MatMul (c, t)
}}"""
ANGLES = f"""{HEAD} (float[1,1024] x) => (float[?,?] y) {{
    angles = Mul (column, row) table = Cos (angles) y = MatMul (x, table)
}}"""
"""Tables of cosines that a model computes from two short ranges."""
COLUMN = np.arange(1024, dtype=np.float32)[:, None]

by_many_layers = partial(chain, 30, "w", w=filters())
repeated = partial(chain, 8, "w#", **each(8, period=2))
half = partial(chain, 8, "f#", "f# = Cast <to = 1> (w#)", **each(8, np.float16))
full = partial(chain, 8, "w#", **{name: array.astype(np.float32) for name, array in each(8, np.float16).items()})
"""`half` without the Casts, and with the same numbers."""
fourier_tables = partial(parsed, ANGLES, column=COLUMN, row=COLUMN.T * np.float32(2 * np.pi / 1024))

MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "by_identity": partial(chain, 6, "f#", "f# = Identity (w)", w=filters()),
    "by_many_layers": by_many_layers,
    "repeated": repeated,
    "repeated_constants": repeated_constants,
    "transposed_by_each": partial(chain, 6, "f#", "f# = Transpose <perm = [1, 0, 2, 3]> (w)", w=filters()),
    "half": half,
    "scaled_integers": partial(
        chain, 12, "f#", "i# = Cast <to = 1> (w#) f# = Mul (i#, scale)", **each(12, np.int8), scale=SCALE
    ),
    "dequantized": partial(
        chain, 6, "f#", "f# = DequantizeLinear <axis = 0> (w#, scale, zero)", **each(6, np.int8), **STEP
    ),
    "tied_embeddings": partial(parsed, TIED, w=random(512, 64), v=random(64, 64)),
    "fourier_tables": fourier_tables,
    "in_branches": partial(parsed, IN_BRANCHES, w=filters(), zero=np.float32(0)),
    "with_own_biases": partial(chain, 6, "w", affine="Add", w=filters(), **numbers_per_channel()),
    "scaled_channels": partial(chain, 6, "w#", affine="Mul", **each(6), **numbers_per_channel()),
}

SLACK = 1 << 20  # bytes
LARGE = 1024  # bytes
TARGETS = ("cpu", "cpu-avx512", "gpu-hopper", "ascend-910b")
QUICK = [(name, TARGETS[place % len(TARGETS)]) for place, name in enumerate(MODELS)]


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


@pytest.mark.parametrize(("name", "target"), quick_first(QUICK, product(MODELS, TARGETS)))
def test_equal_content_is_stored_once(name: str, target: str) -> None:
    source = MODELS[name]()
    result = layoutopt.optimize(source, target)
    assert result.report.verification.status == "passed"
    if result.report.changed:
        assert_without_repetition(result.proto)
    assert_small(result.proto, source, 2.2)


@pytest.mark.parametrize(("name", "target"), tiered(WIDTHS, len(NARROW)))
def test_weights_stay_in_the_type_in_which_they_are_stored(name: str, target: str) -> None:
    source = MODELS[name]()
    result = layoutopt.optimize(source, target)
    large = [array for array in constants(result.proto) if array.nbytes > 4096]
    growth = result.report.growth
    assert growth is not None or name == "dequantized"
    if growth is None or not any(each.source == "winograd" and each.is_accepted for each in growth.requests):
        assert {array.dtype.name for array in large} == {np.dtype(NARROW[name]).name}
        assert_small(result.proto, source, 1.0)


@pytest.mark.parametrize("target", ["cpu-avx512", "ascend-910b"])
def test_narrow_weights_are_planned_as_wide_ones(target: str) -> None:
    reports = [layoutopt.optimize(each(), target, verify=False).report for each in (half, full)]
    plans = [report.plan for report in reports]
    assert plans[0].seconds_after == pytest.approx(plans[1].seconds_after)
    assert reports[0].after == reports[1].after


@pytest.mark.parametrize("name", ["by_identity", "by_many_layers", "transposed_by_each", "in_branches"])
def test_a_shared_weight_is_packed_once(name: str) -> None:
    source = MODELS[name]()
    result = layoutopt.optimize(source, "cpu-avx512", dialect="ops", max_growth=1.0, verify=False)
    weights = [array for array in constants(result.proto) if array.size >= filters().size]
    assert len(weights) == 1


def test_a_table_may_take_its_place_only_within_the_total() -> None:
    result = layoutopt.optimize(fourier_tables(), "cpu", verify=False)
    assert sum(array.nbytes for array in constants(result.proto)) <= 128 << 10


def test_parameters_that_are_trained_stay_separate() -> None:
    """Equal when training begins, they need not be equal afterwards."""
    model = repeated()
    result = layoutopt.optimize(model, "ascend-910b", dialect="ascend", mode="training", verify=False)
    assert result.report.changed
    names = {tensor.name for tensor in model.graph.initializer}
    assert {tensor.name for tensor in result.proto.graph.initializer} == names and len(names) > 2


def test_copies_in_other_formats_are_declined_where_there_is_no_room() -> None:
    graph = inference.lift(ir.from_proto(by_many_layers()))
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


# --- memory ----------------------------------------------------------------------------------------------

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
WIDE_CHANNELS = 512
FILTER = WIDE_CHANNELS * WIDE_CHANNELS * 9 * 4  # bytes
MEMORY = 8 * FILTER  # reported as available, so that segments have one filter

SCRIPT = """
import sys, threading, time
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import large, large_models, layoutopt, os
from layoutopt.onnx_io import serialize, writer
from layoutopt.verification import parts

parts.available_bytes = writer.available_bytes = lambda: int(sys.argv[4])
serialize._WITH_WEIGHTS = 0
path = large_models.convolutions(Path(sys.argv[2]), int(sys.argv[3]), channels=int(sys.argv[5]), side=3)
peak = [0]

def poll():
    while True:
        peak[0] = max(peak[0], large.anonymous_bytes(os.getpid()))
        time.sleep(0.002)

threading.Thread(target=poll, daemon=True).start()
result = layoutopt.optimize(path, "ascend-910b", measure=False, calibrate=False)
assert result.report.changed and result.report.verification.reason.startswith("segment by segment, one of")
result.save(path.with_name("out.onnx"))
print(peak[0])
"""


def peak(folder: Path, blocks: int) -> int:
    """The peak of anonymous memory in bytes, for a model of two filters per block."""
    folder.mkdir()
    command = [sys.executable, "-c", SCRIPT, BENCHMARKS, folder, blocks, MEMORY, WIDE_CHANNELS]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_weights_are_not_held(tmp_path: Path) -> None:
    few, many = peak(tmp_path / "few", 1), peak(tmp_path / "many", 5)
    assert many - few < 2 * FILTER, f"8 filters of {FILTER:,} bytes more take {many - few:,} bytes"
