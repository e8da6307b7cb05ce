"""One kernel to time: an op with a signature, which the cost model prices and the dialect `onnxruntime` lowers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np

from layoutopt.cost_models import RooflineModel
from layoutopt.dialects import OnnxRuntime
from layoutopt.formats import Format
from layoutopt.ir.graph import CAST, DOMAIN, Graph
from layoutopt.ir.types import Array, ArrayData, Attribute, DType, Op, Signature, Storage, TensorType, Value
from layoutopt.kernel_times.lowered_kernel import lowered_alone
from layoutopt.kernel_times.random_arrays import RandomConstant

OPSET = 20


@dataclass(frozen=True, slots=True)
class KernelOperand:
    """An operand of a timed kernel: a float32 tensor, or given constants.

    Attributes:
        shape: the logical shape.
        format: the format in the first letters of NCHW; canonical if empty.
        is_constant: whether it is a weight.
        numbers: the values of an integer constant, such as axes and sizes.
        scales: the values of a floating-point constant.
    """

    shape: tuple[int, ...]
    format: str = ""
    is_constant: bool = False
    numbers: tuple[int, ...] = ()
    scales: tuple[float, ...] = ()

    @property
    def storage(self) -> Storage:
        """The storage; the letters N, C, H, W are the axes in this order, also of filters."""
        canonical = Format.canonical(len(self.shape))
        return Storage(Format.parse(self.format, "NCHW"[: len(self.shape)]) if self.format else canonical)

    def value(self, name: str, seed: int) -> Value:
        """A value of the graph."""
        if self.numbers or self.scales:
            array: Array = np.asarray(self.numbers or self.scales, np.int64 if self.numbers else np.float32)
            return Value(name, TensorType(DType.of(array), array.shape), data=ArrayData(array))
        data = RandomConstant(self.shape, seed) if self.is_constant else None
        return Value(name, TensorType(DType.FLOAT32, self.shape), storage=self.storage, data=data)

    def __str__(self) -> str:
        what = "x".join(map(str, self.numbers or self.scales or self.shape)) or "scalar"
        return f"{what}{f':{self.format}' if self.format else ''}"


@dataclass(frozen=True, slots=True)
class KernelCase:
    """A kernel to time.

    Attributes:
        family: the family of kernels, a row of the agreement table.
        op_type: the op type; CastData for a conversion.
        inputs: the inputs, None for an absent one.
        output: the only output.
        attributes: of the op.
        domain: of the op.
    """

    family: str
    op_type: str
    inputs: tuple[KernelOperand | None, ...]
    output: KernelOperand
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    domain: str = ""

    @property
    def key(self) -> str:
        """The op, operands and attributes in one line, which identify the case."""
        fields = " ".join(f"{name}={_attribute_text(value)}" for name, value in sorted(self.attributes.items()))
        operands = ", ".join("-" if each is None else str(each) for each in self.inputs)
        return f"{self.op_type} {operands} -> {self.output}{f' {fields}' if fields else ''}"

    @property
    def is_cast(self) -> bool:
        """Whether the kernel is a layout conversion."""
        return self.op_type == CAST

    def op(self, graph: Graph | None = None) -> Op:
        """The op with its signature, added to a graph if one is given."""
        values = [None if each is None else each.value(f"x{index}", index) for index, each in enumerate(self.inputs)]
        result = self.output.value("y", 0)
        domain = DOMAIN if self.is_cast else self.domain
        op = Op(
            self.op_type,
            tuple(values),
            (result,),
            domain=domain,
            version=1 if domain else OPSET,
            name=self.op_type,
            attributes=dict(self.attributes),
        )
        op.signature = Signature(tuple(None if each is None else each.storage for each in values), (result.storage,))
        if graph is not None:
            for value in values:
                if value is not None:
                    graph.add_value(value)
                    if not value.is_constant:
                        graph.inputs.append(value)
            graph.add_value(result)
            graph.add_op(op)
            graph.outputs.append(result)
        return op

    def price(self, model: RooflineModel) -> float:
        """The price of the cost model, in seconds."""
        op = self.op()
        assert op.signature is not None
        x, source, target = op.inputs[0], op.signature.inputs[0], op.signature.outputs[0]
        if self.is_cast:
            assert x is not None and source is not None and target is not None
            return model.conversion_seconds(x, source, target)
        return model.kernel_seconds(op, op.signature)

    def nbytes(self) -> int:
        """Bytes of all operands, without padding."""
        return 4 * sum(prod(each.shape) for each in (*self.inputs, self.output) if each is not None)

    def lowered(self) -> Graph:
        """The lowered graph of the op alone."""
        graph = Graph("case", {"": OPSET})
        self.op(graph)
        graph.stage = "cast"
        if self.domain:
            graph.opsets[self.domain] = 1
        return lowered_alone(graph, OnnxRuntime())


def _attribute_text(value: Attribute) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
