"""Reads a model file through onnx_ir, with large weights mapped and not loaded.

The stages: parse; repair the faults that ONNX Runtime tolerates (`repair`); refuse content that would be lost (`messages`,
`tensors`); convert.
"""

import errno
import logging
import os
from pathlib import Path

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedFunctionsPass

from layoutopt.errors import ModelError
from layoutopt.files import MARK
from layoutopt.onnx_io.mapping import WeightFile, without_weights
from layoutopt.onnx_io.messages import MAP_TYPES, parse_message, refuse_losses, remove_map_types
from layoutopt.onnx_io.repair import REPAIRS, Repair, Repairs, repair
from layoutopt.onnx_io.schema import check_versions
from layoutopt.onnx_io.serialize import weights
from layoutopt.onnx_io.tensors import DataFolder, check_tensors
from layoutopt.runtime.errors import raise_if_out_of_memory

_EXPORT = "export the model again"
_LARGE = 1024  # bytes

# A broken model is an error here; without a handler Python prints onnx_ir's log messages to the terminal.
logging.getLogger("onnx_ir").addHandler(logging.NullHandler())


def read(path: str | os.PathLike[str], *, strict: bool = False) -> ir.Model:
    """Read a model.

    Large weights and external data stay in their files, which the model keeps open, and are mapped at each access. External
    data is checked here, without reading it: it must be stored in the model's folder and be long enough.

    Args:
        path: the file.
        strict: whether to refuse a model with a fault that ONNX Runtime tolerates; if not, the fault is repaired, and
            `repairs_of(model)` lists the repairs.

    Raises:
        ModelError: there is no such file, it is no ONNX model, or it contains something that would be lost.
    """
    path = Path(path)
    file = _opened(path)
    message = parse_message(without_weights(file.content().data), str(path))
    file.last.clear()
    return _convert(message, DataFolder.of_file(file), Repairs(path), strict=strict)


def from_message(proto: onnx.ModelProto, *, strict: bool = False) -> ir.Model:
    """Convert a message, which is not changed; locations of external data are relative to the current folder.

    Args:
        proto: the message.
        strict: as for `read`.

    Raises:
        ModelError: it is no valid model, or contains something that would be lost.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return _convert(copy, DataFolder.current(), Repairs(proto), strict=strict)


def _convert(proto: onnx.ModelProto, folder: DataFolder, repairs: Repairs, *, strict: bool) -> ir.Model:
    """The model of a message, which is repaired and modified."""
    repairs.found += repair(proto)
    if strict and repairs.found:
        raise ModelError(repairs.found[0].fault, where=repairs.found[0].where, hint=_EXPORT)
    try:
        return _converted(proto, folder, repairs)
    except ModelError as error:
        saved = None if strict else repairs.saved_by_onnxruntime()
        if saved is None:
            raise
        repair(saved)
        repairs.found.append(Repair(error.where, error.what, "the model is read as onnxruntime saves it"))
        return _converted(saved, folder, repairs)


def _converted(proto: onnx.ModelProto, folder: DataFolder, repairs: Repairs) -> ir.Model:
    """The model of a message.

    Raises:
        ModelError: it is no valid model, or contains something that would be lost.
    """
    check_versions(proto)
    map_types = remove_map_types(proto.graph)
    refuse_losses(proto)
    check_tensors(proto, folder)
    try:
        model = ir.from_proto(proto)
    except MemoryError:
        raise
    except Exception as error:  # onnx_ir raises many types of errors for invalid files
        where = str(repairs.source) if isinstance(repairs.source, Path) else "model"
        raise ModelError(f"cannot be understood: {_reason(error)}", where=where, hint=_EXPORT) from error
    RemoveUnusedFunctionsPass()(model)  # type: ignore[no-untyped-call]
    _copy_weights(model)
    model.graph.meta[MAP_TYPES] = map_types
    folder.locate(model)
    model.graph.meta[REPAIRS] = repairs
    model.metadata_props.pop(MARK, None)  # it is that of this file
    _sort(model)
    return model


def _copy_weights(model: ir.Model) -> None:
    """Replace weights in the message by arrays and small messages of their own.

    A message copies a weight whenever it is read, and its memory is freed as a whole, once no tensor of it is used.
    """
    for value, tensor in weights(model):
        if isinstance(tensor, ir.TensorProtoTensor):
            value.const_value = _copied(tensor)
    graphs: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for node in (node for each in graphs for node in each.all_nodes()):
        for name, attribute in tuple(node.attributes.items()):
            if isinstance(attribute.value, ir.TensorProtoTensor):
                copied, text = _copied(attribute.value), attribute.doc_string
                node.attributes[name] = ir.AttrTensor(name, copied, doc_string=text)


def _copied(tensor: ir.TensorProtoTensor) -> ir.TensorProtocol:
    if tensor.dtype == ir.DataType.STRING or tensor.dtype.bitwidth < 8 or tensor.nbytes < _LARGE:
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor.raw)
        return ir.TensorProtoTensor(copy)
    return ir.Tensor(
        tensor.numpy(),
        tensor.dtype,
        shape=tensor.shape,
        name=tensor.name,
        doc_string=tensor.doc_string,
        metadata_props=tensor.metadata_props,
    )


def _sort(model: ir.Model) -> None:
    """Sort the nodes topologically, because onnx_ir copies sorted graphs only; `lift` reports cycles.

    Sorted nodes keep their order.
    """
    graphs: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for graph in graphs:
        try:
            graph.sort()
        except ValueError:
            continue


def _opened(path: Path) -> WeightFile:
    """A model file that can be mapped."""
    try:
        file = WeightFile.open(path, is_model=True)
        file.content()
        return file
    except FileNotFoundError as error:
        raise ModelError("no such file", where=str(path), hint="check the path") from error
    except IsADirectoryError as error:
        raise ModelError("is a folder", where=str(path), hint="name the .onnx file in it") from error
    except (OSError, ValueError) as error:
        raise_if_out_of_memory(error)
        reason = getattr(error, "strerror", None) or str(error)
        is_limited = getattr(error, "errno", None) == errno.EMFILE
        hint = "close models or raise the limit of open files (ulimit -n)" if is_limited else "check the file"
        raise ModelError(f"cannot be read: {reason.lower()}", where=str(path), hint=hint) from error


def _reason(error: BaseException) -> str:
    """The innermost message of a chain of errors, on one short line."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."
