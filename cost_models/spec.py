"""The schema of target files; every number needs a source.

    name = "my-npu"                            # the file's stem by default
    inherits = "ascend-310"                    # a built-in target, or the path of another file
    rates.cube.float16 = { value = 8e12, source = "vendor's datasheet, table 3" }

Units are seconds, bytes per second and arithmetic operations per second (a multiply-add counts as two).
Efficiencies are fractions of a peak. Sources of unpublished numbers begin with `estimate:` or `measured:`.
"""

import re
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from string import ascii_uppercase
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

from layoutopt.errors import FormatError
from layoutopt.formats import Format
from layoutopt.ir.types import DType
from layoutopt.ops import OPS_WITHOUT_RULE, rules

# --- Format templates for any rank: `N*C` is NC, NWC, NHWC or NDHWC ---
#
# The grammar is that of `Format.parse` with three additions:
#
#     *       the axes without a letter, in order: the spatial axes, or the batch axes of matrices
#     D H W   this spatial axis, if the tensor has it, otherwise nothing: `NDC*` is NCW, NCHW or NDCHW;
#             of matrices the first batch axes, which the tensor must have
#     {C0}    the target's block size for the element type
#
# Letters name logical axes by position: N, C of a feature map; O, I (or G, O, I) of a filter, I, O in a
# transposed convolution; M, N the rows and columns of either operand of a matrix product.


_TOKEN = re.compile(r"\*|[A-Z]|(?:[1-9][0-9]*|\{C0\})(?:_[1-9][0-9]*)?[a-z]")
_LEADS = {frozenset(letters): letters for letters in ("NC", "OI", "GOI", "MN")}
_SPATIAL = "DHW"


def check(text: str) -> str:
    """The template itself, after a check that it can be expanded.

    Raises:
        ValueError: the template does not follow the grammar.
    """
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != text or tokens.count("*") > 1:
        raise ValueError("not a format; write it like N*C or NC*{C0}c")
    letters = [token for token in tokens if token in ascii_uppercase]
    lead, _ = _split(text)
    if lead not in _LEADS or len(set(letters)) != len(letters):
        raise ValueError("does not name the axes; name N C, O I, G O I or M N, each once")
    try:
        for rank in range(len(lead), len(lead) + len(_SPATIAL) + 1):
            expand(text, rank, 16)
    except FormatError as error:
        raise ValueError(f"{error.what}; {error.hint or 'use the axes of the format'}") from None
    return text


@cache
def expand(text: str, rank: int, c0: int, swapped: bool = False) -> Format | None:
    """The format of a tensor of `rank` axes; None if the template has another number of axes.

    Args:
        text: the template.
        rank: number of logical axes.
        c0: the value of `{C0}`.
        swapped: whether the filter or matrix of the op has its two axes in the opposite order.
    """
    letters, named = _split(text)
    lead = _LEADS[letters]
    free = rank - len(lead)
    if free < 0:
        return None
    spare = [letter for letter in ascii_uppercase if letter not in {*lead, *_SPATIAL}]
    spatial = _SPATIAL[:free] if lead == "MN" else _SPATIAL[3 - free :]
    rest = spatial if free <= len(_SPATIAL) else "".join(spare[:free])
    if ("*" not in text and not named.issuperset(rest)) or (lead == "MN" and not named.issubset(rest)):
        return None
    axes = lead[::-1] if swapped and lead in ("OI", "MN") else lead
    axes = rest + axes if lead == "MN" else axes + rest
    for letter in named - set(rest):
        text = text.replace(letter, "")
    others = "".join(letter for letter in rest if letter not in named)
    return Format.parse(text.replace("{C0}", str(c0)).replace("*", others), axes)


