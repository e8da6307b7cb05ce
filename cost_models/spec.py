"""What a target file may say, as a schema: a number without a source is not accepted.

    name = "my-npu"                            # the file's stem by default
    inherits = "ascend-310"                    # a built-in target, or the path of another file
    rates.cube.float16 = { value = 8e12, source = "vendor's datasheet, table 3" }

Units are seconds, bytes per second and arithmetic operations per second (a multiply-add being two).
Efficiencies are fractions of a peak. Numbers that nobody has published begin with
`estimate:` or `measured:`.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from layoutopt.cost_models.templates import check
from layoutopt.errors import FormatError
from layoutopt.ir.types import DType
from layoutopt.ops import rules

FAMILIES = frozenset(
    (
        "convolution",
        "transposed_convolution",
        "matmul",
        "pooling",
        "global_pooling",
        "normalization",
        "elementwise",
        "reduction",
        "softmax",
        "resize",
        "rearrangement",
        "depth_to_space",
    )
)
_DTYPES = {dtype.label: dtype for dtype in DType}
_ROLES = frozenset("xwyab")
_STRIDES = ("pointers", "modes")


def _dtype(label: str) -> str:
    if label not in _DTYPES:
        raise ValueError("not an element type")
    return label


def _family(name: str) -> str:
    if name not in FAMILIES | {rule.family for rule in rules().values()}:
        raise ValueError(f"no family of operations; there are {', '.join(sorted(FAMILIES))}")
    return name


def _role(name: str) -> str:
    if name not in _ROLES:
        raise ValueError("no operand; there are x, w, y, and for matrix products a, b, y")
    return name


def _template(text: str) -> str:
    try:
        return check(text)
    except FormatError as error:
        raise ValueError(f"{error.what}; {error.hint or 'use the axes of the format'}") from None


def _strided(value: bool | str) -> bool | str:
    if isinstance(value, str) and value not in _STRIDES:
        raise ValueError(f"expected true, {' or '.join(_STRIDES)}")
    return value


def _several(value: Any) -> Any:
    """One string stands for a list of one."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


