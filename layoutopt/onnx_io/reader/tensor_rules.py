"""Repair rules for the storage of tensors, for `repair_rules`."""

from collections.abc import Iterator

import onnx
import onnx_ir as ir

from layoutopt.onnx_io.reader.lossless import display_name, graphs, nodes
from layoutopt.onnx_io.reader.repair import Draft, Repair
from layoutopt.onnx_io.reader.tensors import DATA_FIELDS, data_field, size_of


def repair_external_data(draft: Draft) -> Iterator[Repair]:
    """ONNX Runtime uses the last of several entries of one key, and the size of the shape in the place of a length of 0."""
    for name, tensor in _tensors(draft.proto):
        entries = {entry.key: entry.value for entry in tensor.external_data}
        length = entries.get("length", "")
        has_no_length = bool(length) and not length.strip("0") and size_of(tensor) > 0
        if has_no_length:
            yield Repair(name, "has external data of length 0", "the size of its shape is used")
            del entries["length"]
        elif len(entries) < len(tensor.external_data):
            yield Repair(name, "has external data with two entries of one key", "the last one is used")
        else:
            continue
        tensor.ClearField("external_data")
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)


def clear_segments(draft: Draft) -> Iterator[Repair]:
    """ONNX Runtime takes a segment of a tensor for the whole tensor."""
    for name, tensor in _tensors(draft.proto):
        if tensor.HasField("segment"):
            yield Repair(name, "is a segment of a tensor", "it is read as the whole tensor")
            tensor.ClearField("segment")


def clear_other_data_fields(draft: Draft) -> Iterator[Repair]:
    """ONNX Runtime reads external data before `raw_data`, and that before the field that belongs to the element type."""
    for name, tensor in _tensors(draft.proto):
        if tensor.data_type not in set(ir.DataType):
            continue
        is_external = tensor.data_location == onnx.TensorProto.EXTERNAL
        own = "external_data" if is_external else data_field(tensor)
        others = [each for each in DATA_FIELDS if each != own and len(getattr(tensor, each))]
        if others and len(getattr(tensor, own)):
            yield Repair(name, f"has data in {own} and in {others[0]}", f"{own} is used")
            for each in others:
                tensor.ClearField(each)


def _tensors(proto: onnx.ModelProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Every initializer and every tensor in an attribute, with a name for it."""
    for graph in graphs(proto):
        for tensor in graph.initializer:
            yield tensor.name, tensor
    for node in nodes(proto):
        for attribute in node.attribute:
            for tensor in (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors):
                yield tensor.name or display_name(node), tensor


__all__ = ["clear_other_data_fields", "clear_segments", "repair_external_data"]