def _split(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """The letters in a template: those of its kind of tensor (N C, O I, G O I or M N), and those of spatial axes."""
    letters = frozenset(token for token in _TOKEN.findall(text) if token in ascii_uppercase)
    return letters - set(_SPATIAL), letters & set(_SPATIAL)


_DTYPES = {dtype.label: dtype for dtype in DType}


def _dtype(label: str) -> str:
    if label not in _DTYPES:
        raise ValueError("not an element type")
    return label


def _families() -> set[str]:
    return {rule.family for rule in rules().values()}


def _family(name: str) -> str:
    if name not in (families := _families()):
        raise ValueError(f"no family of operations; there are {', '.join(sorted(families))}")
    return name


def _op_or_family(name: str) -> str:
    """The name of an operator, with its domain as in `com.microsoft::Gelu` unless that is ONNX, or of a family."""
    name = name.removeprefix("ai.onnx::")
    if "::" not in name and name not in _families() | {*rules(), *OPS_WITHOUT_RULE}:
        raise ValueError("neither an operator nor a family; write others with a domain, as in com.microsoft::Gelu")
    return name


def _as_tuple(value: Any) -> Any:
    """A list as a tuple, and a string as a tuple of one."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


def as_rows(value: Any) -> Any:
    """A TOML array of tables as a tuple."""
    if isinstance(value, dict):
        raise ValueError("expected rows, found a table; write [[...]] with two brackets")
    return tuple(value) if isinstance(value, list) else value


Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_as_tuple)]
OpNames = Annotated[tuple[Annotated[str, AfterValidator(_op_or_family)], ...], BeforeValidator(_as_tuple)]
DTypeName = Annotated[str, AfterValidator(_dtype)]
DTypeNames = Annotated[tuple[DTypeName, ...], BeforeValidator(_as_tuple), Field(min_length=1)]
Families = Annotated[tuple[Annotated[str, AfterValidator(_family)], ...], BeforeValidator(_as_tuple)]
Template = Annotated[str, AfterValidator(check)]
Role = Literal["x", "w", "y", "a", "b"]
Strided = Literal[False, True, "matrices", "pointers", "modes"]


class SpecModel(BaseModel):
    """Base class of the tables of target and runtime files. Other keys are errors, and values are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)
    tables: ClassVar[tuple[type[BaseModel], ...]] = ()

    @classmethod
    def known_keys(cls) -> frozenset[str]:
        """The keys of this table and of the tables in `tables`."""
        return frozenset(key for model in (cls, *cls.tables) for key in model.model_fields)


_Number = TypeVar("_Number", int, float)


class Sourced(SpecModel, Generic[_Number]):
    """A number and its source."""

    value: _Number
    source: Text


Rate: TypeAlias = Sourced[Annotated[float, Field(gt=0, allow_inf_nan=False)]]
"""A positive number of operations or bytes per second."""
Duration: TypeAlias = Sourced[Annotated[float, Field(ge=0, allow_inf_nan=False)]]
"""A time in seconds that may be 0."""
Fraction: TypeAlias = Sourced[Annotated[float, Field(gt=0, le=1)]]
"""A fraction of a peak, above 0 and at most 1."""
Count: TypeAlias = Sourced[Annotated[int, Field(ge=1)]]
"""A number of elements."""


class Memory(SpecModel):
    """Main memory: peak bytes per second, and the fraction that kernels and conversions reach.

    Attributes:
        bandwidth: peak, reads and writes together.
        kernel_efficiency: the fraction that a memory-bound op reaches.
        plain_cast_efficiency: the fraction that a conversion between unblocked formats reaches.
        blocked_cast_efficiency: the fraction that a conversion from or to a blocked format reaches.
        channels_last_cast_efficiency: the fraction that a conversion of a blocked and a plain format reaches if the blocked
            axis is innermost in the plain format, as in NHWC; `blocked_cast_efficiency` by default.
        scattered_cast_efficiency: the fraction that a conversion of single elements reaches: both formats are blocked, or the
            outer axes of the blocked format are not in the order of the plain one; `blocked_cast_efficiency` by default.
        short_run: a conversion whose contiguous runs have at most this number of elements is priced as one from or to a blocked
            format, a conversion with longer runs as one between plain formats; by default the formats decide.
        gather_piece: seconds for each run of adjacent elements that a Gather copies, beyond those of the canonical format; by
            default the bytes alone count.
        through_plain: whether a conversion between two blocked formats consists of two, through a plain format.
    """

    bandwidth: Rate
    kernel_efficiency: Fraction
    plain_cast_efficiency: Fraction
    blocked_cast_efficiency: Fraction
    channels_last_cast_efficiency: Fraction | None = None
    scattered_cast_efficiency: Fraction | None = None
    short_run: Count | None = None
    gather_piece: Duration | None = None
    through_plain: bool = False


