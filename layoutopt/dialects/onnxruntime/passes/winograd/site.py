"""Sites of the Winograd rewrite: the properties of a blocked convolution, and the tiles of its image."""

from dataclasses import dataclass

from layoutopt.dialects.onnxruntime.arrays import DOMAIN
from layoutopt.dialects.onnxruntime.passes.winograd.algorithm import Algorithm
from layoutopt.formats import Dim
from layoutopt.ir.types import Attribute, Op, Value


@dataclass(frozen=True, slots=True)
class Axis:
    """A convolution along one axis of the image: extents in elements, padding in front and behind."""

    input: int
    output: int
    kernel: int
    front: int
    back: int
    stride: int
    dilation: int


@dataclass(frozen=True, slots=True)
class Site:
    """A blocked convolution without groups, with a constant filter.

    Attributes:
        op: the convolution.
        x, filter, y: its array of (batch, channels, H, W), its packed filter, and what it computes.
        bias, residual: its optional operands; the residual has the storage of y.
        batch: a number, or a name.
        channels, filters: how many go in and come out, whole blocks.
        axes: rows and columns.
        activation: the attributes of the activation; empty if there is none.
    """

    op: Op
    x: Value
    filter: Value
    y: Value
    bias: Value | None
    residual: Value | None
    batch: Dim
    channels: int
    filters: int
    axes: tuple[Axis, Axis]
    activation: dict[str, Attribute]


@dataclass(frozen=True, slots=True)
class Tiles:
    """One axis in tiles of m outputs; without an algorithm, the axis as it is.

    before: 14 outputs        after: 4 tiles of 4 outputs, of which the last 2 are dropped
    """

    axis: Axis
    algorithm: Algorithm | None

    @property
    def outputs(self) -> int:
        """How many outputs a tile has, m."""
        return self.algorithm.outputs if self.algorithm is not None else 1

    @property
    def parts(self) -> int:
        """How many products a tile takes."""
        return self.algorithm.parts if self.algorithm is not None else 1

    @property
    def count(self) -> int:
        """How many tiles there are; the last one may be cut."""
        return -(-self.axis.output // self.outputs)

    @property
    def rest(self) -> Axis:
        """The extent of the axis in the products: all of it, or one element for every tile."""
        return self.axis if self.algorithm is None else Axis(self.count, self.count, 1, 0, 0, 1, 1)

    def taps(self, part: int) -> tuple[tuple[float, ...], int, int]:
        """The input transform of a part, a filter with stride m: what it multiplies by, padding in front and behind."""
        if self.algorithm is None:
            return (1.0,), 0, 0
        first, numbers = self.algorithm.window(part)
        missing = max(0, first - self.axis.front)  # a window that begins behind the first element
        taps = (0.0,) * missing + tuple(float(number) for number in numbers)
        front = self.axis.front - first + missing
        end = (self.count - 1) * self.outputs - front + len(taps)
        return taps, front, max(0, end - self.axis.input)


def site_of(op: Op, block: int) -> Site | None:
    """The facts of an op, if it is a convolution that can be tiled at all; None if not."""
    if op.op_type != "Conv" or op.domain != DOMAIN or op.integer("group", 1) != 1 or len(op.inputs) > 4:
        return None
    x, filter, bias, residual, *_ = [*op.inputs, None, None, None, None]
    y = op.outputs[0]
    if x is None or filter is None or y is None or filter.data is None or filter.static_shape is None:
        return None
    filters, channels, *kernel = filter.static_shape
    source, result = x.shape, y.shape
    if source is None or result is None or len(source) != 4 or len(result) != 4 or len(kernel) != 2:
        return None
    numbers = [dim for dim in (*source[1:], *result[1:]) if isinstance(dim, int)]
    if len(numbers) != 6 or source[1] != channels or channels % block or filters % block:
        return None
    if residual is not None and residual.shape != result:
        return None
    padding = op.attributes.get("auto_pad", "NOTSET")
    if padding not in ("NOTSET", "VALID"):
        return None
    pads = (op.integers("pads") if padding == "NOTSET" else ()) or (0, 0, 0, 0)
    strides, dilations = op.integers("strides") or (1, 1), op.integers("dilations") or (1, 1)
    rows, columns = (
        Axis(
            numbers[1 + position],
            numbers[4 + position],
            kernel[position],
            pads[position],
            pads[2 + position],
            strides[position],
            dilations[position],
        )
        for position in (0, 1)
    )
    activation: dict[str, Attribute] = {
        name: op.attributes[name] for name in ("activation", "activation_params") if name in op.attributes
    }
    return Site(op, x, filter, y, bias, residual, source[0], channels, filters, (rows, columns), activation)


def can_be_tiled(axis: Axis, algorithm: Algorithm) -> bool:
    """Whether an algorithm computes this axis; never where it is shorter than a tile."""
    fits = axis.kernel == algorithm.taps and axis.stride == axis.dilation == 1 and axis.output >= algorithm.outputs
    return fits and 0 <= axis.front < axis.kernel and 0 <= axis.back < axis.kernel
