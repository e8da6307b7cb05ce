"""Submodels: the part of a model that computes some values from others, with the weights of that part alone.

The message of a model has no weights: each tensor of 1 KiB or more is a reference, which is resolved when a submodel is made.
Weights that are already external data in one folder stay there, and onnxruntime maps them. Other weights, such as packed ones,
are written to a file of the submodel.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir
from onnx import TensorProto

from layoutopt import onnx_io
from layoutopt.files import scratch_folder
from layoutopt.files.staging import output_errors
from layoutopt.ir.types import Array
from layoutopt.onnx_io.messages import inner_graphs, nested
from layoutopt.onnx_io.serialize import to_proto
from layoutopt.onnx_io.writer import write_tensor
from layoutopt.runtime.errors import error_message, is_about_the_model, is_memory_message
from layoutopt.sample_inputs import SampleInputs
from layoutopt.verification.original_runs import RUN_OR_MEMORY_ERRORS, run_source_once
from layoutopt.verification.other_blocks import with_definitions
from layoutopt.verification.runnable import Runnable, external_tensors

_EXTERNAL_FROM = 1024  # bytes; smaller tensors are in the message
_UNVERIFIED_SECONDS = 10.0  # for the one run of a model that is not verified
_ALIGNMENT = 4096  # bytes; onnxruntime maps tensors at multiples of a page


@dataclass(frozen=True, slots=True)
class Part:
    """The nodes of a model that compute some values from others.

    Attributes:
        outputs: the names of the values to compute.
        inputs: the names of the values that they are computed from: graph inputs, and those given as available.
        nodes: the indices of the nodes, in order.
        constants: the names of the initializers that the nodes read.
        nbytes: the size of the weights.
    """

    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    nodes: tuple[int, ...]
    constants: tuple[str, ...]
    nbytes: int


class WeightlessModel:
    """A model whose message has references in the place of weights.

    Args:
        message: the message; the location of a tensor in external data is its index in `tensors`.
        tensors: the weights.
        has_float16: whether a tensor has the type float16.
    """

    def __init__(self, message: onnx.ModelProto, tensors: Sequence[onnx_ir.TensorProtocol], has_float16: bool) -> None:
        self.message = message
        self._tensors = tensors
        self._has_float16 = has_float16
        graph = message.graph
        self.producers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._inputs = {info.name: info for info in graph.input if info.name not in self._constants}
        self._outputs = {info.name: info for info in graph.output}
        self._reads = [tuple(_reads(node)) for node in graph.node]
        self._inner_bytes = [sum(map(_nbytes, _inner_tensors(node))) for node in graph.node]

    @classmethod
    def of(cls, model: onnx_ir.Model, has_float16: bool) -> "WeightlessModel":
        """The model of onnx_ir without its weights; the tensors stay where they are."""
        large = [(value, each) for value, each in onnx_io.weights(model) if _is_stored_apart(each)]
        references = {value: _reference(str(index), value, each) for index, (value, each) in enumerate(large)}
        return cls(to_proto(model, references), [each for _, each in large], has_float16)

    def edited(self, edit: Callable[[Runnable], Runnable]) -> "WeightlessModel":
        """The model after an edit of its nodes; the weights are the same."""
        before = Runnable(bytes(self.message.SerializeToString()))
        after = edit(before)
        return self if after is before else WeightlessModel(after.message(), self._tensors, self._has_float16)

    @property
    def outputs(self) -> list[str]:
        """The names of the graph outputs."""
        return list(self._outputs)

    def weight_bytes(self, index: int) -> int:
        """The size of the weights that one node reads, those in its bodies included."""
        own = (self._constants[name] for name in self._reads[index] if name in self._constants)
        return self._inner_bytes[index] + sum(map(_nbytes, own))

    def part(self, outputs: Collection[str], available: Collection[str]) -> Part:
        """The part that computes some values from graph inputs and from values that are available."""
        nodes: set[int] = set()
        inputs: dict[str, None] = {}
        constants: dict[str, None] = {}
        seen, pending = set[str](), [(name, True) for name in outputs]
        while pending:
            name, is_output = pending.pop()
            if name in self._constants:
                constants[name] = None
            elif name in self._inputs or (name in available and not is_output):
                inputs[name] = None
            elif name in self.producers and name not in seen:
                seen.add(name)
                index = self.producers[name]
                if index not in nodes:
                    nodes.add(index)
                    pending += [(each, False) for each in self._reads[index]]
        nbytes = sum(_nbytes(self._constants[name]) for name in constants)
        nbytes += sum(self._inner_bytes[index] for index in nodes)
        return Part(tuple(outputs), tuple(inputs), tuple(sorted(nodes)), tuple(constants), nbytes)

    def runnable(self, part: Part, values: Mapping[str, Array], folder: Path, name: str) -> Runnable:
        """A part as a model of its own.

        Args:
            part: the part.
            values: an array for every input of the part, which determines its element type.
            folder: for the file of weights that are not external data already.
            name: the name of that file.
        """
        message = onnx.ModelProto(ir_version=self.message.ir_version)
        message.opset_import.extend(self.message.opset_import)
        message.functions.extend(self.message.functions)
        graph = message.graph
        graph.name = "part"
        graph.node.extend(self.message.graph.node[index] for index in part.nodes)
        graph.initializer.extend(self._constants[each] for each in part.constants)
        graph.input.extend(self._declared(each, values[each]) for each in part.inputs)
        for each in part.outputs:
            graph.output.append(self._outputs.get(each) or onnx.ValueInfoProto(name=each))
        stored = self._store(message, folder, name)
        return Runnable(bytes(message.SerializeToString()), stored, self._has_float16, is_large=True)

    def _declared(self, name: str, value: Array) -> onnx.ValueInfoProto:
        info = self._inputs.get(name)
        element = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        return onnx.helper.make_tensor_value_info(name, element, None) if info is None else info

    def _store(self, message: onnx.ModelProto, folder: Path, name: str) -> Path | None:
        """Resolve the references of a message; returns the folder of its weights."""
        protos = list(external_tensors(message))
        tensors = {_location(proto): self._tensors[int(_location(proto))] for proto in protos}
        places = {
            key: (Path(each.path), each.offset or 0)
            for key, each in tensors.items()
            if isinstance(each, onnx_ir.ExternalTensor) and os.path.isfile(each.path)
        }
        parents = {path.parent for path, _ in places.values()}
        if len(places) < len(tensors) or len(parents) > 1:
            places, parents = _written(tensors, folder / name), {folder}
        for proto in protos:
            (path, offset), nbytes = places[_location(proto)], _nbytes(proto)
            proto.ClearField("external_data")
            for key, text in (("location", path.name), ("offset", offset), ("length", nbytes)):
                proto.external_data.add(key=key, value=str(text))
        return parents.pop() if parents else None


def _written(tensors: Mapping[str, onnx_ir.TensorProtocol], path: Path) -> dict[str, tuple[Path, int]]:
    """Write tensors to a file one after the other, packed as they are written; returns the file and the offset of each."""
    places = {}
    with path.open("wb") as file:
        for key, tensor in tensors.items():
            file.seek(-file.tell() % _ALIGNMENT, os.SEEK_CUR)
            places[key] = (path, file.tell())
            write_tensor(tensor, file)
    return places


def failure_without_weights(model: onnx_ir.Model, inputs: SampleInputs) -> str:
    """The error of one run of a model with zeros in the place of its weights; empty if it succeeds or takes long.

    All weights are mapped to one file without blocks, so that they take neither time to read nor memory.
    """
    large = [(value, each) for value, each in onnx_io.weights(model) if _is_stored_apart(each)]
    with scratch_folder() as folder:
        with output_errors(folder / "zeros"), (folder / "zeros").open("wb") as file:
            file.truncate(max((each.nbytes for _, each in large), default=0))
        message = to_proto(model, {value: _reference("zeros", value, each) for value, each in large})
        runnable = with_definitions(Runnable(bytes(message.SerializeToString()), folder, is_large=True))
        try:
            session = runnable.session(is_optimised=False)
            sample = next(inputs.sets(session, 0))
            session.run(None, next(sample.feeds), _UNVERIFIED_SECONDS)
        except TimeoutError:
            return ""
        except RUN_OR_MEMORY_ERRORS as error:
            return error_message(error)
    return ""


def run_failure(path: Path, model: onnx_ir.Model, inputs: SampleInputs) -> str:
    """The error of running a model once; empty if onnxruntime runs it, or lacks a kernel or values for it."""
    error = failure_without_weights(model, inputs)
    if is_memory_message(error):
        return error
    return run_source_once(path, inputs).refusal if error and is_about_the_model(error) else ""


def _reference(location: str, value: onnx_ir.Value, tensor: onnx_ir.TensorProtocol) -> onnx_ir.ExternalTensor:
    """An external tensor in the place of a weight."""
    shape = onnx_ir.Shape(tensor.shape.numpy())
    return onnx_ir.ExternalTensor(location, 0, tensor.nbytes, tensor.dtype, shape=shape, name=value.name or "")


def _is_stored_apart(tensor: onnx_ir.TensorProtocol) -> bool:
    return tensor.nbytes >= _EXTERNAL_FROM and tensor.dtype != onnx_ir.DataType.STRING


def _location(proto: TensorProto) -> str:
    return str(next(entry.value for entry in proto.external_data if entry.key == "location"))


def _nbytes(proto: TensorProto) -> int:
    """The size of a tensor of a message, of which external data may be a reference."""
    if proto.data_location == TensorProto.EXTERNAL:
        return next(int(entry.value) for entry in proto.external_data if entry.key == "length")
    return int(proto.ByteSize())


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """The names that a node reads, those that its bodies read or return included, even if a body defines them itself."""
    yield from filter(None, node.input)
    for graph in nested(inner_graphs([node])):
        for inner in graph.node:
            yield from filter(None, inner.input)
        yield from (info.name for info in graph.output)


def _inner_tensors(node: onnx.NodeProto) -> Iterator[TensorProto]:
    """The initializers of the bodies of a node."""
    for graph in nested(inner_graphs([node])):
        yield from graph.initializer


def session_bytes(model: onnx_ir.Model) -> int:
    """The bytes that a comparison of whole models takes for the weights of one: in two sessions, mapped and copied.

    onnxruntime copies filters to pack them, and those of 16 bits as float32. Two sessions are open while perturbed weights run.
    """
    narrow = {onnx_ir.DataType.FLOAT16, onnx_ir.DataType.BFLOAT16}
    return sum(2 * tensor.nbytes * (3 if tensor.dtype in narrow else 2) for _, tensor in onnx_io.weights(model))


__all__ = ["Part", "WeightlessModel", "failure_without_weights", "run_failure", "session_bytes"]
