"""A session of a model whose parts run one after the other, each with its own weights: one is larger than the available
memory, another one is for several devices.

    x -> [ weights 1 ] -> q      q -> [ weights 2 ] -> p      p -> [ weights 3 ] -> y

The weights are external data, which onnxruntime maps.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

import onnx
import onnx_ir
from onnx import TensorProto, numpy_helper

from layoutopt import onnx_io
from layoutopt.errors import LayoutoptError
from layoutopt.onnx_io.interface import Input, declared_inputs
from layoutopt.onnx_io.messages import inner_graphs, nested
from layoutopt.onnx_io.partitions import device_of
from layoutopt.onnx_io.tensors import tensors
from layoutopt.record import Record
from layoutopt.runtime.available_memory import available_bytes
from layoutopt.runtime.errors import RUN_OR_MEMORY_ERRORS, error_message, is_out_of_memory
from layoutopt.runtime.session import Session
from layoutopt.runtime.type_names import type_proto

MAX_PART_BYTES = 512_000_000
"""Bytes of weights of one part, unless one node has more."""

MEMORY_PER_PART = 8
"""The available memory divided by the weights of one part, which onnxruntime copies, as float32 if they have 16 bits."""


class Part(Record):
    """Consecutive nodes of a model.

    Attributes:
        start, end: the nodes.
        inputs: the names of the graph inputs and of the results of earlier parts that they read.
        outputs: the names of the results that later parts read or that are graph outputs.
        constants: the names of the initializers that they read.
        nbytes: the size of the weights.
    """

    start: int
    end: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: tuple[str, ...]
    nbytes: int


def is_too_large(*models: onnx_ir.Model) -> bool:
    """Whether the available memory is too small for a comparison of one of the models as a whole.

    A comparison has two sessions with the weights of one model, mapped and copied: two sessions are open while perturbed
    weights run, and onnxruntime copies filters to pack them, those of 16 bits as float32.
    """
    narrow = {onnx_ir.DataType.FLOAT16, onnx_ir.DataType.BFLOAT16}
    sizes = [
        sum(2 * tensor.nbytes * (3 if tensor.dtype in narrow else 2) for _, tensor in onnx_io.weights(model))
        for model in models
    ]
    return max(sizes) > available_bytes()


def parts_of(graph: onnx.GraphProto, limit: float = inf) -> list[Part]:
    """The parts of a model, each on one device, and with weights of at most `limit` bytes unless one node has more."""
    constants = {tensor.name: _nbytes(tensor) for tensor in graph.initializer}
    reads = [dict.fromkeys(_reads(node)) for node in graph.node]
    sizes = [
        sum(constants.get(name, 0) for name in read) + sum(map(_nbytes, _inner_tensors(node)))
        for node, read in zip(graph.node, reads, strict=True)
    ]
    starts, nbytes, devices = [0], 0.0, [*map(device_of, graph.node)]
    for index, size in enumerate(sizes):
        is_full = nbytes + size > limit or devices[index] != devices[starts[-1]]
        if is_full and index > starts[-1]:
            starts.append(index)
            nbytes = 0
        nbytes += size
    available = {each.name for each in graph.input} | {name for node in graph.node for name in node.output}
    later = {each.name for each in graph.output}
    found = []
    for start, end in zip(reversed(starts), [len(sizes), *reversed(starts[1:])], strict=True):
        computed = dict.fromkeys(name for node in graph.node[start:end] for name in node.output if name)
        read = dict.fromkeys(name for each in reads[start:end] for name in each)
        inputs = tuple(name for name in read if name in available - constants.keys() and name not in computed)
        held = tuple(name for name in read if name in constants)
        outputs = tuple(name for name in computed if name in later)
        found.append(Part(start, end, inputs, outputs, held, sum(sizes[start:end])))
        later |= set(inputs)
    return found[::-1]


class PartedSession:
    """A session, without optimisations, that holds the weights of one part of a model at a time.

    Args:
        message: the model.
        folder: the folder of its external data; None if it has none.
        prepacks: whether weights are copied to be packed, without which onnxruntime runs other kernels of some operators.
    """

    def __init__(self, message: onnx.ModelProto, folder: Path | None, *, prepacks: bool = False) -> None:
        self._message, self._folder, self._prepacks = message, folder, prepacks
        self._constants = {tensor.name: tensor for tensor in message.graph.initializer}
        self.parts = parts_of(message.graph, min(MAX_PART_BYTES, available_bytes() // MEMORY_PER_PART))

    def get_inputs(self) -> Sequence[Input]:
        """Name, type and shape of every input without an initializer."""
        return _declared(each for each in self._message.graph.input if each.name not in self._constants)

    def get_outputs(self) -> Sequence[Input]:
        """Name, type and shape of every output."""
        return _declared(self._message.graph.output)

    def run_all(
        self, names: Sequence[str] | None, feeds: Sequence[Mapping[str, Any]], seconds: float | None = None
    ) -> list[list[Any]]:
        """The outputs for each of several feeds, as of `Session`; the time limit holds for every part.

        Raises:
            LayoutoptError: a part does not run, or there is too little memory for it.
        """
        graph = self._message.graph
        requested = [each.name for each in graph.output] if names is None else list(names)
        given = {
            name: numpy_helper.to_array(self._constants[name], str(self._folder or ""))
            for name in requested
            if name in self._constants
        }
        runs = [{**given, **feed} for feed in feeds]
        types = {each.name: each.type for each in graph.input}
        for number, part in enumerate(self.parts):
            try:
                session = self._session(part, types)
                types |= {each.name: type_proto(each.type) for each in session.get_outputs()}
                for values in runs:
                    outputs = session.run(part.outputs, {name: values[name] for name in part.inputs}, seconds)
                    values |= dict(zip(part.outputs, outputs, strict=True))
                del session
            except RUN_OR_MEMORY_ERRORS as error:
                raise LayoutoptError(_reason(part, error)) from None
            later = {name for each in self.parts[number + 1 :] for name in each.inputs}.union(requested)
            runs = [{name: values[name] for name in values if name in later} for values in runs]
        return [[values[name] for name in requested] for values in runs]

    def run(self, names: Sequence[str] | None, feed: Mapping[str, Any], seconds: float | None = None) -> list[Any]:
        """The outputs for one feed, as of `Session`."""
        return self.run_all(names, [feed], seconds)[0]

    def _session(self, part: Part, types: Mapping[str, onnx.TypeProto]) -> Session:
        source = model_of_part(self._message, part, types).SerializeToString()
        return Session(source, is_optimised=False, folder=self._folder, prepacks=self._prepacks, has_arena=False)


def model_of_part(model: onnx.ModelProto, part: Part, types: Mapping[str, onnx.TypeProto]) -> onnx.ModelProto:
    """A part as a model of its own; `types` has those of its inputs, and of outputs that are to be declared."""
    message = onnx.ModelProto(ir_version=model.ir_version)
    message.opset_import.extend(model.opset_import)
    message.functions.extend(model.functions)
    message.graph.name = "part"
    message.graph.node.extend(model.graph.node[part.start : part.end])
    for node in message.graph.node:
        node.ClearField("device_configurations")  # all of one device, also for readers of older IR versions
    held = {*part.constants}
    message.graph.initializer.extend(each for each in model.graph.initializer if each.name in held)
    for name in part.inputs:
        message.graph.input.add(name=name).type.CopyFrom(types[name])
    for name in part.outputs:
        message.graph.output.add(name=name).type.CopyFrom(types.get(name, onnx.TypeProto()))
    return message


def _reason(part: Part, error: Exception) -> str:
    """The reason why a part does not run."""
    where = f"the segment of {next(iter(part.outputs), 'no output')}"
    if is_out_of_memory(error):
        return f"there is too little memory for {where}, with {part.nbytes / 1e6:,.0f} MB of weights"
    return f"{where} cannot be run by itself: {error_message(error)}"


def _declared(values: Iterable[onnx.ValueInfoProto]) -> Sequence[Input]:
    message = onnx.ModelProto()
    message.graph.input.extend(values)
    return declared_inputs(onnx_ir.from_proto(message))


def external_tensors(message: onnx.ModelProto) -> Iterator[TensorProto]:
    """The tensors of a message that are stored as external data."""
    yield from (each for _, each in tensors(message) if each.data_location == TensorProto.EXTERNAL)


def _nbytes(proto: TensorProto) -> int:
    """The size of a tensor of a message, of which external data may be a reference."""
    lengths = [int(entry.value) for entry in proto.external_data if entry.key == "length"]
    return lengths[0] if lengths else int(proto.ByteSize())


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
