"""Parts of models other than ops on dense tensors: models with them are optimised or stay unchanged, never refused."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from parsed_models import parsed
from tiers import covering

import layoutopt
from layoutopt.verification.difference import difference

TARGETS = [("cpu-avx2", "functions"), ("ascend-910b", "ascend"), ("gpu-hopper", "ops"), ("cpu", "onnxruntime")]
HEADER = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3, "my" : 1]>\n'
CHANNELS = 24

TAIL = "c = Conv @ (b, v) y = Sigmoid(c)"
CHAIN = f"a = Conv @ (x, w) b = Relu(a) {TAIL}"


def model(body: str = CHAIN, *weights: str, inputs: str = "", outputs: str = "float[1,24,32,32] y") -> onnx.ModelProto:
    """Convolutions of 24 channels that keep the extents of x; `body` names their filters."""
    text = f"{HEADER} g (float[1,24,32,32] x{inputs}) => ({outputs}) {{ {body.replace('@', '<pads = [1,1,1,1]>')} }}"
    return parsed(text, **dict.fromkeys(weights or ("v", "w"), (CHANNELS, CHANNELS, 3, 3)))


def shared_in_two_roles() -> onnx.ModelProto:
    """A filter that is also data."""
    made = model("a = Conv @ (x, w) b = Relu(a) c = Conv @ (b, w) y = Add(c, m) m = ReduceMean <keepdims = 0> (w)", "w")
    made.graph.node.insert(0, made.graph.node.pop())
    return made


def maps() -> onnx.ModelProto:
    made = model(f"{CHAIN} p = GlobalAveragePool(y) f = Flatten(p) z = my.Later(f)")
    made.graph.node.pop()
    labels = list(range(CHANNELS))
    made.graph.node.append(
        helper.make_node("ZipMap", ["f"], ["z"], domain="ai.onnx.ml", classlabels_int64s=labels, name="zip")
    )
    kind = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    made.graph.output.append(helper.make_value_info("z", helper.make_sequence_type_proto(kind)))
    return made


KINDS: dict[str, Callable[[], onnx.ModelProto]] = {
    "shared in two roles": shared_in_two_roles,
    "weight is input": partial(model, CHAIN, "v", inputs=", float[24,24,3,3] w"),
    "weight has default": partial(model, inputs=", float[24,24,3,3] w"),
    "everything is output": partial(
        model, outputs=", ".join(f"float[1,24,32,32] {name}" for name in "abcy") + ", float[24,24,3,3] w"
    ),
    "input is output": partial(model, outputs="float[1,24,32,32] x, float[1,24,32,32] y"),
    "two inputs": partial(
        model,
        f"{CHAIN} z2 = Conv @ (z, w) t = Mul(z2, b)",
        inputs=", float[1,24,32,32] z",
        outputs="float[1,24,32,32] y, float[1,24,32,32] t",
    ),
    "sequence": partial(
        model,
        f"a = Conv @ (x, w) s = SequenceConstruct(a, x) b = ConcatFromSequence <axis = 0> (s) {TAIL}",
        outputs="float[2,24,32,32] y, seq(float[1,24,32,32]) s",
    ),
    "optional": partial(
        model,
        f"a = Conv @ (x, w) o = Optional(a) b = OptionalGetElement(o) h = OptionalHasElement(o) {TAIL}",
        outputs="float[1,24,32,32] y, bool h",
    ),
    "maps": maps,
}


def run(content: bytes | onnx.ModelProto) -> list[object]:
    """The outputs in stock onnxruntime, on inputs that are the same every time."""
    content = content if isinstance(content, bytes) else content.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(1)
    needed = {each.name: generator.normal(size=each.shape).astype(np.float32) for each in session.get_inputs()}
    return list(session.run(None, needed))


@pytest.mark.parametrize(("kind", "way", "mode"), covering(KINDS, TARGETS, ["inference", "training"]))
def test_equal(tmp_path: Path, kind: str, way: tuple[str, str], mode: str) -> None:
    """Same outputs of the same kinds, from a file and from memory, and the file it came from is still there."""
    target, dialect = way
    path, made = tmp_path / "model.onnx", KINDS[kind]()
    onnx.save(made, path)
    before = path.read_bytes()
    result = layoutopt.optimize(path, target, dialect=dialect, mode=mode)  # type: ignore[arg-type]
    assert result.report.verification.status == "passed"
    out = tmp_path / "out.onnx"
    result.save(out)
    for want, got in zip(run(made), run(out.read_bytes()), strict=True):
        assert difference(want, got).largest <= 1e-4, kind
    assert path.read_bytes() == before
    if not result.report.changed:
        assert out.read_bytes() == before
    assert layoutopt.optimize(out, target, dialect=dialect, mode=mode, verify=False).report.changed is False  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_most_are_rewritten(kind: str) -> None:
    """Only a weight that is an output, and so not packed, is a reason to leave a model unchanged."""
    result = layoutopt.optimize(KINDS[kind](), "cpu-avx2", verify=False)
    assert result.report.changed is (kind != "everything is output"), result.report.reason
