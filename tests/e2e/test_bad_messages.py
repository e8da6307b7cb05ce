"""Messages that no exporter writes: each kind results in an error of one line that names the location."""

import re
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from refusals import load, refused, small

Damage = Callable[[onnx.ModelProto], object]


SPARSE = helper.make_sparse_tensor(
    helper.make_tensor("sp", TensorProto.FLOAT, [1], [1.0]), helper.make_tensor("at", TensorProto.INT64, [1], [0]), [3]
)


def constant(model: onnx.ModelProto, **value: object) -> None:
    model.graph.node.append(helper.make_node("Constant", [], ["s"], name="const", **value))


def attribute_outside(model: onnx.ModelProto) -> None:
    tensor = TensorProto(data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="weights")
    constant(model, value=tensor)


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
