"""Element types, tensor types, values, ops, padding states, storages, signatures, and model-local functions.

A *logical tensor* is what ONNX defines: axes in its order, and a logical shape. It never changes. A `Storage` is the
way its elements are stored: a `Format`, the state of the padding elements of that format, and the device of a platform.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import Enum, IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import ml_dtypes
import numpy as np
from msgspec import Struct

from layoutopt.formats import Dim, Format, Shape, as_shape
from layoutopt.record import Record

if TYPE_CHECKING:
    from layoutopt.ir.graph import Graph

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class DType(Enum):
    """An element type: its name, its size in bits, the numpy type that holds one element.

    Members are in the order of ONNX's enumeration, in which `number` is their position, counted from 1.
    """

    FLOAT32 = ("float32", 32, np.float32)
    UINT8 = ("uint8", 8, np.uint8)
    INT8 = ("int8", 8, np.int8)
    UINT16 = ("uint16", 16, np.uint16)
    INT16 = ("int16", 16, np.int16)
    INT32 = ("int32", 32, np.int32)
    INT64 = ("int64", 64, np.int64)
    STRING = ("string", 64, np.object_)
    BOOL = ("bool", 8, np.bool_)
    FLOAT16 = ("float16", 16, np.float16)
    FLOAT64 = ("float64", 64, np.float64)
    UINT32 = ("uint32", 32, np.uint32)
    UINT64 = ("uint64", 64, np.uint64)
    COMPLEX64 = ("complex64", 64, np.complex64)
    COMPLEX128 = ("complex128", 128, np.complex128)
    BFLOAT16 = ("bfloat16", 16, ml_dtypes.bfloat16)
    FLOAT8E4M3FN = ("float8e4m3fn", 8, ml_dtypes.float8_e4m3fn)
    FLOAT8E4M3FNUZ = ("float8e4m3fnuz", 8, ml_dtypes.float8_e4m3fnuz)
    FLOAT8E5M2 = ("float8e5m2", 8, ml_dtypes.float8_e5m2)
    FLOAT8E5M2FNUZ = ("float8e5m2fnuz", 8, ml_dtypes.float8_e5m2fnuz)
    UINT4 = ("uint4", 4, ml_dtypes.uint4)
    INT4 = ("int4", 4, ml_dtypes.int4)
    FLOAT4E2M1 = ("float4e2m1", 4, ml_dtypes.float4_e2m1fn)
    FLOAT8E8M0 = ("float8e8m0", 8, ml_dtypes.float8_e8m0fnu)
    UINT2 = ("uint2", 2, ml_dtypes.uint2)
    INT2 = ("int2", 2, ml_dtypes.int2)

    def __init__(self, label: str, bits: int, scalar: type) -> None:
        self.label = label
        self.bits = bits
        self.numpy: np.dtype[Any] = np.dtype(scalar)
        self.number = len(type(self).__members__) + 1

    @property
    def is_float(self) -> bool:
        """Whether the elements are floating-point or complex numbers."""
        return self.label.startswith(("float", "bfloat", "complex"))

    @classmethod
    def of(cls, array: Array) -> "DType":
        """The type of an array's elements."""
        return next(dtype for dtype in cls if dtype.numpy == array.dtype)

    def __str__(self) -> str:
        return self.label


@dataclass(frozen=True, slots=True, init=False)
class TensorType:
    """A dense tensor: element type and logical shape; `shape` is None where not even the rank is known."""

    dtype: DType
    shape: Shape | None

    def __init__(self, dtype: DType, shape: Iterable[Dim | str] | None) -> None:
        """A symbolic extent may be given as its text: TensorType(dtype, ("N", 3, "H//2", "W//2"))."""
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "shape", None if shape is None else as_shape(shape))

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]" if self.shape is not None else f"{self.dtype}[?]"


def float32_type(shape: Shape) -> TensorType:
    """The float32 tensor type of a shape."""
    return TensorType(DType.FLOAT32, shape)


@dataclass(frozen=True, slots=True)
class OpaqueType:
    """A type that layouts do not apply to (sequence, map, optional, sparse, or unknown).

    `origin` is the onnx_ir object that it was lifted from, for the emitter.
    """

    text: str = "?"
    origin: object = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return self.text


