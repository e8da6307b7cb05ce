"""Group normalisations by means per channel, for runtimes whose convolutions have channels last.

Exporters write them with a Reshape to groups, for which such a runtime moves the image to the canonical order and back.
"""

from collections.abc import Hashable
from math import prod

import numpy as np

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, ArrayData, Attribute, DType, Op, TensorType, Value, float32_type
from layoutopt.ops.builder import replace_op, rewriting
from layoutopt.passes.base import Pass, PassContext
from layoutopt.record import Record


class Site(Record, eq=False):
    """A normalisation over groups of channels.

    Attributes:
        x: the image.
        last: the Reshape that computes the result.
        groups: the number of groups.
        epsilon: the addend of the variance.
    """

    x: Value
    last: Op
    groups: int
    epsilon: float

    @property
    def key(self) -> Hashable:
        """Everything that its time depends on."""
        return self.x.dims, self.groups


class MeansPerChannel(Pass):
    """Normalise groups of channels by means per channel, where that is measured as faster between two convolutions.

    before: Reshape (N, G, -1) -> InstanceNormalization -> Reshape (N, C, H, W)
    after:  (x - m) / sqrt(v + epsilon): m and v are GlobalAveragePool, Conv(1x1, group = G) of x and of (x - m)^2
    """

    name = "means-per-channel"

    def run(self, graph: Graph, context: PassContext) -> None:
        """Time one normalisation of each shape in both forms."""
        if (time_graphs := context.time_graphs) is None:
            return
        faster: dict[Hashable, bool] = {}
        for each in [found for op in graph.ops if (found := find_site(graph, op)) is not None]:
            if each.key not in faster:
                forms = [_between_convolutions(each, is_rewritten=is_new) for is_new in (False, True)]
                before, after = time_graphs(forms)
                faster[each.key] = before is not None and after is not None and after < before
            if faster[each.key] and context.may_change_rounding(self, each.last.y):
                context.changed_rounding(self, each.last.y)
                _rewrite(graph, each)


def find_site(graph: Graph, op: Op) -> Site | None:
    """The group normalisation around an InstanceNormalization without a scale and a shift of its own; None if it is none."""
    if op.kind != "InstanceNormalization":
        return None
    first, last = graph.producer(op.x), graph.only_reader(op.y)
    numbers = [value.data.numpy() for value in op.inputs[1:] if value is not None and value.data is not None]
    if first is None or last is None or {first.kind, last.kind} != {"Reshape"} or len(numbers) != 2:
        return None
    x, dims = first.x, first.x.static_shape
    is_neutral, groups = bool((numbers[0] == 1).all()) and not numbers[1].any(), numbers[0].size
    if dims is None or len(dims) != 4 or x.dtype is not DType.FLOAT32 or last.y.static_shape != dims:
        return None
    if not is_neutral or not groups or dims[1] % groups:
        return None
    epsilon = op.attributes.get("epsilon", 1e-5)
    assert isinstance(epsilon, float | int)
    if op.x.static_shape != (dims[0], groups, prod(dims[1:]) // groups) or epsilon <= 0:
        return None  # without epsilon, a constant image is divided by its rounding error
    return Site(x, last, groups, epsilon)


def _rewrite(graph: Graph, site: Site) -> None:
    build, x, (images, channels, *_) = rewriting(graph, site.last, "per-channel"), site.x, site.x.dims
    assert isinstance(channels, int)
    image, numbers = float32_type(x.dims), float32_type((images, channels, 1, 1))
    size = channels // site.groups
    filter = build.constant(np.full((channels, size, 1, 1), 1 / size, np.float32), "mean")

    def op(kind: str, type: TensorType, *inputs: Value, **attributes: Attribute) -> Value:
        return build.op(kind, inputs, [type], attributes)[0]

    def mean(value: Value) -> Value:
        per_channel = op("GlobalAveragePool", numbers, value)
        return op("Conv", numbers, per_channel, filter, group=site.groups, kernel_shape=(1, 1))

    centred = op("Sub", image, x, mean(x))
    epsilon = build.constant(np.array(site.epsilon, np.float32), "epsilon")
    variance = op("Add", numbers, mean(op("Mul", image, centred, centred)), epsilon)
    build.set_output(0, op("Div", image, centred, op("Sqrt", numbers, variance)))
    replace_op(graph, site.last, build)


def _between_convolutions(site: Site, *, is_rewritten: bool) -> Graph:
    """A lowered graph of a convolution, the normalisation in one of its forms, and another convolution."""
    graph = Graph("normalization", {"": 18})
    graph.stage = "lowered"
    images, channels, *_ = site.x.dims
    assert isinstance(channels, int)
    image = float32_type(site.x.dims)
    grouped = float32_type((images, site.groups, prod(map(int, site.x.dims[1:])) // site.groups))

    def constant(array: Array) -> Value:
        return graph.new_value("c", TensorType(DType.of(array), array.shape), data=ArrayData(array))

    def op(kind: str, type: TensorType, *inputs: Value, **attributes: Attribute) -> Value:
        y = graph.new_value("y", type)
        graph.add_op(Op(kind, inputs, (y,), version=18, attributes=attributes))
        return y

    def reshape(value: Value, type: TensorType) -> Value:
        return op("Reshape", type, value, constant(np.array(type.shape, np.int64)))

    filter = constant(np.full((channels, channels, 1, 1), 1 / channels, np.float32))
    scale, bias = (constant(np.full(site.groups, each, np.float32)) for each in (1, 0))
    graph.inputs.append(graph.new_value("x", image))
    x = reshape(op("Conv", image, graph.inputs[0], filter, kernel_shape=(1, 1)), grouped)
    normalized = op("InstanceNormalization", grouped, x, scale, bias, epsilon=site.epsilon)
    graph.outputs.append(op("Conv", image, reshape(normalized, image), filter, kernel_shape=(1, 1)))
    if is_rewritten:
        for each in graph.ops:
            if (found := find_site(graph, each)) is not None:
                _rewrite(graph, found)
    for each in reversed(graph.ops):
        graph.remove_if_dead(each)
    return graph
