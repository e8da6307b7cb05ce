"""pickle and copy.deepcopy of what `optimize` returns: equal content, however long the model; and a repr of one line."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import layoutopt
from layoutopt import onnx_io
from layoutopt.ir.graph import Graph, to_text

Copy = Callable[[Any], Any]
COPIES = pytest.mark.parametrize(
    "copied", [lambda each: pickle.loads(pickle.dumps(each)), copy.deepcopy], ids=["pickle", "copy"]
)

NET = """<ir_version: 8, opset_import: ["" : 17]>
net (float[1,3,16,16] x, bool p) => (float[1,8,16,16] y, float[1,8,16,16] z) {
    c = Conv <pads = [1, 1, 1, 1]> (x, w)
    r = Relu (c)
    y = Conv (r, v)
    z = If (p) <then_branch = yes () => (float[1,8,16,16] t) { t = Conv (r, v) },
                else_branch = no () => (float[1,8,16,16] e) { k = Constant <value = float {2.0}> () e = Mul (r, k) }>
}"""


def network() -> onnx.ModelProto:
    proto = onnx.parser.parse_model(NET)
    generator = np.random.default_rng(0)
    for name, shape in (("w", (8, 3, 3, 3)), ("v", (8, 8, 1, 1))):
        proto.graph.initializer.append(numpy_helper.from_array(generator.normal(size=shape).astype(np.float32), name))
    return proto


def content(result: layoutopt.Result) -> bytes:
    """The model as it is read; that drops recorded types of constants."""
    return onnx_io.to_bytes(onnx_io.from_message(result.proto))


def assert_same(one: Graph, other: Graph) -> None:
    assert to_text(one) == to_text(other)
    for before, after in zip(one.regions(), other.regions(), strict=True):
        assert [value.name for value in before.values] == [value.name for value in after.values]
        for old, new in zip(before.values, after.values, strict=True):
            assert (old.tensor, old.type, old.storage, old.elements) == (
                new.tensor,
                new.type,
                new.storage,
                new.elements,
            )
            assert (old.data is None) == (new.data is None)
            if old.data is not None and new.data is not None:
                np.testing.assert_array_equal(old.data.numpy(), new.data.numpy())
        for producer, follower in zip(before.ops, after.ops, strict=True):
            assert [use.index for use in before.uses(before.values[0])] == [
                use.index for use in after.uses(after.values[0])
            ]
            assert producer.signature == follower.signature


@COPIES
@pytest.mark.parametrize("target", ["gpu-hopper", "cpu-avx2", ["gpu-hopper", "ascend-910b"]], ids=str)
def test_a_result_of_equal_content(copied: Copy, target: str) -> None:
    result = layoutopt.optimize(network(), target, dialect="ops", verify=False)
    twin = copied(result)
    assert twin.report == result.report
    assert content(twin) == content(result)
    assert_same(result.graph, twin.graph)
    assert twin.plan.seconds == result.plan.seconds
    assert {op.name: str(signature) for op, signature in twin.plan.signatures.items()} == {
        op.name: str(signature) for op, signature in result.plan.signatures.items()
    }
    planned = {op for graph in twin.graph.regions() for op in graph.ops}
    original = {op for graph in result.graph.regions() for op in graph.ops}
    assert len(planned & set(twin.plan.signatures)) == len(original & set(result.plan.signatures)) > 0