class Launch(SpecModel):
    """The constant overhead of every op and every conversion.

    Attributes:
        overhead: the overhead of an op.
        cast_overhead: the overhead of a conversion; that of an op by default.
    """

    overhead: Duration
    cast_overhead: Duration | None = None


IDENTITY_KEYS = ("family", "ops", "variant", "dtypes", "results", "formats", "strided", "direct")
"""The keys that identify a kernel row: a row replaces or removes the inherited row of equal values."""


def is_removal(row: Any) -> bool:
    """Whether a kernel row removes an inherited one."""
    return isinstance(row, dict) and row.get("removed") is True


class KernelSpec(SpecModel):
    """A row of a target file: a group of existing kernels, their formats, and their efficiency.

    Attributes:
        family: the families of layout rules.
        ops: op types; by default all of the family.
        variant: variants of the op, for example `dense` or `depthwise`; by default all.
        dtypes: element types of the operand x (or a).
        results: element types of the result; by default all.
        formats: the required formats of operands.
        strided: "matrices" for a matrix product with leading dimensions and transposed operands, true for one that can also
            run over rows or columns in the place of the batch, "pointers" for one with a pointer per matrix of a batch,
            "modes" for any number of strides. Formats then name the axes of stride 1.
        direct: whether the kernel supports, instead of `formats`, all formats in which the op has a direct lowering.
        proposes: whether its formats are candidates everywhere, and not only where a neighbour has one of them.
        unit: the unit whose peak rate limits the kernel.
        efficiency: fraction of that peak.
        bandwidth_efficiency: fraction of the memory bandwidth; by default that of the target.
        align: a number of elements; the kernel is aligned if it divides the unit-stride extents of the activations.
        unaligned_efficiency: fraction of the peak if the kernel is not aligned.
        max_channels: the largest number of input channels.
        channel_multiple: a divisor of the number of input channels.
        pixel_multiple: a divisor of the number of pixels, for convolutions of one pixel and stride 1: products of matrices
            whose columns are pixels.
        min_batch: the smallest batch size.
        overhead: the constant overhead; by default that of the target.
        overlaps: whether arithmetic and memory traffic overlap, as in a roofline, or are sequential.
    """

    family: Families
    ops: Texts | None = None
    variant: Texts | None = None
    dtypes: DTypeNames
    results: DTypeNames | None = None
    formats: dict[Role, Template] = Field(default_factory=dict)
    strided: Strided = False
    direct: bool = False
    proposes: bool = True
    unit: Text
    efficiency: Fraction
    bandwidth_efficiency: Fraction | None = None
    align: Count | None = None
    unaligned_efficiency: Fraction | None = None
    max_channels: Count | None = None
    channel_multiple: Count | None = None
    pixel_multiple: Count | None = None
    min_batch: Count | None = None
    overhead: Duration | None = None
    overlaps: bool = True

    @model_validator(mode="before")
    @classmethod
    def _check_removal(cls, row: Any) -> Any:
        if is_removal(row):  # rows that remove one are not part of the merged target
            raise ValueError(
                f"removes no inherited kernel; give it the {', '.join(IDENTITY_KEYS)} of the inherited row"
            )
        return row

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.direct == bool(self.formats or self.strided):
            raise ValueError("a kernel has either formats or strided or direct = true")
        if self.strided and set(self.family) != {"matmul"}:
            raise ValueError("strided is for kernels of the family matmul alone")
        if self.strided and not all(text in ("*MN", "*NM") for text in self.formats.values()):
            raise ValueError("formats of a strided kernel are *MN or *NM")
        if not self.proposes and (self.direct or self.strided):
            raise ValueError("proposes is for kernels that require formats alone")
        if (self.align is None) != (self.unaligned_efficiency is None):
            raise ValueError("align and unaligned_efficiency go together")
        return self