def _rows(value: Any) -> Any:
    """TOML has lists for tuples."""
    if isinstance(value, dict):
        raise ValueError("expected rows, found a table; write [[...]] with two brackets")
    return tuple(value) if isinstance(value, list) else value


Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_several)]
DTypeName = Annotated[str, AfterValidator(_dtype)]
DTypeNames = Annotated[tuple[DTypeName, ...], BeforeValidator(_several), Field(min_length=1)]
Families = Annotated[tuple[Annotated[str, AfterValidator(_family)], ...], BeforeValidator(_several)]
Template = Annotated[str, AfterValidator(_template)]
Role = Annotated[str, AfterValidator(_role)]
Strided = Annotated[bool | str, AfterValidator(_strided)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Rate(_Model):
    """A positive quantity per second, or a duration in seconds, and where the number is from."""

    value: float = Field(gt=0, allow_inf_nan=False)
    source: Text


class Duration(_Model):
    """A time in seconds that may be 0, and where the number is from."""

    value: float = Field(ge=0, allow_inf_nan=False)
    source: Text


class Fraction(_Model):
    """A part of a peak, above 0 and at most 1, and where the number is from."""

    value: float = Field(gt=0, le=1)
    source: Text


class Count(_Model):
    """A number of elements, and where the number is from."""

    value: int = Field(ge=1)
    source: Text


class Bytes(_Model):
    """How much fits into a memory, and where the number is from."""

    value: int = Field(ge=1)
    source: Text


Sourced = Rate | Duration | Fraction | Count | Bytes


class Level(_Model):
    """A memory between the units and main memory: what an op or a conversion moves comes from there if all of it fits.

    Attributes:
        name: what people call it.
        capacity: in bytes, of what one op may count on.
        bandwidth: peak bytes per second, reads and writes together.
    """

    name: Text
    capacity: Bytes
    bandwidth: Rate


class Memory(_Model):
    """Main memory: peak bytes per second, and the fraction that kernels and conversions reach.

    Attributes:
        bandwidth: peak, reads and writes together.
        kernel_efficiency: what an op that is bound by memory reaches.
        plain_cast_efficiency: what a conversion between unblocked formats reaches.
        blocked_cast_efficiency: what a conversion from or to a blocked format reaches.
        channels_last_cast_efficiency: the same where the blocked axis is the innermost one of the plain format, as it is
            in NHWC; that of other blocked formats when absent.
        scattered_cast_efficiency: the same where neither order of the plain format is that of the other's unblocked axes,
            or both are blocked, so that single elements move; as above when absent.
        short_run: what counts as a blocked format in conversions: runs of at most so many elements on one of the two sides,
            whatever the formats are called; blocks when absent.
        level: caches, in any order; main memory serves everything when absent.
    """

    bandwidth: Rate
    kernel_efficiency: Fraction
    plain_cast_efficiency: Fraction
    blocked_cast_efficiency: Fraction
    channels_last_cast_efficiency: Fraction | None = None
    scattered_cast_efficiency: Fraction | None = None
    short_run: Count | None = None
    level: Annotated[tuple[Level, ...], BeforeValidator(_rows)] = ()

    def serving(self, nbytes: float) -> float:
        """Peak bytes per second of the fastest memory that so many bytes fit into."""
        levels = (level.bandwidth.value for level in self.level if nbytes <= level.capacity.value)
        return max(levels, default=self.bandwidth.value)


class Launch(_Model):
    """What every op and every conversion costs, however small.

    Attributes:
        overhead: of an op.
        cast_overhead: of a conversion; that of an op when absent.
    """

    overhead: Duration
    cast_overhead: Duration | None = None


class Kernel(_Model):
    """One row: kernels that exist, in which formats, and how near to the peak they come.

    Attributes:
        family: of the op's layout rule.
        ops: op types; all of the family when absent.
        variant: of the op, `dense` or `depthwise` for example; all when absent.
        dtypes: element types of the operand x (or a).
        results: element types of the result; all when absent.
        formats: of the operands that the kernel is particular about.
        strided: a matrix product with leading dimensions and transposed operands; with a pointer for each matrix of a batch
            if this is "pointers", with any number of strides if it is "modes". Formats then say which axes have stride 1.
        direct: in place of formats: any in which the op is the same op on the arrays as they lie.
        unit: which peak rate it works against.
        efficiency: fraction of that peak.
        bandwidth_efficiency: fraction of the memory bandwidth; the target's when absent.
        align: what the unit-stride extents of the activations must be multiples of; in elements.
        unaligned_efficiency: fraction of the peak where they are not.
        max_channels: the kernel is for at most so many input channels.
        channel_multiple: it is for input channels in multiples of this.
        min_batch: it is for at least so many samples.
        overhead: what it costs however small; the target's when absent.
        overlaps: whether arithmetic and memory traffic go on at the same time, as in a roofline, or one after the other.
    """

    family: Families
    ops: Texts | None = None
    variant: Texts | None = None
    dtypes: DTypeNames
    results: DTypeNames | None = None
    formats: dict[Role, Template] = Field(default_factory=dict)
    strided: Strided = False
    direct: bool = False
    unit: Text
    efficiency: Fraction
    bandwidth_efficiency: Fraction | None = None
    align: Count | None = None
    unaligned_efficiency: Fraction | None = None
    max_channels: Count | None = None
    channel_multiple: Count | None = None
    min_batch: Count | None = None
    overhead: Duration | None = None
    overlaps: bool = True

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.direct == bool(self.formats or self.strided):
            raise ValueError("a kernel has either formats or strided or direct = true")
        if self.strided and set(self.family) != {"matmul"}:
            raise ValueError("strided is for kernels of the family matmul alone")
        if self.strided and not all(text in ("*MN", "*NM") for text in self.formats.values()):
            raise ValueError("formats of a strided kernel are *MN or *NM")
        if (self.align is None) != (self.unaligned_efficiency is None):
            raise ValueError("align and unaligned_efficiency go together")
        return self


class TargetSpec(_Model):
    """A hardware target.

    Attributes:
        name: what users call it.
        family: what kind of processor it is.
        description: one line for people.
        dialect: what models are written in unless a caller asks for another.
        memory: bandwidth and how much of it is reached.
        launch: fixed costs.
        rates: peak operations per second, by unit and element type. The unit `vector` has at least float32.
        c0: what `{C0}` is in the kernels' formats, by element type; `default` for those not named.
        kernel: the kernels.
    """

    name: Text
    family: Literal["gpu", "cpu", "npu"]
    description: Text
    dialect: Text = "functions"
    memory: Memory
    launch: Launch
    rates: dict[Text, dict[DTypeName, Rate]]
    c0: dict[str, Count] = Field(default_factory=dict)
    kernel: Annotated[tuple[Kernel, ...], BeforeValidator(_rows)] = ()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if "float32" not in self.rates.get("vector", {}):
            raise ValueError("rates.vector.float32 is missing: ops without a kernel are priced with it")
        for label in self.c0:
            if label != "default":
                _dtype(label)
        for index, kernel in enumerate(self.kernel):
            missing = [label for label in kernel.dtypes if label not in self.rates.get(kernel.unit, {})]
            if missing:
                raise ValueError(f"kernel[{index}] needs rates.{kernel.unit}.{missing[0]}, which is missing")
            if any("{C0}" in text for text in kernel.formats.values()):
                for label in kernel.dtypes:
                    if label not in self.c0 and "default" not in self.c0:
                        raise ValueError(f"kernel[{index}] needs c0.{label} or c0.default, which are missing")
        return self

    @classmethod
    def known_keys(cls) -> frozenset[str]:
        """Every key that the schema has."""
        models: tuple[type[BaseModel], ...] = (cls, Memory, Level, Launch, Kernel, Rate)
        return frozenset(key for model in models for key in model.model_fields)

    def block(self, dtype: DType) -> int:
        """What `{C0}` stands for, in elements; 1 if the target has no blocks."""
        count = self.c0.get(dtype.label, self.c0.get("default"))
        return count.value if count is not None else 1

    def rate(self, unit: str, dtype: DType) -> float:
        """Peak operations per second; that of the vector unit's float32 where none is given."""
        rate = self.rates.get(unit, {}).get(dtype.label, self.rates["vector"]["float32"])
        return rate.value

    def numbers(self) -> Iterator[tuple[str, Sourced]]:
        """Every number with its key path."""
        queue: list[tuple[str, Any]] = [("", self)]
        while queue:
            path, node = queue.pop()
            if isinstance(node, Sourced):
                yield path, node
            elif isinstance(node, BaseModel):
                keys = type(node).model_fields
                queue += [(f"{path}.{key}".lstrip("."), getattr(node, key)) for key in keys]
            elif isinstance(node, dict):
                queue += [(f"{path}.{key}", item) for key, item in node.items()]
            elif isinstance(node, tuple):
                queue += [(f"{path}[{index}]", item) for index, item in enumerate(node)]


__all__ = [
    "Bytes",
    "Count",
    "Duration",
    "Fraction",
    "Kernel",
    "Launch",
    "Level",
    "Memory",
    "Rate",
    "Sourced",
    "TargetSpec",
]
