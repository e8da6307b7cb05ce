"""The kernels that onnxruntime executes for a model, after its own optimiser, each as a model of its own, and their times.

The optimised form has the nodes and the constants; a trace has the shapes of a run and the time of every node. The sum of the
times of all kernels, each timed alone, is an estimate of the run.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import inf, prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from layoutopt.files import scratch_folder
from layoutopt.ir.types import Array
from layoutopt.kernel_times.kernels import small_numbers
from layoutopt.kernel_times.store import KernelStore, RequestedTimes
from layoutopt.runtime.session import EXTERNAL_WEIGHTS, inference_session, is_kernel_event
from layoutopt.runtime.type_names import type_proto
from layoutopt.verification import Runnable

_SMALL = 64
"""Elements up to which any constant keeps its elements, on which a time may depend, as on axes, sizes and zero points."""

_VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


@dataclass(frozen=True, slots=True)
class Operand:
    """An input of a kernel.

    Attributes:
        dtype: the element type, in onnxruntime's words: float, int64.
        shape: the extents.
        is_constant: whether it is a constant, which a kernel may pack once.
        elements: the elements of a constant that keeps them; empty for random ones.
    """

    dtype: str
    shape: tuple[int, ...]
    is_constant: bool = False
    elements: bytes = b""

    @classmethod
    def of_constant(cls, tensor: onnx.TensorProto, folder: Path) -> "Operand":
        """The operand for a constant; external data is in `folder`.

        Its elements are read and kept if it is small, or has integers of more than 8 bits, which may be indices.
        """
        dtype = onnx.TensorProto.DataType.Name(tensor.data_type).lower()
        size = prod(tensor.dims)
        is_kept = size <= _SMALL or (dtype.startswith(("int", "uint", "bool")) and not dtype.endswith(("int8", "int4")))
        elements = numpy_helper.to_array(tensor, str(folder)).tobytes() if is_kept and dtype != "string" else b""
        return cls(dtype, tuple(tensor.dims), True, elements)

    @property
    def nbytes(self) -> int:
        """Size in bytes, with a byte for elements of less than one."""
        return self._numpy.itemsize * prod(self.shape)

    @property
    def _numpy(self) -> np.dtype[Any]:
        return helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(self.dtype.upper()))

    @property
    def text(self) -> str:
        """Element type and shape, such as `float 1x64x56x56`."""
        return f"{self.dtype} {'x'.join(map(str, self.shape)) or 'scalar'}"

    @property
    def key(self) -> str:
        """The text with the elements of a small constant."""
        digest = sha256(self.elements).hexdigest()[:16] if self.elements else ""
        return f"{self.text}{' constant' if self.is_constant else ''} {digest}".rstrip()

    def array(self, generator: np.random.Generator) -> Array:
        """The elements: those that are kept, or random ones without zeros and denormal numbers."""
        dtype = self._numpy
        if self.elements:
            return np.frombuffer(self.elements, dtype).reshape(self.shape)
        if np.issubdtype(dtype, np.floating) or dtype.name == "bfloat16":
            return small_numbers(self.shape).astype(dtype)
        if dtype.itemsize == 1 and dtype.kind in "iu":
            return generator.integers(0, 127, self.shape).astype(dtype)
        return np.zeros(self.shape, dtype)


@dataclass(frozen=True, slots=True)
class KernelModel:
    """A node with its operands.

    Attributes:
        node: the node, with the inputs i0, i1, ... and the outputs o0, o1, ...
        operands: its inputs, None for an absent one; an input that is read twice is listed at its first position.
        opsets: the operator sets.
        key: a text that is equal for equal kernels.
    """

    node: onnx.NodeProto
    operands: tuple[Operand | None, ...]
    opsets: tuple[tuple[str, int], ...]
    key: str

    @classmethod
    def of(
        cls, node: onnx.NodeProto, operands: Sequence[Operand | None], opsets: Iterable[onnx.OperatorSetIdProto]
    ) -> "KernelModel":
        """The kernel of a node of a model."""
        copy, distinct_operands, first_index = onnx.NodeProto(), list(operands), dict[str, int]()
        copy.CopyFrom(node)
        copy.name = ""
        for index, name in enumerate(node.input):
            if name:
                copy.input[index] = f"i{first_index.setdefault(name, index)}"
                distinct_operands[index] = operands[index] if first_index[name] == index else None
        for index, name in enumerate(node.output):
            copy.output[index] = f"o{index}" if name else ""
        versions = tuple((each.domain, each.version) for each in opsets)
        copy.attribute.sort(key=lambda each: each.name)
        texts = ", ".join("-" if each is None else each.key for each in distinct_operands)
        attributes = sha256(copy.SerializeToString(deterministic=True)).hexdigest()[:16]
        domain = f"{node.domain}::" if node.domain else ""
        version = next((version for name, version in versions if name == node.domain), 0)
        return cls(copy, tuple(distinct_operands), versions, f"{domain}{node.op_type}-{version} ({texts}) {attributes}")

    def proto(self, generator: np.random.Generator) -> onnx.ModelProto:
        """A model of the kernel alone, whose activations are inputs."""
        inputs, constants = [], []
        for index, each in enumerate(self.operands):
            if each is None:
                continue
            if each.is_constant:
                constants.append(numpy_helper.from_array(each.array(generator), f"i{index}"))
            else:
                inputs.append(helper.make_value_info(f"i{index}", _tensor_type(each)))
        outputs = [onnx.ValueInfoProto(name=name) for name in self.node.output if name]
        graph = helper.make_graph([self.node], "kernel", inputs, outputs, constants)
        opsets = [helper.make_opsetid(domain, version) for domain, version in self.opsets]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    @property
    def is_view(self) -> bool:
        """Whether the node changes the shape of its first operand only, so that a network copies nothing."""
        return not self.node.domain and self.node.op_type in _VIEWS

    def serialized(self) -> bytes:
        """The model as bytes."""
        return bytes(self.proto(np.random.default_rng(0)).SerializeToString())

    def feed(self, generator: np.random.Generator) -> dict[str, Array]:
        """Random inputs of the model."""
        return {
            f"i{index}": each.array(generator)
            for index, each in enumerate(self.operands)
            if each is not None and not each.is_constant
        }


def _tensor_type(operand: Operand) -> onnx.TypeProto:
    found = type_proto(f"tensor({operand.dtype})")
    found.tensor_type.shape.CopyFrom(onnx.TensorShapeProto())
    for extent in operand.shape:
        found.tensor_type.shape.dim.add(dim_value=extent)
    return found


_RUNS = 5  # with a trace, after one without


@dataclass(frozen=True, slots=True)
class ExecutedKernel:
    """One node of the optimised form.

    Attributes:
        node: its name in the optimised form.
        op: its op type, with the domain unless it is ONNX's own.
        shapes: shapes of its inputs, as text.
        traced: the median of its times in traced runs, in seconds.
        model: the kernel alone; None if it has bodies, or operands that are no tensors.
        result: the name of its first result.
        results: its results, without those that are no tensors.
    """

    node: str
    op: str
    shapes: str
    traced: float
    model: KernelModel | None
    result: str
    results: tuple[Operand, ...]


def executed_kernels(model: Runnable, feed: Mapping[str, Any], threads: int = 1) -> list[ExecutedKernel]:
    """The kernels of one run, in the order of the optimised form; nodes in bodies belong to the node that has the body.

    Args:
        model: the model.
        feed: its inputs.
        threads: threads of onnxruntime.

    Raises:
        RuntimeError: and other exceptions of onnxruntime, which does not load or run the model.
    """
    with scratch_folder() as folder:
        saved = folder / "optimised.onnx"
        model.save_optimised(saved, EXTERNAL_WEIGHTS, threads)
        message = onnx.load(str(saved), load_external_data=False)
        for number, node in enumerate(message.graph.node):
            node.name = f"kernel{number}"
        saved.write_bytes(message.SerializeToString())
        session = inference_session(str(saved), is_optimised=False, threads=threads, trace=folder / "trace")
        for _ in range(1 + _RUNS):
            session.run(None, dict(feed))
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        return _kernels(message, events, folder)


def _kernels(message: onnx.ModelProto, events: Sequence[Mapping[str, Any]], folder: Path) -> list[ExecutedKernel]:
    times: dict[str, list[float]] = defaultdict(list)
    arguments: dict[str, Mapping[str, Any]] = {}
    for event in filter(is_kernel_event, events):
        name = event["name"].removesuffix("_kernel_time")
        times[name].append(event["dur"] * 1e-6)
        arguments[name] = event["args"]
    constants = {each.name: each for each in message.graph.initializer}
    found = []
    for node in message.graph.node:
        if node.name not in times:  # removed by onnxruntime when it loads the optimised form
            continue
        operands = _operands(node, arguments[node.name], constants, folder)
        shapes = ", ".join(each.text for each in operands if each is not None) if operands is not None else ""
        op = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        model = KernelModel.of(node, operands, message.opset_import) if operands is not None else None
        traced = float(np.median(times[node.name][1:]))
        results = tuple(Operand(*each) for each in _traced(arguments[node.name], "output_type_shape"))
        found.append(ExecutedKernel(node.name, op, shapes, traced, model, next(iter(node.output), ""), results))
    return found


def _operands(
    node: onnx.NodeProto, arguments: Mapping[str, Any], constants: Mapping[str, onnx.TensorProto], folder: Path
) -> list[Operand | None] | None:
    """The inputs of a node; None if one is not a tensor, or the node has bodies.

    A trace lists the tensors that exist during a run; constants that a kernel has packed are missing.
    """
    if any(each.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for each in node.attribute):
        return None
    traced = _traced(arguments, "input_type_shape")
    found: list[Operand | None] = []
    for name in node.input:
        if not name:
            found.append(None)
        elif name in constants:
            constant = Operand.of_constant(constants[name], folder)
            found.append(constant)
            if traced and (constant.dtype, constant.shape) == traced[0]:
                del traced[0]
        elif traced:
            found.append(Operand(*traced.pop(0)))
        else:
            return None
    return found if not traced else None


def _traced(arguments: Mapping[str, Any], key: str) -> list[tuple[str, tuple[int, ...]]]:
    """Element types and shapes of the tensors in a list of a trace event."""
    return [(dtype, tuple(shape)) for each in arguments.get(key, []) for dtype, shape in each.items()]


@dataclass(frozen=True, slots=True)
class TimedKernel:
    """An executed kernel with its time.

    Attributes:
        kernel: the kernel.
        seconds: its time alone; its time in the traced run if it cannot run alone.
        is_alone: whether it was timed alone.
    """

    kernel: ExecutedKernel
    seconds: float
    is_alone: bool


@dataclass(frozen=True, slots=True)
class RunEstimate:
    """The estimated time of a run.

    Attributes:
        kernels: the executed kernels.
    """

    kernels: Sequence[TimedKernel]

    @property
    def seconds(self) -> float:
        """The sum of the times."""
        return sum(each.seconds for each in self.kernels)


def estimate_run(model: Runnable, feed: Mapping[str, Any], store: KernelStore) -> RunEstimate:
    """The estimated time of a run of a model in stock onnxruntime at its default level.

    Kernels that the store does not have are timed, and added to it.

    Args:
        model: the model.
        feed: its inputs, which determine the sizes.
        store: the times of kernels on this machine, for a number of threads.
    """
    kernels = executed_kernels(model, feed, store.machine.threads)
    times = RequestedTimes(store, inf)
    times.request([each.model for each in kernels if each.model is not None and not each.model.is_view])
    alone = [None if each.model is None else times.get(each.model.key) for each in kernels]
    return RunEstimate(
        [
            TimedKernel(kernel, kernel.traced if seconds is None else seconds, seconds is not None)
            for kernel, seconds in zip(kernels, alone, strict=True)
        ]
    )
