"""Parts of models other than ops on dense tensors: models with them are optimised or stay unchanged, never refused."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import layoutopt
from layoutopt.verification.difference import difference

TARGETS = [("cpu-avx2", "functions"), ("ascend-910b", "ascend"), ("gpu-hopper", "ops"), ("cpu", "onnxruntime")]
HEADER = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3, "my" : 1]>\n'
CHANNELS = 24


def weight(name: str, *shape: int, seed: int = 0) -> onnx.TensorProto:
    values = np.random.default_rng(seed).normal(size=shape, scale=np.prod(shape[1:]) ** -0.5)
    return numpy_helper.from_array(values.astype(np.float32), name)


def model(body: str, *weights: str, inputs: str = "", outputs: str = "float[1,24,32,32] y") -> onnx.ModelProto:
    """Convolutions of 24 channels that keep the extents of x; `body` names their filters."""
    made = parser.parse_model(
        f"{HEADER} g (float[1,24,32,32] x{inputs}) => ({outputs}) {{ {body.replace('@', '<pads = [1,1,1,1]>')} }}"
    )
    shape = (CHANNELS, CHANNELS, 3, 3)
    made.graph.initializer.extend(weight(name, *shape, seed=number) for number, name in enumerate(weights))
    return made


CHAIN = "a = Conv @ (x, w) b = Relu(a) c = Conv @ (b, v) y = Sigmoid(c)"


def shared_weight() -> onnx.ModelProto:
    return model("a = Conv @ (x, w) b = Relu(a) c = Conv @ (b, w) y = Sigmoid(c)", "w")


def shared_in_two_roles() -> onnx.ModelProto:
    """A filter that is also data."""
    made = model("a = Conv @ (x, w) b = Relu(a) c = Conv @ (b, w) y = Add(c, m) m = ReduceMean <keepdims = 0> (w)", "w")
    made.graph.node.insert(0, made.graph.node.pop())
    return made


def weight_is_input() -> onnx.ModelProto:
    return model(CHAIN, "v", inputs=", float[24,24,3,3] w")


def weight_has_default() -> onnx.ModelProto:
    return model(CHAIN, "v", "w", inputs=", float[24,24,3,3] w")


def everything_is_output() -> onnx.ModelProto:
    kinds = ", ".join(f"float[1,24,32,32] {name}" for name in "abcy")
    return model(CHAIN, "v", "w", outputs=f"{kinds}, float[24,24,3,3] w")


def input_is_output() -> onnx.ModelProto:
    return model(CHAIN, "v", "w", outputs="float[1,24,32,32] x, float[1,24,32,32] y")


def two_inputs() -> onnx.ModelProto:
    return model(f"{CHAIN} z2 = Conv @ (z, w) t = Mul(z2, b)", "v", "w", inputs=", float[1,24,32,32] z",
                 outputs="float[1,24,32,32] y, float[1,24,32,32] t")  # fmt: skip


def sparse_initializer() -> onnx.ModelProto:
    made = model(CHAIN, "v", "w")
    made.graph.sparse_initializer.append(_sparse(made.graph.initializer.pop()))
    return made


def sparse_with_an_index_per_axis() -> onnx.ModelProto:
    made = sparse_initializer()
    sparse = made.graph.sparse_initializer[0]
    flat = numpy_helper.to_array(sparse.indices)
    per_axis = np.stack(np.unravel_index(flat, tuple(sparse.dims)), 1)
    sparse.indices.CopyFrom(numpy_helper.from_array(per_axis, "w_at"))
    return made


def sparse_constant() -> onnx.ModelProto:
    made = model(CHAIN, "v", "w")
    node = helper.make_node("Constant", [], ["w"], sparse_value=_sparse(made.graph.initializer.pop()))
    made.graph.node.insert(0, node)
    return made


def sequence() -> onnx.ModelProto:
    return model(
        "a = Conv @ (x, w) s = SequenceConstruct(a, x) b = ConcatFromSequence <axis = 0> (s) c = Conv @ (b, v)"
        " y = Sigmoid(c)", "v", "w", outputs="float[2,24,32,32] y, seq(float[1,24,32,32]) s",
    )  # fmt: skip


def optional() -> onnx.ModelProto:
    return model(
        "a = Conv @ (x, w) o = Optional(a) b = OptionalGetElement(o) h = OptionalHasElement(o) c = Conv @ (b, v)"
        " y = Sigmoid(c)", "v", "w", outputs="float[1,24,32,32] y, bool h",
    )  # fmt: skip


def maps() -> onnx.ModelProto:
    made = model(f"{CHAIN} p = GlobalAveragePool(y) f = Flatten(p) z = my.Later(f)", "v", "w")
    made.graph.node.pop()
    labels = list(range(CHANNELS))
    made.graph.node.append(
        helper.make_node("ZipMap", ["f"], ["z"], domain="ai.onnx.ml", classlabels_int64s=labels, name="zip")
    )
    kind = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    made.graph.output.append(helper.make_value_info("z", helper.make_sequence_type_proto(kind)))
    return made


def training() -> onnx.ModelProto:
    made = model(CHAIN, "v", "w")
    new = helper.make_tensor_value_info("new", TensorProto.FLOAT, [24, 24, 3, 3])
    info = made.training_info.add()
    info.algorithm.CopyFrom(helper.make_graph([helper.make_node("Identity", ["w"], ["new"])], "step", [], [new]))
    info.update_binding.add(key="w", value="new")
    return made


def function() -> onnx.ModelProto:
    made = model("a = my.Block(x, w) y = my.Block(a, v)", "v", "w")
    nodes = [
        helper.make_node("Conv", ["X", "W"], ["T"], pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["T"], ["Y"]),
    ]
    opset = [helper.make_opsetid("", 17)]
    made.functions.append(helper.make_function("my", "Block", ["X", "W"], ["Y"], nodes, opset))
    return made


def no_shapes() -> onnx.ModelProto:
    made = model(CHAIN, "v", "w")
    made.graph.output[0].type.tensor_type.ClearField("shape")
    return made


def old_ir() -> onnx.ModelProto:
    """Before IR version 4 initializers are listed as inputs."""
    made = model(CHAIN, "v", "w", inputs=", float[24,24,3,3] w, float[24,24,3,3] v")
    made.ir_version = 3
    return made


def _sparse(tensor: onnx.TensorProto) -> onnx.SparseTensorProto:
    dense = numpy_helper.to_array(tensor)
    places = np.flatnonzero(np.abs(dense) > np.median(np.abs(dense)))
    values = numpy_helper.from_array(dense.reshape(-1)[places], tensor.name)
    return helper.make_sparse_tensor(values, numpy_helper.from_array(places, f"{tensor.name}_at"), dense.shape)


KINDS: list[Callable[[], onnx.ModelProto]] = [
    shared_weight, shared_in_two_roles, weight_is_input, weight_has_default, everything_is_output, input_is_output,
    two_inputs, sparse_initializer, sparse_with_an_index_per_axis, sparse_constant, sequence, optional, maps, training,
    function, no_shapes, old_ir,
]  # fmt: skip


def run(content: bytes | onnx.ModelProto) -> list[object]:
    """The outputs in stock onnxruntime, on inputs that are the same every time."""
    content = content if isinstance(content, bytes) else content.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(1)
    needed = {each.name: generator.normal(size=each.shape).astype(np.float32) for each in session.get_inputs()}
    return list(session.run(None, needed))


@pytest.mark.parametrize(("target", "dialect"), TARGETS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_equal(tmp_path: Path, kind: Callable[[], onnx.ModelProto], mode: str, target: str, dialect: str) -> None:
    """Same outputs of the same kinds, from a file and from memory, and the file it came from is still there."""
    path, made = tmp_path / "model.onnx", kind()
    onnx.save(made, path)
    before = path.read_bytes()
    result = layoutopt.optimize(path, target, dialect=dialect, mode=mode)  # type: ignore[arg-type]
    assert result.report.verification.status == "passed"
    out = tmp_path / "out.onnx"
    result.save(out)
    for want, got in zip(run(made), run(out.read_bytes()), strict=True):
        assert difference(want, got).largest <= 1e-4, kind.__name__
    assert path.read_bytes() == before
    if not result.report.changed:
        assert out.read_bytes() == before
    assert layoutopt.optimize(out, target, dialect=dialect, mode=mode, verify=False).report.changed is False  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_most_are_rewritten(kind: Callable[[], onnx.ModelProto]) -> None:
    """Only training information, and a weight that is an output and so not packed, are reasons to leave a model unchanged."""
    result = layoutopt.optimize(kind(), "cpu-avx2", verify=False)
    assert result.report.changed is (kind not in (training, everything_is_output)), result.report.reason
