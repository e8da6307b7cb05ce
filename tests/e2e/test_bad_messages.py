"""Messages that no exporter writes: each kind results in an error of one line that names the location."""

import re
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from refusals import load, refused, small


def _repeat_attribute(model: onnx.ModelProto) -> None:
    model.graph.node[1].attribute.extend([helper.make_attribute("a", 1), helper.make_attribute("a", 2)])


def _sparse(model: onnx.ModelProto) -> None:
    values = helper.make_tensor("sp", TensorProto.FLOAT, [1], [1.0])
    indices = helper.make_tensor("at", TensorProto.INT64, [1], [3])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [3]))


def _sparse_constant(model: onnx.ModelProto) -> None:
    _sparse(model)
    value = model.graph.sparse_initializer.pop()
    model.graph.node.append(helper.make_node("Constant", [], ["s"], name="const", sparse_value=value))


def _sparse_too_many(model: onnx.ModelProto) -> None:
    _sparse(model)
    values = helper.make_tensor("sp", TensorProto.FLOAT, [2], [1.0, 2.0])
    model.graph.sparse_initializer[0].values.CopyFrom(values)


def _sparse_too_large(model: onnx.ModelProto) -> None:
    _sparse(model)
    model.graph.sparse_initializer[0].dims[:] = [1 << 20, 1 << 20]


def _sparse_outside(model: onnx.ModelProto) -> None:
    _sparse(model)
    values = model.graph.sparse_initializer[0].values
    values.ClearField("float_data")
    values.data_location = TensorProto.EXTERNAL
    values.external_data.add(key="location", value="weights")


def _sparse_of_strings(model: onnx.ModelProto) -> None:
    _sparse(model)
    model.graph.sparse_initializer[0].values.CopyFrom(helper.make_tensor("sp", TensorProto.STRING, [1], ["a"]))


def _sparse_and_short(model: onnx.ModelProto) -> None:
    _sparse(model)
    model.graph.sparse_initializer[0].values.dims[0] = 2


def _output_of_another_type(model: onnx.ModelProto) -> None:
    model.graph.output.add().CopyFrom(model.graph.input[0])
    model.graph.output[-1].type.tensor_type.elem_type = TensorProto.INT32


def _empty_and_enormous(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].ClearField("float_data")
    model.graph.initializer[0].dims[:] = [0, 2**63 - 1]


def _unknown_type(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.elem_type = 77


def _unknown_type_in_a_sequence(model: onnx.ModelProto) -> None:
    model.graph.value_info.append(helper.make_value_info("s", helper.make_sequence_type_proto(onnx.TypeProto())))
    model.graph.value_info[-1].type.sequence_type.elem_type.tensor_type.elem_type = -1


def _map_in_subgraph(model: onnx.ModelProto) -> None:
    type_ = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    body = helper.make_graph([], "body", [helper.make_value_info("dictionary", type_)], [])
    model.graph.node.append(helper.make_node("If", ["c"], [], then_branch=body, else_branch=body))


def _unknown_field(model: onnx.ModelProto) -> None:
    model.graph.node[1].MergeFromString(bytes([0xFA, 0x7F, 1, 65]))


def _short_raw(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].ClearField("float_data")
    model.graph.initializer[0].raw_data = bytes(8)


def _negative(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[0] = -3


def _wrong_field(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].int64_data.append(1)


def _no_type(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].data_type = 0


def _unnamed(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].name = ""


def _initializer_twice(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(model.graph.initializer[0])


def _contradicted(model: onnx.ModelProto) -> None:
    model.graph.value_info.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [7]))


def _untyped_attribute(model: onnx.ModelProto) -> None:
    model.graph.node[1].attribute.add(name="later", i=1)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (_repeat_attribute, "relu: attribute 'a' occurs 2 times"),
        (_sparse, "sp: .*out of range"),
        (_sparse_constant, "const: .*out of range"),
        (_sparse_too_many, "sp: .*has 1 values, but NNZ is 2"),
        (_sparse_too_large, "sp: .*too large to be made dense"),
        (_sparse_outside, "sp: .*in the model file itself"),
        (_sparse_of_strings, "sp: sparse values have to be numbers"),
        (_sparse_and_short, "sp: .*too small for the declared shape"),
        (_unknown_type, "x: element type 77 is unknown"),
        (_unknown_type_in_a_sequence, "s: element type -1 is unknown"),
        (_map_in_subgraph, "dictionary: maps in subgraphs"),
        (_unknown_field, "relu: .*does not define"),
        (_short_raw, "w: .*needs 12 bytes.* has 8"),
        (_negative, "w: .*negative"),
        (_output_of_another_type, "x: is declared twice, as different types"),
        (_empty_and_enormous, "w: shape .*too large for any memory"),
        (_wrong_field, "w: has data in float_data and in"),
        (_no_type, "w: element type 0"),
        (_unnamed, "no name"),
        (_initializer_twice, "w: 2 initializers or Constant nodes have this name"),
        (_contradicted, "w: is declared twice"),
        (_untyped_attribute, "relu: attribute 'later' has no type"),
    ],
)
def test_damage(tmp_path: Path, damage: Callable[[onnx.ModelProto], None], expected: str) -> None:
    model = small()
    damage(model)
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
    (folder / "weights").write_bytes(bytes(16))
    (tmp_path / "outside").write_bytes(bytes(64))
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "folder").mkdir()
    path = folder / "m.onnx"
    assert load(path, external("weights", offset=4)).value("w").is_constant
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
