"""Group normalisation in NHWC of onnxruntime's CUDA execution provider: written, fused, equal by definition."""

from collections import Counter
from functools import partial
from typing import Any

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
from layoutopt.dialects.onnxruntime_cuda import GROUP_NORM, NHWC_CONV, SKIP_GROUP_NORM
from layoutopt.formats import lookup
from layoutopt.ops.signatures import X, Y
from layoutopt.runtime.definitions import CUDA, define
from layoutopt.runtime.session import Session
from layoutopt.verification import verify_models


def fill(model: onnx.ModelProto, scale: float = 0.1, **shapes: tuple[int, ...]) -> onnx.ModelProto:
    """A model with random constants of the type of its first input."""
    generator = np.random.default_rng(1)
    dtype = helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    for name, shape in shapes.items():
        array = generator.normal(size=shape, scale=scale).astype(dtype)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def between(
    body: str, dtype: str = "float16", opset: int = 21, groups: int = 8, image: str = "56,56"
) -> onnx.ModelProto:
    """A convolution, the body from t to u, another convolution; scale g and bias h per channel of 64."""
    taps = (1,) * (image.count(",") + 1)
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : {opset}]> m ({dtype}[2,64,{image}] x) => ({dtype}[2,64,{image}] y)
        {{ t = Conv (x, v) {body.replace("GROUPS", str(groups))} y = Conv (u, w) }}"""
    )
    return fill(model, v=(64, 64, *taps), w=(64, 64, *taps), g=(64,), h=(64,), a=(64, 1, 1), b=(64, 1, 1))


ONNX = "u = GroupNormalization <num_groups = GROUPS, epsilon = 0.001> (t, g, h)"


SILU = "n = GroupNormalization <num_groups = GROUPS> (t, g, h) s = Sigmoid (n) u = Mul (s, n)"


EXPORTED = """
    r = Constant <value_ints = [0, GROUPS, -1]> () k = Constant <value_ints = [2, 64, 56, 56]> ()
    i = Reshape (t, r) j = InstanceNormalization <epsilon = 0.00001> (i, one, zero) l = Reshape (j, k)
    m = Mul (l, a) n = Add (m, b) s = Sigmoid (n) u = Mul (n, s)"""


def exported(dtype: str, opset: int = 14, groups: int = 8) -> onnx.ModelProto:
    """The normalisation as exporters write it before opset 21, and SiLU."""
    model = between(EXPORTED, dtype, opset, groups)
    kind = helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    for name, number in (("one", 1), ("zero", 0)):
        model.graph.initializer.append(numpy_helper.from_array(np.full(groups, number, dtype=kind), name))
    return model


def written(model: onnx.ModelProto, **options: Any) -> Counter[str]:
    """The operators of the result, which is verified by definition and loaded up to a missing kernel."""
    result = layoutopt.optimize(model, pins=PINS, **WAY, **options)
    assert result.report.verification.status == "passed", result.report.verification
    with pytest.raises(Exception, match=r"NOT_IMPLEMENTED.*(GroupNorm|NhwcConv)"):  # types and shapes passed
        onnxruntime.InferenceSession(result.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    gamma, *_ = [node.input[1] for node in result.proto.graph.node if node.op_type.endswith(GROUP_NORM)] or [""]
    types = {tensor.name: tensor.data_type for tensor in result.proto.graph.initializer}
    assert types.get(gamma, onnx.TensorProto.FLOAT) == onnx.TensorProto.FLOAT
    return kinds(result.proto)


@pytest.mark.parametrize("dtype", ["float", "float16"])
@pytest.mark.parametrize("body", [ONNX, SILU])
def test_group_normalisations_are_written_in_nhwc(body: str, dtype: str) -> None:
    assert written(between(body, dtype)) == {NHWC_CONV: 2, GROUP_NORM: 1}


@pytest.mark.parametrize(("dtype", "opset"), [("float", 13), ("float16", 14), ("float16", 18)])
def test_an_exporters_group_normalisation_is_written_in_nhwc(dtype: str, opset: int) -> None:
    """Before opset 15 a definition takes the element type that the model declares."""
    assert written(exported(dtype, opset)) == {NHWC_CONV: 2, GROUP_NORM: 1}


def test_computed_parameters_are_converted() -> None:
    """To float32."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 21]> m (float16[2,64,56,56] x, float16[64] d) => (float16[2,64,56,56] y)
        {{ c = Relu (d) t = Conv (x, v) {ONNX.replace("(t, g, h)", "(t, c, h)").replace("GROUPS", "8")} y = Conv (u, w) }}"""
    )
    found = written(fill(model, v=(64, 64, 1, 1), w=(64, 64, 1, 1), h=(64,)))
    assert found == {NHWC_CONV: 2, GROUP_NORM: 1, "Cast": 1, "Relu": 1}


@pytest.mark.parametrize("image", ["300", "6,7,8"])
def test_signals_and_volumes_are_reshaped(image: str) -> None:
    """The kernel has four axes."""
    rank = image.count(",") + 3
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 21]> m (float[2,64,{image}] x) => (float[2,64,{image}] y)
        {{ y = GroupNormalization <num_groups = 8> (x, g, h) }}"""
    )
    pins = dict.fromkeys("xy", {3: "NWC", 5: "NDHWC"}[rank])
    result = layoutopt.optimize(fill(model, g=(64,), h=(64,)), pins=pins, **WAY)
    assert kinds(result.proto) == {GROUP_NORM: 1, "Reshape": 2}
    assert result.report.verification.status == "passed"