class DeviceSpec(SpecModel):
    """A device of a platform.

    Attributes:
        name: the name of the device, which is part of file names: letters, digits, `_`, `.` and `-`.
        target: a built-in target, `cpu` for this machine, or the path of a target file relative to this file.
        memory: the bytes of constants that it has room for; no limit by default.
        ops: the op types and families of layout rules of which it has kernels; all by default.
        lacks: the op types and families of which it has no kernels.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[\w.-]{1,64}$")]
    target: Text
    memory: Count | None = None
    ops: Annotated[OpNames, Field(min_length=1)] | None = None
    lacks: OpNames = ()


class LinkSpec(SpecModel):
    """A link between devices.

    Attributes:
        devices: the devices; each of them is linked with each other one, in both directions.
        bandwidth: bytes per second of a transfer.
        latency: seconds of a transfer of no bytes.
        converts: whether a transfer changes the format of a tensor at no further cost.
    """

    devices: Annotated[Texts, Field(min_length=2)]
    bandwidth: Rate
    latency: Duration
    converts: bool = False


class PlatformSpec(SpecModel):
    """Devices that run one model together.

    Attributes:
        name: the name of the platform.
        description: one line of text.
        dialect: the default output dialect.
        device: the devices, the host first, which has the inputs and outputs of the model and runs control flow.
        link: the links; of two devices the first one with both counts.
    """

    tables = (DeviceSpec, LinkSpec, Sourced)

    name: Text
    description: Text = "devices that run one model together"
    dialect: Text = "functions"
    device: Annotated[tuple[DeviceSpec, ...], BeforeValidator(as_rows), Field(min_length=1)]
    link: Annotated[tuple[LinkSpec, ...], BeforeValidator(as_rows)] = ()

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        names = [each.name for each in self.device]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"device {twice[0]} is named twice")
        if unknown := [name for each in self.link for name in each.devices if name not in names]:
            raise ValueError(f"link to {unknown[0]}, which is no device; there are {', '.join(names)}")
        for pair in combinations(names, 2):
            if not any({*pair} <= {*each.devices} for each in self.link):
                raise ValueError(f"there is no link between {' and '.join(pair)}")
        return self


class TargetSpec(SpecModel):
    """A hardware target.

    Attributes:
        name: the name of the target.
        family: the kind of processor.
        description: one line of text.
        dialect: the default output dialect.
        memory: bandwidth and the fractions of it that are reached.
        launch: constant overheads.
        rates: peak operations per second, by unit and element type. The unit `vector` has at least float32.
        c0: the value of `{C0}` in the kernels' formats, by element type; `default` for all others.
        kernel: the kernels.
    """

    tables = (Memory, Launch, KernelSpec, Sourced)

    name: Text
    family: Literal["gpu", "cpu", "npu"]
    description: Text
    dialect: Text = "functions"
    memory: Memory
    launch: Launch
    rates: dict[Text, dict[DTypeName, Rate]]
    c0: dict[str, Count] = Field(default_factory=dict)
    kernel: Annotated[tuple[KernelSpec, ...], BeforeValidator(as_rows)] = ()

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
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

    def block(self, dtype: DType) -> int:
        """The value of `{C0}` in elements; 1 if the target has no blocks."""
        count = self.c0.get(dtype.label, self.c0.get("default"))
        return count.value if count is not None else 1

    def rate(self, unit: str, dtype: DType) -> float:
        """Peak operations per second; by default that of the vector unit for float32."""
        rate = self.rates.get(unit, {}).get(dtype.label, self.rates["vector"]["float32"])
        return rate.value

    def numbers(self) -> Iterator[tuple[str, Sourced[Any]]]:
        """All numbers with their key paths, last one first."""
        queue: list[tuple[str, Any]] = [("", self)]
        while queue:
            path, node = queue.pop()
            if isinstance(node, Sourced):
                yield path, node
            elif isinstance(node, tuple):
                queue += [(f"{path}[{index}]", item) for index, item in enumerate(node)]
            elif isinstance(node, BaseModel | dict):  # both are pairs of keys and values
                queue += [(f"{path}.{key}".lstrip("."), item) for key, item in dict(node).items()]
