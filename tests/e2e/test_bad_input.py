"""Every input file results in a graph or in an error of one line that names the fault."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.external_data_helper import set_external_data
from refusals import HEADER, load, parse, refused, small, turned

from layoutopt import optimize
from layoutopt.errors import ModelError
from layoutopt.formats import Extent
from layoutopt.onnx_io import emit, from_message, inline_functions, read, to_bytes, weights
from layoutopt.runtime.session import Session


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is empty"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 12\n", "Git LFS pointer"),
        (b"this is a plain text file, and a rather long one\n" * 9, "text"),
        (bytes(range(256)) * 4, "not an ONNX model"),
        (b"\x08\x0a", "no graph"),
    ],
)
def test_files_that_are_no_models(tmp_path: Path, content: bytes, expected: str) -> None:
    message = refused(tmp_path / "some.onnx", content)
    assert "some.onnx" in message
    assert expected in message


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    for path, expected in [(tmp_path / "none.onnx", "no such file"), (tmp_path, "is a folder")]:
        with pytest.raises(ModelError, match=expected) as caught:
            read(path)
        assert str(path) in str(caught.value)


GRAPHS = {
    "cycle": ("[one] a = Add(x, b) [two] b = Relu(a) [three] y = Relu(b)", "one.*two|two.*one"),
    "self_capture": (
        "g (float[2] x, bool c) => (float[2] y) { [cond] y = If (c) "
        "<then_branch = t () => (float[2] u) { u = Relu(y) }, else_branch = e () => (float[2] v) { v = Relu(x) }> }",
        "cycle.*cond|cond.*cycle",
    ),
    "undefined": ("[bad] y = Add(x, missing)", "bad: input 'missing'"),
    "undefined_output": ("z = Relu(x)", "'y' is not defined"),
    "undefined_inside": (
        "g (float[2] x, bool c) => (float[2] y) { [cond] y = If (c) "
        "<then_branch = t () => (float[2] u) { [inner] u = Relu(gone) }, "
        "else_branch = e () => (float[2] v) { v = Relu(x) }> }",
        "inner: input 'gone'",
    ),
    "two_producers": ("[first] y = Relu(x) [second] y = Abs(x)", "second: 'y'.*'first'"),
    "output_is_input": ("g (float[2] x) => (float[2] x) { [bad] x = Relu(x) }", "bad: 'x'"),
    "input_twice": ("g (float[2] x, float[2] x) => (float[2] y) { y = Relu(x) }", "input 'x' occurs twice"),
    "unknown_op": ("[bad] y = Relux(x)", "bad: no Op registered for Relux"),
    "op_of_later_opset": ("[bad] y = Gelu(x)", "bad: no Op registered for Gelu .*18"),
    "deprecated_op": (
        "g (float[1,1,2,2] x, float[4] s) => (float[1,1,2,2] y) { [bad] y = Upsample(x, s) }",
        "bad: .*deprecated",
    ),
    "declared_dimension": (
        "g (float[2,3] x) => (float[2,4] y) { [bad] y = Relu(x) }",
        r"y: is declared as float32\[2,4\], but is float32\[2,3\]",
    ),
    "declared_type": ("g (float[2,3] x) => (int32[2,3] y) { [bad] y = Relu(x) }", "bad: .*float vs int32"),
    "broadcast": (
        "g (float[2,3] x, float[4] z) => (float[2,3] y) { [bad] y = Add(x, z) }",
        "bad: incompatible dimensions",
    ),
    "mixed_types": ("g (float[3] x, int32[3] z) => (float[3] y) { [bad] y = Add(x, z) }", "bad: .*int32"),
    "rank": ("g (float[2,3] x) => (float[2,3] y) { [bad] y = Conv(x, x) }", "bad: .*dimensions"),
    "unknown_attribute": ("[bad] y = Relu <alpha = 1> (x)", "bad: .*alpha"),
    "too_few_inputs": ("[bad] y = Add(x)", "bad: .*input size 1"),
    "initializer_shape": (
        "g (float[2] x) => (float[2] y) <float[3] w = {1, 2}> { y = Add(x, w) }",
        "w: .*needs 3 elements.* has 2",
    ),
    "inside_subgraph": (
        "g (float[2] x, bool c) => (float[2] y) { [cond] y = If (c) "
        "<then_branch = t () => (float[2] u) { u = Relu(x) }, "
        "else_branch = e () => (float[2] v) { k = Constant <value = float[3] {1, 2, 3}> () [inner] v = Add(x, k) }> }",
        "inner: incompatible dimensions",
    ),
    "absent_input": ("[bad] y = Add(, x)", "bad: input 'A' is required"),
    "type_behind_a_loop": (
        "g (float[3,4,4] x, float[1,3,1,1] w, float[2] z) => (float[2,1,4,4] y, float[A] q) { q = custom.Anything(z) "
        "m = Constant <value = int64 {2}> () f, u = Loop(m, , x) <body = b (int64 i, bool c, float[3,4,4] t) => "
        "(bool d, float[3,4,4] v, uint8[3,4,4] s) { d = Identity(c) v = Identity(t) s = Cast <to = 2> (x) }> "
        "[bad] y = Conv(u, w) }",
        "bad: .*unsupported type: tensor.uint8",
    ),
    "absent_among_several": ("[bad] y = Max(x, , x)", "bad: input 'data_0' is required"),
    "split_count": ("g (float[2] x) => (y) { [bad] y, z = Split <num_outputs = 1> (x) }", "bad: num_outputs is 1"),
    "behind_a_foreign_op": (
        "g (float[2,3] x) => (float[2,7] y) <float[2,3] a> { a = custom.Anything(x) [bad] y = Relu(a) }",
        r"y: is declared as float32\[2,7\]",
    ),
    "behind_an_op_that_onnx_does_not_infer": (
        "g (float[2,4,3] x) => (float[2,4] y) <float[4] s = {1, 1, 1, 1}> "
        "{ a = GroupNormalization <num_groups = 2> (x, s, s) [bad] y = Relu(a) }",
        "y: is declared as",
    ),
    "unnamed_node": ("y = Add(x, missing)", "Add -> y: input 'missing'"),
}


@pytest.mark.parametrize("case", GRAPHS)
def test_graphs_that_are_wrong(tmp_path: Path, case: str) -> None:
    body, expected = GRAPHS[case]
    body = body if body.startswith("g (") else f"g (float[2] x) => (float[2] y) {{ {body} }}"
    header = HEADER.replace("18", "21") if "GroupNormalization" in body else HEADER
    assert re.search(expected, refused(tmp_path / "m.onnx", parse(body, header)))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("[bad] y = local.f(gone)", "bad: input 'gone' is not defined"),
        ("[one] a = Add(x, y) [two] y = local.f(a)", "the graph has a cycle: a -> two"),
    ],
)
def test_graphs_that_functions_cannot_be_put_into(body: str, expected: str) -> None:
    header = '<ir_version: 10, opset_import: ["" : 18, "local" : 1]>\n'
    function = '<domain: "local", opset_import: ["" : 18]> f (i) => (o) { o = Relu (i) }'
    model = parse(f"g (float[2] x) => (float[2] y) {{ {body} }}\n{function}", header)
    with pytest.raises(ModelError, match=expected):
        inline_functions(from_message(model), lambda kind: False)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ('<ir_version: 10, opset_import: ["" : 99]>', "opset 99"),
        ('<ir_version: 99, opset_import: ["" : 18]>', "IR version 99"),
        ('<ir_version: 2, opset_import: ["" : 18]>', "IR version 2"),
        ('<ir_version: 10, opset_import: ["custom" : 1]>', "imports no opset"),
        ('<ir_version: 10, opset_import: ["" : 18, "ai.onnx" : 17]>', "the opset of 'ai.onnx' occurs twice"),
        ('<ir_version: 10, opset_import: ["" : 18, "custom" : 1099511627776]>', "opset 1099511627776 of custom"),
    ],
)
def test_versions(tmp_path: Path, header: str, expected: str) -> None:
    assert expected in refused(tmp_path / "m.onnx", parse("g (float[2] x) => (float[2] y) { y = Relu(x) }", header))


def test_negative_extents_are_unknown_ones(tmp_path: Path) -> None:
    """A negative declared extent is an unknown one, as in onnxruntime."""
    model = parse("g (float[2,3] x) => (float[2,N] y) { y = Relu(x) }")
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -1
    graph = load(tmp_path / "m.onnx", model)
    (dim,) = {value.shape[1] for value in (*graph.inputs, *graph.outputs) if value.shape is not None}
    assert isinstance(dim, Extent)
    emitted = onnx.ModelProto.FromString(to_bytes(emit(graph)))
    assert not emitted.graph.input[0].type.tensor_type.shape.dim[1].HasField("dim_value")


# --- messages that no exporter writes --------------------------------------------------------------------

Damage = Callable[[onnx.ModelProto], object]

SPARSE = helper.make_sparse_tensor(
    helper.make_tensor("sp", TensorProto.FLOAT, [1], [1.0]), helper.make_tensor("at", TensorProto.INT64, [1], [0]), [3]
)


def constant(model: onnx.ModelProto, **value: object) -> None:
    model.graph.node.append(helper.make_node("Constant", [], ["s"], name="const", **value))


def attribute_outside(model: onnx.ModelProto, location: str = "weights") -> onnx.ModelProto:
    tensor = TensorProto(data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    constant(model, value=tensor)
    model.graph.output.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, [1]))
    return model


def output_of_another_type(model: onnx.ModelProto) -> None:
    model.graph.output.add().CopyFrom(model.graph.input[0])
    model.graph.output[-1].type.tensor_type.elem_type = TensorProto.INT32


def unknown_type_in_a_sequence(model: onnx.ModelProto) -> None:
    model.graph.value_info.append(helper.make_value_info("s", helper.make_sequence_type_proto(onnx.TypeProto())))
    model.graph.value_info[-1].type.sequence_type.elem_type.tensor_type.elem_type = -1


def map_in_subgraph(model: onnx.ModelProto) -> None:
    type_ = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    body = helper.make_graph([], "body", [helper.make_value_info("dictionary", type_)], [])
    model.graph.node.append(helper.make_node("If", ["c"], [], then_branch=body, else_branch=body))


def weight(name: str = "w", data_type: int = 1, dims: tuple[int, ...] = (3,), **data: object) -> Damage:
    """Another initializer in place of the weight."""
    tensor = TensorProto(name=name, data_type=data_type, dims=dims, **data)
    return lambda model: model.graph.initializer[0].CopyFrom(tensor)


DAMAGE: dict[str, Damage] = {
    "graph 'g': sparse initializers": lambda model: model.graph.sparse_initializer.append(SPARSE),
    "const: attribute 'sparse_value' has a sparse tensor": lambda model: constant(model, sparse_value=SPARSE),
    "const: attribute 'value' is external data": attribute_outside,
    "training information": lambda model: model.training_info.add(),
    "x: element type 77 is unknown": lambda model: setattr(model.graph.input[0].type.tensor_type, "elem_type", 77),
    "s: element type -1 is unknown": unknown_type_in_a_sequence,
    "dictionary: maps in subgraphs": map_in_subgraph,
    "w: .*needs 12 bytes.* has 8": weight(raw_data=bytes(8)),
    "w: .*negative": weight(dims=(-3,), float_data=[1, 2, 3]),
    "x: is declared twice, as different types": output_of_another_type,
    "w: shape .*too large for any memory": weight(dims=(0, 2**63 - 1)),
    "w: element type 0": weight(data_type=0, float_data=[1, 2, 3]),
    "no name": weight(name="", float_data=[1, 2, 3]),
    "relu: attribute 'later' has no type": lambda model: model.graph.node[1].attribute.add(name="later", i=1),
}


@pytest.mark.parametrize("expected", DAMAGE)
def test_damage(tmp_path: Path, expected: str) -> None:
    model = small()
    DAMAGE[expected](model)
    assert re.search(expected, refused(tmp_path / "m.onnx", model))


def external(location: str, *, offset: object = 0, length: object = 12) -> onnx.ModelProto:
    model = small()
    tensor = model.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return model


def test_external_data(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "weights").write_bytes(np.arange(1, 5, dtype=np.float32).tobytes())
    (tmp_path / "outside").write_bytes(bytes(64))
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "folder").mkdir()
    path = folder / "m.onnx"
    assert load(path, external("weights", offset=4)).value("w").is_constant
    assert load(path, attribute_outside(small())).value("s").data.numpy().tolist() == [1]  # as onnxruntime reads it
    for location in ("../outside", str(tmp_path / "outside"), "link"):
        with pytest.raises(ModelError, match="const: attribute 'value' is external data"):
            load(path, attribute_outside(small(), location))
    for model, expected in [
        (external("gone"), "'gone' is missing"),
        (external("weights", offset=8), "has 16 bytes, 20 are needed"),
        (external("weights", length=8), "8 bytes, but its shape needs 12"),
        (external("weights", offset=-1), "offset -1"),
        (external("weights", offset="x"), "must be numbers"),
        (external("../outside"), "outside of the model's folder"),
        (external(str(tmp_path / "outside")), "outside of the model's folder"),
        (external("link"), "outside of the model's folder"),
        (external("folder"), "not a plain file"),
        (external("weights/x"), "is missing"),
        (external("we\0ights"), "outside of the model's folder"),
        (external("a" * 300), "cannot read"),
        (external(""), "outside of the model's folder"),
    ]:
        message = refused(path, model)
        assert message.startswith("w: "), message
        assert expected in message


# --- external data behind links --------------------------------------------------------------------------

SIZE = 32 * 16 * 3 * 3 * 4


def linked_model(location: str) -> onnx.ModelProto:
    """A convolution that is rewritten, its filter in a file."""
    proto = turned()
    (tensor,) = proto.graph.initializer
    set_external_data(tensor, location, 0, SIZE)
    tensor.ClearField("raw_data")
    return proto


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """The snapshot folder of a model hub's cache, with a data file in `blobs` and links to it."""
    snapshot = tmp_path / "snapshots" / "1a2b"
    (snapshot / "sub").mkdir(parents=True)
    (tmp_path / "blobs").mkdir()
    data = np.random.default_rng(0).normal(size=SIZE // 4).astype(np.float32).tobytes()
    (tmp_path / "blobs" / "data").write_bytes(data)
    (snapshot / "plain").write_bytes(data)
    (snapshot / "sub" / "inside").write_bytes(data)
    (tmp_path / "snapshots" / "beside").write_bytes(data)
    (snapshot / "inner").symlink_to("plain")
    (snapshot / "link").symlink_to("../../blobs/data")
    (snapshot / "absolute").symlink_to(tmp_path / "blobs" / "data")
    (snapshot / "twice").symlink_to("link")
    (snapshot / "elsewhere").symlink_to("../beside")
    (snapshot / "dangling").symlink_to("nowhere")
    (snapshot / "folder").symlink_to("../../blobs")
    os.link(tmp_path / "blobs" / "data", snapshot / "hard")
    return snapshot


def stored(hub: Path, location: str, *, linked: bool) -> Path:
    """The model's file, in the snapshot or in `blobs` with a link in the snapshot."""
    path = hub / "model.onnx"
    content = linked_model(location).SerializeToString()
    if linked:
        (hub.parent.parent / "blobs" / "model").write_bytes(content)
        path.symlink_to("../../blobs/model")
    else:
        path.write_bytes(content)
    return path


def listing(folder: Path) -> dict[str, bytes | str]:
    """Every file and link below a folder, with its content."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_symlink() or path.is_file())
    return {str(path): os.readlink(path) if path.is_symlink() else path.read_bytes() for path in found}


READ = [
    *(
        (location, linked)
        for location in ("plain", "inner", "hard", "sub/inside", "./plain")
        for linked in (False, True)
    ),
    *((location, True) for location in ("link", "absolute", "twice", "folder/data")),
    ("sub/../plain", False),
]
REFUSED = [
    *((location, False, "symbolic link to") for location in ("link", "absolute", "twice", "folder/data")),
    *(("elsewhere", linked, "symbolic link to") for linked in (False, True)),
    *(("../beside", linked, "the model gives '../beside' as the path") for linked in (False, True)),
    ("sub/../../beside", False, "the model gives"),
    ("dangling", True, "is missing"),
    ("sub", False, "not a plain file"),
]


@pytest.mark.parametrize(("location", "linked"), READ)
def test_what_onnxruntime_reads_is_read_and_rewritten(hub: Path, location: str, linked: bool, tmp_path: Path) -> None:
    path = stored(hub, location, linked=linked)
    x = np.random.default_rng(1).normal(size=(1, 8, 8, 16)).astype(np.float32)
    (expected,) = Session(path).run(None, {"x": x})
    before = listing(hub.parent.parent)
    ((_, tensor),) = weights(read(path))
    assert tensor.numpy().tobytes() == tensor.tobytes() == (hub / "plain").read_bytes()
    out = tmp_path / "out"
    out.mkdir()
    for name, data in (("one", None), ("two", "two.data")):
        result = optimize(path, "cpu-avx512", dialect="ops")
        assert result.report.changed
        result.save(out / f"{name}.onnx", external_data=data)
        (found,) = Session(out / f"{name}.onnx").run(None, {"x": x})
        np.testing.assert_allclose(found, expected, atol=1e-4)
    assert {name: content for name, content in listing(tmp_path).items() if not name.startswith(str(out))} == before


@pytest.mark.parametrize(("location", "linked", "expected"), REFUSED)
def test_what_leads_out_of_the_folder_is_refused(hub: Path, location: str, linked: bool, expected: str) -> None:
    path = stored(hub, location, linked=linked)
    with pytest.raises(Exception):  # noqa: B017 -- onnxruntime's exceptions have no common base
        Session(path)
    with pytest.raises(ModelError, match=f"^w: .*{expected}"):
        read(path)


def test_a_path_that_leads_out_of_the_folder_is_refused_even_if_it_reaches_the_cache(hub: Path) -> None:
    """ONNX Runtime reads it, but then the model file itself selects a file outside of its folder."""
    with pytest.raises(ModelError, match=r"the model gives '../../blobs/data' as the path"):
        read(stored(hub, "../../blobs/data", linked=True))
