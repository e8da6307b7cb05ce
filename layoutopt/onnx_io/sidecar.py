"""Side-car metadata: parts of a model that onnx_ir cannot represent (map types at the interface, training information).

It is removed from a message before the conversion, and restored when a message is written. ZipMap has results of map types.
Training information names initializers and graph outputs, and is invalid if these have changed.
"""

from collections.abc import Iterator

import onnx
import onnx_ir as ir

from layoutopt.onnx_io.repeated_fields import keep_messages

_TYPE = "layoutopt.type"  # key in the meta of a value: its type as in the message
_TRAINING = "layoutopt.training"  # key in the meta of the main graph


class Sidecar:
    """The parts of one message that are stored next to its model.

    Attributes:
        types: the types with maps of the main graph's inputs and outputs, by name.
        training: the training information.
    """

    def __init__(self, proto: onnx.ModelProto) -> None:
        """Remove the parts from a message. Map types of inner values are dropped, since inference finds them again."""
        graph = proto.graph
        self.types: dict[str, onnx.TypeProto] = {}
        for info in (*graph.input, *graph.output):
            if has_map(info.type):
                self.types[info.name] = onnx.TypeProto.FromString(info.type.SerializeToString())
                info.ClearField("type")
        keep_messages(graph.value_info, [info for info in graph.value_info if not has_map(info.type)])
        self.training = [onnx.TrainingInfoProto.FromString(each.SerializeToString()) for each in proto.training_info]
        proto.ClearField("training_info")

    def attach(self, model: ir.Model) -> None:
        """Add the parts to the model that was converted from the message."""
        for value in (*model.graph.inputs, *model.graph.outputs):
            if value.name in self.types:
                value.meta[_TYPE] = self.types[value.name]
        if self.training:
            model.graph.meta[_TRAINING] = self.training


def has_training(model: ir.Model) -> bool:
    """Whether a model has training information."""
    return bool(model.graph.meta.get(_TRAINING))


def copy_map_type(value: ir.Value, origin: ir.Value) -> None:
    """Copy the map type of `origin` to a value that replaces it."""
    if _TYPE in origin.meta:
        value.meta[_TYPE] = origin.meta[_TYPE]


def copy_sidecar(model: ir.Model, origin: ir.Model) -> None:
    """Copy the side-car metadata of `origin` to a model that was derived from it."""
    for before, after in ((origin.graph.inputs, model.graph.inputs), (origin.graph.outputs, model.graph.outputs)):
        for old, new in zip(before, after, strict=False):
            copy_map_type(new, old)
    if has_training(origin):
        model.graph.meta[_TRAINING] = origin.graph.meta[_TRAINING]


def write_sidecar(proto: onnx.ModelProto, model: ir.Model) -> None:
    """Add the side-car metadata of a model to its message."""
    write_map_types(proto.graph, model.graph)
    if has_training(model):
        proto.training_info.extend(model.graph.meta[_TRAINING])


def write_map_types(proto: onnx.GraphProto, graph: ir.Graph) -> None:
    """Set the map types of a graph's inputs and outputs in its message."""
    for info, value in _pairs(proto, graph):
        if _TYPE in value.meta:
            info.type.CopyFrom(value.meta[_TYPE])


def _pairs(proto: onnx.GraphProto, graph: ir.Graph) -> Iterator[tuple[onnx.ValueInfoProto, ir.Value]]:
    """The inputs and outputs of a message, each with the value of the graph that it was serialised from."""
    values = {value.name: value for value in (*graph.inputs, *graph.outputs)}
    return ((info, values[info.name]) for info in (*proto.input, *proto.output) if info.name in values)


def has_map(type_: onnx.TypeProto) -> bool:
    """Whether a type is a map, or a sequence or optional of maps."""
    while (kind := type_.WhichOneof("value")) in ("sequence_type", "optional_type"):
        type_ = getattr(type_, kind).elem_type
    return bool(kind == "map_type")
