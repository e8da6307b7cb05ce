"""Arguments of `optimize` in every accepted form, wrong ones, and copies of its results."""

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from parsed_models import text_model

import layoutopt
from layoutopt import onnx_io
from layoutopt.cost_models import load_target
from layoutopt.ir.graph import Graph, to_text

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
net (float[1,8,16,16] x) => (float[1,8,16,16] y) { a = Relu (x) y = Neg (a) }"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def test_a_model_in_every_form(path: Path) -> None:
    content = path.read_bytes()
    proto = onnx.load(path)
    with path.open("rb") as file:
        forms = [str(path), path, content, bytearray(content), memoryview(content), io.BytesIO(content), file]
        forms += [proto, onnx_ir.from_proto(proto)]
        results = [layoutopt.optimize(form, "gpu-hopper", pins={"x": "NHWC"}) for form in forms]  # type: ignore[arg-type]
    assert {result.proto.SerializeToString(deterministic=True) for result in results} == {
        results[0].proto.SerializeToString(deterministic=True)
    }
    alone = layoutopt.optimize(content, "gpu-hopper")
    alone.save(path.with_name("out.onnx"))
    assert onnx.load(path.with_name("out.onnx")) == proto


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"\xff\xff\xff", "not an ONNX model"),
        (b"\x08\x08", "no graph"),
        (io.StringIO("x"), "binary"),
    ],
)
def test_bytes_that_are_no_model(content: Any, reason: str) -> None:
    with pytest.raises(layoutopt.LayoutoptError, match=reason):
        layoutopt.optimize(content)


@pytest.mark.parametrize("form", [list, tuple, iter], ids=str)
def test_several_targets(path: Path, form: Any) -> None:
    names = ["gpu-hopper", "ascend-910b"]
    plan = layoutopt.optimize(path, ",".join(names)).report.plan
    for each in (form(names), form([load_target(names[0]), names[1]])):
        report = layoutopt.optimize(path, each).report
        assert report.plan == plan
        assert report.target == ",".join(names)
    assert layoutopt.optimize(path, form(names[:1])).report.target == names[0]
    assert (
        layoutopt.optimize(path, form([",".join(names), "cpu-neon"])).report.target == "gpu-hopper,ascend-910b,cpu-neon"
    )


@pytest.mark.parametrize("target", [b"cpu", [], [["cpu"], 1.0], "no-such", object()])
def test_no_target(target: Any) -> None:
    with pytest.raises(layoutopt.TargetError) as caught:
        layoutopt.optimize("no such file.onnx", target)
    assert "\n" not in str(caught.value)


BAD: list[dict[str, Any]] = [
    {"mode": "inferense"},
    {"dialect": "french"},
    {"pins": "x"},
    {"dims": "batch"},
    {"dims": {"batch": (1,)}},
    {"time_limit": float("nan")},
    {"pipeline": []},
    {"watch": "all"},
    {"sizes_found": 3},
    {"model": 3},
    {"model": "a\0b"},
]


@pytest.mark.parametrize("arguments", BAD, ids=str)
def test_a_wrong_argument_is_one_line_at_once(arguments: dict[str, Any]) -> None:
    """A wrong argument raises one line before the file, which does not exist, is opened."""
    with pytest.raises(layoutopt.ArgumentError) as caught:
        layoutopt.optimize(**{"model": "no such file.onnx", **arguments})
    assert caught.value.what and caught.value.where and caught.value.hint
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 250
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [({"pins": {"x": "N?WC"}}, layoutopt.FormatError), ({"dims": {"batch": 0}}, layoutopt.DimensionError)],
)
def test_a_wrong_value_has_the_error_of_its_kind(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        layoutopt.optimize("no such file.onnx", **arguments)


Copy = Callable[[Any], Any]
COPIES = pytest.mark.parametrize(
    "copied", [lambda each: pickle.loads(pickle.dumps(each)), copy.deepcopy], ids=["pickle", "copy"]
)

NET = """<ir_version: 8, opset_import: ["" : 17]>
net (float[1,3,16,16] x, bool p) => (float[1,8,16,16] y, float[1,8,16,16] z) <float[8,3,3,3] w, float[8,8,1,1] v> {
    c = Conv <pads = [1, 1, 1, 1]> (x, w)
    r = Relu (c)
    y = Conv (r, v)
    z = If (p) <then_branch = yes () => (float[1,8,16,16] t) { t = Conv (r, v) },
                else_branch = no () => (float[1,8,16,16] e) { k = Constant <value = float {2.0}> () e = Mul (r, k) }>
}"""


def content(result: layoutopt.Result) -> bytes:
    """The model as it is read; that drops recorded types of constants."""
    return onnx_io.to_bytes(onnx_io.from_message(result.proto))


def assert_same(one: Graph, other: Graph) -> None:
    assert to_text(one) == to_text(other)
    for before, after in zip(one.regions(), other.regions(), strict=True):
        for old, new in zip(before.values, after.values, strict=True):
            assert (old.name, old.tensor, old.elements) == (new.name, new.tensor, new.elements)
            assert [use.index for use in before.uses(old)] == [use.index for use in after.uses(new)]
            if old.data is not None and new.data is not None:
                np.testing.assert_array_equal(old.data.numpy(), new.data.numpy())
        assert [op.signature for op in before.ops] == [op.signature for op in after.ops]


@COPIES
@pytest.mark.parametrize("target", ["gpu-hopper", "cpu-avx2", ["gpu-hopper", "ascend-910b"]], ids=str)
def test_a_result_of_equal_content(copied: Copy, target: str) -> None:
    result = layoutopt.optimize(text_model(NET), target, dialect="ops", verify=False)
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