class Padding(IntEnum):
    """The contents of the padding of a blocked tensor, as a lattice: zero < finite < any.

    FINITE is bounded by a small constant (1 after Sigmoid, Exp of zero ...), so that zero weights cancel it. ANY may be
    infinite or NaN. A consumer that accepts a state accepts every smaller one.
    """

    ZERO = 0
    FINITE = 1
    ANY = 2

    def __str__(self) -> str:
        return self.name.lower()


class Storage(Record):
    """The format of a stored tensor, the state of its padding (ZERO if it has none), and the device that stores it.

    Without a device it is on every device: constants are, and all tensors of a target that is no platform.
    """

    format: Format
    padding: Padding = Padding.ZERO
    device: str = ""

    @classmethod
    @cache
    def canonical(cls, rank: int) -> "Storage":
        """Row-major order."""
        return cls(Format.canonical(rank))

    def placed(self, device: str) -> "Storage":
        """The storage on a device."""
        return self if device == self.device else Storage(self.format, self.padding, device)

    def is_on(self, device: str) -> bool:
        """Whether the device, or any device if it is empty, can read the tensor without a transfer."""
        return not self.device or device in ("", self.device)

    def satisfies(self, required: "Storage", shape: Shape) -> bool:
        """Whether a tensor in this storage can be read as `required` without a copy: same bytes, device, padding no worse."""
        is_good = self.padding <= required.padding and self.is_on(required.device)
        return is_good and self.format.same_bytes(required.format, shape)

    def text(self, axes: str = "") -> str:
        """The format with the letters `axes` (see `Format.text`), and the state of the padding unless it is ZERO."""
        return self.format.text(axes) + ("" if self.padding is Padding.ZERO else f"({self.padding} padding)")

    def placed_text(self, axes: str) -> str:
        """The text with the device, if there is one."""
        return f"{self.text(axes)} on {self.device}" if self.device else self.text(axes)

    def __str__(self) -> str:
        return self.text()


class Slot(Record, order=True):
    """One operand of an op: `Slot("in", 0)` is its first input, `Slot("out", 0)` its first output."""

    side: Literal["in", "out"]
    index: int

    def __str__(self) -> str:
        return f"{self.side}{self.index}"


class Signature(Record):
    """One legal way to run an op: a storage for every input and output.

    The padding state of an input is the largest one that the op accepts; that of an output is the one that the op leaves. None
    is the storage of an operand that is absent or has no format (an unknown rank, a sequence).
    """

    inputs: tuple[Storage | None, ...]
    outputs: tuple[Storage | None, ...]

    def __getitem__(self, slot: Slot) -> Storage | None:
        return (self.inputs if slot.side == "in" else self.outputs)[slot.index]

    @property
    def device(self) -> str:
        """The device that runs the op; empty if no operand has one."""
        return next((each.device for each in (*self.outputs, *self.inputs) if each is not None and each.device), "")

    def placed(self, device: str) -> "Signature":
        """The signature with all operands on a device."""
        if not device:
            return self
        inputs, outputs = (tuple(each and each.placed(device) for each in side) for side in (self.inputs, self.outputs))
        return Signature(inputs, outputs)

    def __str__(self) -> str:
        def side(storages: tuple[Storage | None, ...]) -> str:
            return ", ".join("-" if storage is None else str(storage) for storage in storages)

        return f"({side(self.inputs)}) -> ({side(self.outputs)})"


class Data(Protocol):
    """The elements of a constant, in logical order; reading them may read a file."""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""

    def numpy(self) -> Array:
        """The elements as an array of the logical shape."""


class ArrayData:
    """Elements that are in memory already."""

    def __init__(self, array: Array) -> None:
        self.array = array

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return int(self.array.nbytes)

    def numpy(self) -> Array:
        """The elements."""
        return self.array


class ComputedData(Record):
    """Elements that are computed whenever they are read; equal if the function and its arguments are."""

    nbytes: int
    compute: Callable[..., Array]
    arguments: tuple[object, ...]

    def numpy(self) -> Array:
        """The elements."""
        return self.compute(*self.arguments)


class Opaque(Record, eq=False):
    """An attribute that is preserved without being interpreted: a tensor, a type, a reference."""

    kind: str
    payload: object


Attribute: TypeAlias = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | Opaque