def test_symbolic_extents() -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 21]> m (float[B,64,H,8] x) => (float[B,64,H,8] y)
        {{ t = Conv (x, v) {SILU.replace("GROUPS", "8")} y = Conv (u, w) }}"""
    )
    model = fill(model, v=(64, 64, 1, 1), w=(64, 64, 1, 1), g=(64,), h=(64,))
    assert written(model) == {NHWC_CONV: 2, GROUP_NORM: 1}


RESIDUAL = "f = Conv (x, v) p = Add (t, f) "


@pytest.mark.parametrize("dtype", ["float", "float16"])
@pytest.mark.parametrize(
    ("body", "found"),
    [
        (RESIDUAL + SILU.replace("(t,", "(p,"), {SKIP_GROUP_NORM: 1, NHWC_CONV: 3}),
        (
            RESIDUAL + ONNX.replace("u =", "n =").replace("(t,", "(p,") + " u = Add (n, p)",
            {SKIP_GROUP_NORM: 1, "Add": 1},
        ),
        ("p = Add (t, t) " + ONNX.replace("(t,", "(p,"), {SKIP_GROUP_NORM: 1, NHWC_CONV: 2}),
        # a number per sample and channel
        ("f = GlobalAveragePool (t) p = Add (f, t) " + SILU.replace("(t,", "(p,"), {SKIP_GROUP_NORM: 1}),
    ],
)
def test_a_residual_before_the_normalisation_is_fused(dtype: str, body: str, found: dict[str, int]) -> None:
    counted = written(between(body, dtype))
    assert {kind: counted[kind] for kind in found} == found and not counted[GROUP_NORM] and not counted["Sigmoid"]
    assert "Add" in found or not counted["Add"]


@pytest.mark.parametrize(
    "body",
    [
        SILU + " e = Abs (n)",  # another reader
        "n = GroupNormalization <num_groups = GROUPS> (t, g, h) s = Sigmoid (t) u = Mul (s, n)",
        "n = GroupNormalization <num_groups = GROUPS> (t, g, h) u = Sigmoid (n)",
    ],
)
def test_what_is_no_silu_stays(body: str) -> None:
    model = between(body)
    if "e = " in body:
        model.graph.output.append(helper.make_tensor_value_info("e", onnx.TensorProto.FLOAT16, [2, 64, 56, 56]))
    assert written(model)["Sigmoid"] == 1


@pytest.mark.parametrize("other", ["b", "q"])
def test_what_is_no_residual_stays(other: str) -> None:
    """Constants, and sums that a computed parameter depends on."""
    body = f"p = Add (t, {other}) " + ONNX.replace("(t, g, h)", "(p, g, h)")
    body = body.replace("Add (t, q)", "Add (t, t)").replace("g, h", "c, h") if other == "q" else body
    reduced = "c = ReduceMean <keepdims = 0> (p, o)" if other == "q" else ""
    model = between(body.replace("u =", reduced + " u ="))
    (constant,) = (tensor for tensor in model.graph.initializer if tensor.name == "b")
    model.graph.initializer.remove(constant)
    fill(model, b=(2, 64, 56, 56))
    model.graph.initializer.append(numpy_helper.from_array(np.asarray([0, 2, 3]), "o"))
    counted = written(model)
    assert counted["Add"] == 1 and counted[GROUP_NORM] == 1 and not counted[SKIP_GROUP_NORM]


@pytest.mark.parametrize(
    ("dtype", "channels", "groups", "has_kernel"),
    [
        ("float", 64, 8, True),
        ("float16", 64, 32, True),
        ("float16", 1024, 2, True),
        ("float16", 1028, 2, False),  # more than 512 channels per group
        ("float16", 24, 8, False),  # an odd number
        ("float16", 64, 64, False),
        ("double", 64, 8, False),
    ],
)
def test_the_planner_has_the_kernel_where_it_is_written(
    dtype: str, channels: int, groups: int, has_kernel: bool
) -> None:
    shape = f"{dtype}[1,{channels},8,8]"
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 21]> m ({shape} x) => ({shape} y)
        {{ y = GroupNormalization <num_groups = {groups}> (x, g, h) }}"""
    )
    result = layoutopt.optimize(fill(model, g=(channels,), h=(channels,)), pins=PINS, **WAY)
    assert kinds(result.proto)[GROUP_NORM] == has_kernel
    (op,) = (op for op in result.graph.ops if op.kind == "GroupNormalization")
    target = load_target("gpu-hopper")
    cost = find_runtime("onnxruntime-cuda").restricted(target)
    nhwc = lookup("NHWC")
    assert list(cost.preferred_formats(op)) == ([{X: nhwc, Y: nhwc}] if has_kernel else [])
    if has_kernel:
        assert op.signature is not None
        assert cost.kernel_seconds(op, op.signature) == target.kernel_seconds(op, op.signature)


