"""Sites of the Winograd rewrite: the properties of a blocked convolution, and the tiles of its image."""

from dataclasses import dataclass

from layoutopt.dialects.onnxruntime.arrays import DOMAIN
from layoutopt.dialects.onnxruntime.passes.winograd.algorithm import Algorithm
from layoutopt.formats import Dim
from layoutopt.ir.types import Attribute, Op, Value


@dataclass(frozen=True, slots=True)
class ConvolutionAxis:
    """The parameters of a convolution along one axis of the image: extents, padding in front and behind, stride, dilation."""

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
        x, filter, y: its input of shape (batch, channels, H, W), its packed filter, and its output.
        bias, residual: its optional operands; the residual has the storage of y.
        batch: the number of samples, or a symbolic extent.
        channels, filters: the numbers of input and output channels, multiples of the block.
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
    axes: tuple[ConvolutionAxis, ConvolutionAxis]
    activation: dict[str, Attribute]


@dataclass(frozen=True, slots=True)
class Tiles:
    """One axis in tiles of m outputs; without an algorithm, the axis is not tiled.

    before: 14 outputs        after: 4 tiles of 4 outputs, of which the last 2 are dropped
    """

    axis: ConvolutionAxis
    algorithm: Algorithm | None

    @property
    def outputs(self) -> int:
        """The number of outputs of a tile, m."""
        return self.algorithm.outputs if self.algorithm is not None else 1

    @property
    def num_components(self) -> int:
        """The number of components of a tile, each of which is one product."""
        return self.algorithm.num_components if self.algorithm is not None else 1

    @property
    def count(self) -> int:
        """The number of tiles; the last one may be cut."""
        return -(-self.axis.output // self.outputs)

    @property
    def product_axis(self) -> ConvolutionAxis:
        """The axis of the products: the axis itself if it is not tiled, else one element per tile."""
        return self.axis if self.algorithm is None else ConvolutionAxis(self.count, self.count, 1, 0, 0, 1, 1)

    def taps(self, component: int) -> tuple[tuple[float, ...], int, int]:
        """The input transform of a component as a convolution with stride m: its coefficients, padding in front and behind."""
        if self.algorithm is None:
            return (1.0,), 0, 0
        first, coefficients = self.algorithm.window(component)
        missing = max(0, first - self.axis.front)  # the window begins behind the first element
        taps = (0.0,) * missing + tuple(map(float, coefficients))
        front = self.axis.front - first + missing
        end = (self.count - 1) * self.outputs - front + len(taps)
        return taps, front, max(0, end - self.axis.input)


def site_of(op: Op, block: int) -> Site | None:
    """The properties of a blocked convolution that can be tiled; None for other ops."""
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
    extents = [dim for dim in (*source[1:], *result[1:]) if isinstance(dim, int)]
    if len(extents) != 6 or source[1] != channels or channels % block or filters % block:
        return None
    if residual is not None and residual.shape != result:
        return None
    padding = op.attributes.get("auto_pad", "NOTSET")
    if padding not in ("NOTSET", "VALID"):
        return None
    pads = (op.integers("pads") if padding == "NOTSET" else ()) or (0, 0, 0, 0)
    strides, dilations = op.integers("strides") or (1, 1), op.integers("dilations") or (1, 1)
    rows, columns = (
        ConvolutionAxis(
            extents[1 + position],
            extents[4 + position],
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


def can_be_tiled(axis: ConvolutionAxis, algorithm: Algorithm) -> bool:
    """Whether an algorithm computes this axis, which must be at least as long as a tile."""
    fits = axis.kernel == algorithm.taps and axis.stride == axis.dilation == 1 and axis.output >= algorithm.outputs
    return fits and 0 <= axis.front < axis.kernel and 0 <= axis.back < axis.kernel
