"""One executed kernel as a model of its own, and the text that identifies it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from layoutopt.ir.types import Array
from layoutopt.kernel_times.random_arrays import small_numbers
from layoutopt.runtime.type_names import type_proto

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
            return small_numbers(generator, self.shape).astype(dtype)
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
    def is_optimised(self) -> bool:
        """The kernel runs as it is: onnxruntime has optimised the model that it is from."""
        return False

    @property
    def is_view(self) -> bool:
        """Whether the node changes the shape of its first operand only."""
        return not self.node.domain and self.node.op_type in _VIEWS

    def serialized(self, generator: np.random.Generator) -> bytes:
        """The model as bytes."""
        return bytes(self.proto(generator).SerializeToString())

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