# --- definitions ---------------------------------------------------------------------------------------------------


def normalised(x: Any, gamma: Any, beta: Any, groups: int, epsilon: float, activation: int) -> Any:
    """The formula in float64."""
    batch, *_, channels = x.shape
    grouped = x.astype(np.float64).reshape(batch, -1, groups, channels // groups)
    mean, variance = grouped.mean((1, 3), keepdims=True), grouped.var((1, 3), keepdims=True)
    y = ((grouped - mean) / np.sqrt(variance + epsilon)).reshape(x.shape) * gamma + beta
    return y / (1 + np.exp(-y)) if activation else y


@pytest.mark.parametrize("opset", [7, 11, 14, 15, 18, 21, 24])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("skip", [None, (2, 5, 3, 12), (2, 1, 1, 12), (2, 12)], ids=str)
def test_definitions_of_group_normalisations(skip: tuple[int, ...] | None, dtype: type, opset: int) -> None:
    """The definition equals the formula, and onnxruntime's own GroupNormalization where the opset has it."""
    generator = np.random.default_rng(2)
    activation, epsilon, groups = int(opset % 2), 1e-3, 3
    x = (generator.normal(size=(2, 5, 3, 12)) * 2 + 1).astype(dtype)
    arrays = {"x": x, **{name: generator.normal(size=12).astype(np.float32) for name in ("gamma", "beta")}}
    if skip:
        arrays |= {"skip": generator.normal(size=skip).astype(dtype), "bias": generator.normal(size=12).astype(dtype)}
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in arrays.items()
    ]
    kind = infos[0].type.tensor_type.elem_type
    outputs = ["y", "s"] if skip else ["y"]
    fields = {"groups": groups, "epsilon": epsilon, "activation": activation}
    name = SKIP_GROUP_NORM if skip else GROUP_NORM
    node = helper.make_node(name, list(arrays), outputs, domain="com.microsoft", **fields)
    graph = helper.make_graph(
        [node], "g", infos, [helper.make_tensor_value_info(each, kind, x.shape) for each in outputs]
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    message = helper.make_model(graph, opset_imports=imports, ir_version=8)
    define(message, CUDA)
    got, *sums = Session(message.SerializeToString()).run(None, arrays)
    total = x
    if skip:
        total = x + (arrays["skip"].reshape(2, 1, 1, 12) if len(skip) == 2 else arrays["skip"]) + arrays["bias"]
        half = dtype is np.float16
        np.testing.assert_allclose(sums[0], total, rtol=2e-3 if half else 1e-6, atol=2e-3 if half else 1e-6)
        total = sums[0]
    tolerance = {"rtol": 1e-3, "atol": 1e-3} if dtype is np.float16 else {"rtol": 1e-4, "atol": 1e-5}
    assert got.dtype == dtype
    want = normalised(total, arrays["gamma"], arrays["beta"], groups, epsilon, activation)
    np.testing.assert_allclose(got, want, **tolerance)
    if opset >= 21 and dtype is np.float32 and not activation:
        reference = onnx.parser.parse_model(
            f"""<ir_version: 8, opset_import: ["" : {opset}]>
            m (float[2,12,5,3] x, float[12] g, float[12] b) => (float[2,12,5,3] y)
            {{ y = GroupNormalization <num_groups = 3, epsilon = 0.001> (x, g, b) }}"""
        )
        feeds = {"x": np.moveaxis(total, 3, 1), "g": arrays["gamma"], "b": arrays["beta"]}
        (own,) = Session(reference.SerializeToString()).run(None, feeds)
        np.testing.assert_allclose(got, np.moveaxis(own, 1, 3), **tolerance)


def test_the_definition_finds_wrong_parameters() -> None:
    original = between(SILU, "float")
    result = layoutopt.optimize(original, pins=PINS, **WAY).proto
    verify = partial(
        verify_models, original.SerializeToString(), pins={name: lookup(format) for name, format in PINS.items()}
    )
    assert verify(rewritten=result.SerializeToString()).status == "passed"
    for wrong in ("activation", "groups"):
        changed = onnx.ModelProto.FromString(result.SerializeToString())
        (copy,) = (each for each in changed.graph.node if each.op_type == GROUP_NORM)
        attribute = next(each for each in copy.attribute if each.name == wrong)
        attribute.i = 0 if wrong == "activation" else 16
        assert verify(rewritten=changed.SerializeToString()).status == "failed"


def test_a_diffusion_decoder_has_transposes_where_the_kernels_need_them() -> None:
    """At both ends, around the three Resizes, whose CUDA kernel has NCHW, and one in the attention."""
    result = layoutopt.optimize(zoo.load("sd_vae_decoder"), **WAY)
    found = kinds(result.proto)
    assert found[GROUP_NORM] + found[SKIP_GROUP_NORM] == 22 and found[SKIP_GROUP_NORM] == 7
    assert found[NHWC_CONV] == 26 and not found["InstanceNormalization"] and not found["Sigmoid"]
    assert found["Transpose"] <= 9
    assert result.report.verification.status == "passed"