@dataclass(eq=False)
class Value:
    """One tensor of the graph: a name, a type, a storage, and its elements if it is a constant.

    Values are compared by identity. `data` is always in logical order, whatever the storage. `tensor` is the name of the
    logical tensor: copies of it in other storages have other names and the same `tensor`. `elements` are
    the known elements of a small computed tensor of rank 0 or 1: for each a number, an extent, or None. `axis_letters` are the
    letters of the axes by their roles, in logical order (`inference.axis_letters`): empty without roles, None before inference.
    """

    name: str
    type: TensorType | OpaqueType
    _: KW_ONLY
    storage: Storage | None = None
    data: Data | None = None
    origin: object = None
    tensor: str = ""
    elements: tuple[Dim | None, ...] | None = field(default=None, init=False)
    axis_letters: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.tensor = self.tensor or self.name
        self.storage = self._canonical() if self.storage is None else self.storage

    def give_type(self, type: TensorType | OpaqueType) -> None:
        """Set the type, and the storage to the canonical one."""
        self.type = type
        self.storage = self._canonical()

    def _canonical(self) -> Storage | None:
        rank = self.rank
        return None if rank is None else Storage.canonical(rank)

    def format_text(self, format: Format) -> str:
        """A format of this tensor with the letters of its axes."""
        return format.text(self.axis_letters or "")

    @property
    def storage_text(self) -> str:
        """The storage with the letters of the axes; empty if the rank is unknown."""
        return "" if self.storage is None else self.storage.text(self.axis_letters or "")

    @property
    def shape(self) -> Shape | None:
        """The logical shape; None if the rank is unknown or the value is no tensor."""
        return self.type.shape if isinstance(self.type, TensorType) else None

    @property
    def dims(self) -> Shape:
        """The logical shape of a tensor whose rank is known."""
        shape = self.shape
        assert shape is not None, self
        return shape

    def type_with(self, shape: Shape | None) -> TensorType:
        """The type of a tensor of this element type and another shape."""
        assert isinstance(self.type, TensorType), self
        return TensorType(self.type.dtype, shape)

    @property
    def rank(self) -> int | None:
        """The number of axes; None if unknown."""
        shape = self.shape
        return None if shape is None else len(shape)

    @property
    def dtype(self) -> DType | None:
        """The element type; None if the value is no tensor."""
        return self.type.dtype if isinstance(self.type, TensorType) else None

    @property
    def is_constant(self) -> bool:
        """Whether the elements are known and cannot be replaced by a caller."""
        return self.data is not None

    @property
    def known(self) -> Array | None:
        """The elements of a computed tensor of integers or booleans, if all are numbers."""
        shape, numbers = self.static_shape, [dim for dim in self.elements or () if isinstance(dim, int)]
        if self.elements is None or self.dtype is None or self.dtype.is_float or shape is None:
            return None
        return np.array(numbers, self.dtype.numpy).reshape(shape) if len(numbers) == len(self.elements) else None

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape, if every dimension is a number."""
        shape = self.shape
        numbers = tuple([dim for dim in shape or () if isinstance(dim, int)])
        return numbers if shape is not None and len(numbers) == len(shape) else None

    def __repr__(self) -> str:
        return f"Value({self.name}: {self.type} {self.storage_text or None})"

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: elements in memory, and no origin, whose links run through the whole model."""
        data = self.data if self.data is None or isinstance(self.data, ArrayData) else ArrayData(self.data.numpy())
        return {**self.__dict__, "data": data, "origin": None}


Operands: TypeAlias = tuple[Value | None, ...]
"""The inputs or outputs of an op; None for an absent one."""


Attributes: TypeAlias = dict[str, Attribute]


