"""Convolutions in NHWC of onnxruntime's CUDA execution provider: written, equal by definition, loadable up to the kernel."""

from functools import partial

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
import zoo
from cuda_results import PINS, WAY, kinds
from onnx import helper, numpy_helper

import layoutopt
from layoutopt.cost_models import find_runtime, load_target
from layoutopt.dialects.onnxruntime_cuda import NHWC_CONV
from layoutopt.formats import lookup
from layoutopt.runtime.definitions import CUDA, define
from layoutopt.verification import verify_models


def pair(dtype: type, filters: tuple[int, ...], *, bias: bool = True, **attributes: object) -> onnx.ModelProto:
    """Two convolutions of 64 channels with an activation between."""
    generator = np.random.default_rng(0)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    image = [1, 64, *[56] * (len(filters) - 2)]
    constants = {"v": generator.normal(size=filters), "w": generator.normal(size=filters)}
    if bias:
        constants |= {"a": generator.normal(size=filters[0]), "b": generator.normal(size=filters[0])}
    nodes = [
        helper.make_node("Conv", ["x", "v", *(["a"] if bias else [])], ["s"], "first", **attributes),
        helper.make_node("Relu", ["s"], ["t"], "relu"),
        helper.make_node("Conv", ["t", "w", *(["b"] if bias else [])], ["y"], "second", **attributes),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, image)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(array.astype(dtype), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.mark.parametrize(
    ("dtype", "filters", "attributes"),
    [
        (np.float16, (64, 64, 3, 3), {"pads": [1, 1, 1, 1]}),
        (np.float16, (64, 64, 1, 1), {}),
        (np.float16, (64, 64, 3, 3), {"auto_pad": "SAME_UPPER"}),
        (np.float16, (64, 32, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
        (np.float32, (64, 1, 3, 3), {"group": 64, "pads": [1, 0, 0, 1], "dilations": [2, 1]}),
        (np.float16, (64, 64, 3, 2), {"strides": [2, 1], "pads": [1, 1, 0, 0], "kernel_shape": [3, 2]}),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_convolutions_are_written_in_nhwc(
    dtype: type, filters: tuple[int, ...], attributes: dict[str, object], bias: bool
) -> None:
    result = layoutopt.optimize(pair(dtype, filters, bias=bias, **attributes), pins=PINS, **WAY)
    assert kinds(result.proto)[NHWC_CONV] == 2
    assert result.report.verification.status == "passed"
    stored = {tuple(tensor.dims) for tensor in result.proto.graph.initializer if len(tensor.dims) == 4}
    assert stored == {(filters[0], *filters[2:], filters[1])}
    with pytest.raises(Exception, match=f"NOT_IMPLEMENTED.*{NHWC_CONV}"):  # types and shapes passed
        onnxruntime.InferenceSession(result.proto.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    ("dtype", "filters"), [(np.float64, (64, 64, 3, 3)), (np.float16, (64, 64, 3)), (np.float16, (8, 64, 1, 1, 1))]
)
def test_what_the_kernel_does_not_take_stays_standard(dtype: type, filters: tuple[int, ...]) -> None:
    result = layoutopt.optimize(pair(dtype, filters), **WAY)
    assert not kinds(result.proto)[NHWC_CONV]
    assert {opset.domain for opset in result.proto.opset_import} == {""}


def test_a_computed_filter_stays_standard() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18]> g (float16[1,64,56,56] x, float16[64,64,3,3] w) => (float16[1,64,54,54] y)'
        "{ v = Relu (w) y = Conv (x, v) }"
    )
    result = layoutopt.optimize(model, **WAY)
    assert not kinds(result.proto)[NHWC_CONV]
    (op,) = (op for op in result.graph.ops if op.kind == "Conv")
    assert not find_runtime("onnxruntime-cuda").restricted(load_target("gpu-hopper")).preferred_formats(op)


def test_the_definition_finds_a_wrong_filter() -> None:
    """Verification runs what is written: another order of the filter's axes is another result."""
    original = pair(np.float32, (64, 1, 3, 3), group=64)
    result = layoutopt.optimize(original, pins=PINS, **WAY).proto
    assert CUDA.is_used_in(result)
    pins = {name: lookup(format) for name, format in PINS.items()}
    verify = partial(verify_models, original.SerializeToString(), pins=pins)
    assert verify(rewritten=result.SerializeToString()).status == "passed"
    filters = next(tensor for tensor in result.graph.initializer if len(tensor.dims) == 4)
    array = numpy_helper.to_array(filters).transpose(0, 2, 1, 3)
    filters.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), filters.name))
    assert verify(rewritten=result.SerializeToString()).status == "failed"


def test_a_model_without_such_operators_is_not_changed() -> None:
    model = pair(np.float32, (64, 64, 3, 3))
    content = model.SerializeToString()
    define(model, CUDA)
    assert model.SerializeToString() == content and not CUDA.is_used_in(model)
    assert CUDA.definition_domain not in {opset.domain for opset in model.opset_import}


def test_a_network_has_transposes_at_its_ends_only() -> None:
    result = layoutopt.optimize(zoo.load("mobilenetv2"), **WAY)
    found = kinds(result.proto)
    assert found[NHWC_CONV] >= 50 and found["Transpose"] <= 2
    assert result.report.verification.status == "passed"


def test_only_kernels_that_the_target_has_are_used() -> None:
    """A processor without channels-last convolutions has none in this runtime either."""
    model = find_runtime("onnxruntime-cuda").restricted(load_target("cpu-neon"))
    op = layoutopt.optimize(pair(np.float32, (64, 64, 3, 3)), "cpu-neon", runtime="any", verify=False).graph.ops[0]
    assert op.kind == "Conv" and not model.preferred_formats(op)