@dataclass(eq=False)
class Op:
    """One operation. Compared by identity; linked by the graph that owns it, which alone changes its operands.

    `bodies` are its subgraphs, by the attribute that holds each. A body is closed: a value of the graph
    around it that it reads is an input of the body and of the op. These are the last `captured` inputs of the op and of every
    body, in the same order. `device` is the device of a platform that runs the op, once it is known.
    `overload` distinguishes model-local functions of one name. `order` is the sort key of ops
    that do not depend on each other. `origin` is the onnx_ir node that the op was lifted from, for the emitter.
    """

    op_type: str
    inputs: Operands
    outputs: Operands
    _: KW_ONLY
    domain: str = ""
    overload: str = ""
    version: int = 0
    name: str = ""
    attributes: Attributes = field(default_factory=dict)
    bodies: "dict[str, Graph]" = field(default_factory=dict)
    captured: int = 0
    order: tuple[int, ...] = ()
    device: str = ""
    origin: object = None
    signature: Signature | None = field(default=None, init=False)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: everything but the origin, whose links run through the whole model."""
        return {**self.__dict__, "origin": None}

    def copy(self, inputs: "Operands", outputs: "Operands", **changes: Any) -> "Op":
        """A new op like this one on other operands, in no graph and without a signature.

        Args:
            inputs: the inputs of the copy.
            outputs: the outputs of the copy.
            changes: further arguments of `Op` in which the copy differs.
        """
        changes = {"attributes": dict(self.attributes), **changes}
        return replace(self, inputs=inputs, outputs=outputs, **changes)

    def copy_on(self, copies: "Mapping[Value, Value]", **changes: Any) -> "Op":
        """A new op like this one on the copies of its operands, as of `copy`."""
        inputs, outputs = (tuple(each and copies[each] for each in side) for side in (self.inputs, self.outputs))
        return self.copy(inputs, outputs, **changes)

    @property
    def kind(self) -> str:
        """The op type, with its domain in front unless that is ai.onnx."""
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type

    @property
    def x(self) -> Value:
        """The first input, which is present."""
        value = self.inputs[0]
        assert value is not None, self
        return value

    @property
    def y(self) -> Value:
        """The first output, which is present."""
        value = self.outputs[0]
        assert value is not None, self
        return value

    @property
    def uncaptured_input_count(self) -> int:
        """The number of inputs without the captured ones."""
        return len(self.inputs) - self.captured

    def captured_inputs(self, body: "Graph") -> "list[Value]":
        """The inputs of one of its bodies that are captured values."""
        return body.inputs[len(body.inputs) - self.captured :]

    def operand(self, slot: Slot) -> Value | None:
        """The value at a slot; None if it is absent."""
        values = self.inputs if slot.side == "in" else self.outputs
        return values[slot.index] if slot.index < len(values) else None

    def input(self, index: int) -> Value | None:
        """Input `index`; None if it is absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    @property
    def present_inputs(self) -> "list[Value]":
        """The inputs without absent ones."""
        return [value for value in self.inputs if value is not None]

    @property
    def present_outputs(self) -> "list[Value]":
        """The outputs without absent ones."""
        return [value for value in self.outputs if value is not None]

    @property
    def values(self) -> "list[Value]":
        """The present inputs and outputs."""
        return self.present_inputs + self.present_outputs

    def slots(self) -> list[Slot]:
        """The slots that hold a value, inputs first."""
        ins = [Slot("in", index) for index, value in enumerate(self.inputs) if value is not None]
        return ins + [Slot("out", index) for index, value in enumerate(self.outputs) if value is not None]

    def constant(self, index: int) -> Array | None:
        """The elements of input `index`, if there is one and it is a constant."""
        value = self.input(index)
        return None if value is None or value.data is None else value.data.numpy()

    def elements(self, index: int) -> tuple[Dim | None, ...] | None:
        """The known elements of input `index`, a list of integers; None if no element is known."""
        value, array = self.input(index), self.constant(index)
        if array is not None:
            return tuple(int(item) for item in array.reshape(-1))
        return None if value is None else value.elements

    def integers(self, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """An integer-list attribute."""
        value = self.attributes.get(name, default)
        return tuple(int(item) for item in value) if isinstance(value, tuple) else default

    def integer(self, name: str, default: int = 0) -> int:
        """An integer attribute."""
        value = self.attributes.get(name, default)
        return value if isinstance(value, int) else default

    def __repr__(self) -> str:
        return f"Op({self.name or '-'}: {self.kind})"


class Function(Struct):
    """A model-local function: a named graph of ops of the standard domain."""

    domain: str
    name: str
    attributes: tuple[str, ...]
    body: "Graph"
    doc: str = ""
    overload: str = ""


class ReferenceAttribute(Struct):
    """The payload of an attribute inside a function body that takes its value from the call."""

    name: str
    kind: str = ""
