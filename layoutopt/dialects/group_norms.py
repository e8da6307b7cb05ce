"""Group normalisations by means per channel, for runtimes whose convolutions have channels last.

Exporters write them with a Reshape to groups, for which such a runtime moves the image to the canonical order and back.
"""

from collections.abc import Hashable
from math import prod

import numpy as np

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType, Op, Value, float32_type
from layoutopt.ops.builder import replace_op, rewriting
from layoutopt.passes.base import Pass, PassContext
from layoutopt.record import Record


class Site(Record, eq=False):
    """A normalisation over groups of channels.

    Attributes:
        x: the image.
        extents: its extents.
        last: the Reshape that computes the result.
        groups: the number of groups.
        epsilon: the addend of the variance.
    """

    x: Value
    extents: tuple[int, ...]
    last: Op
    groups: int
    epsilon: float

    @property
    def key(self) -> Hashable:
        """Everything that its time depends on."""
        return self.extents, self.groups


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
    return Site(x, dims, last, groups, epsilon)


def _rewrite(graph: Graph, site: Site) -> None:
    build, (images, channels, *_) = rewriting(graph, site.last, "per-channel"), site.extents
    image, numbers = float32_type(site.extents), float32_type((images, channels, 1, 1))
    size = channels // site.groups
    filter = build.constant(np.full((channels, size, 1, 1), 1 / size, np.float32), "mean")

    def mean(value: Value) -> Value:
        per_channel = build.result("GlobalAveragePool", [value], numbers)
        return build.result("Conv", [per_channel, filter], numbers, {"group": site.groups, "kernel_shape": (1, 1)})

    centred = build.result("Sub", [site.x, mean(site.x)], image)
    squares = build.result("Mul", [centred, centred], image)
    epsilon = build.constant(np.array(site.epsilon, np.float32), "epsilon")
    deviation = build.result("Sqrt", [build.result("Add", [mean(squares), epsilon], numbers)], numbers)
    build.set_output(0, build.result("Div", [centred, deviation], image))
    replace_op(graph, site.last, build)


def _between_convolutions(site: Site, *, is_rewritten: bool) -> Graph:
    """A lowered graph of a convolution, the normalisation in one of its forms, and another convolution."""
    graph = Graph("normalization", {"": 18})
    graph.stage = "lowered"
    (images, channels, *_), image = site.extents, float32_type(site.extents)
    x, y = (graph.new_value(name, image) for name in "xy")
    graph.inputs, graph.outputs = [x], [y]
    whole = graph.add_op(Op("Identity", (x,), (y,)))
    build = rewriting(graph, whole, "normalization")
    filter = build.constant(np.full((channels, channels, 1, 1), 1 / channels, np.float32), "filter")
    scale, bias = (build.constant(np.full(site.groups, each, np.float32), "group") for each in (1, 0))
    before = build.result("Conv", [x, filter], image, {"kernel_shape": (1, 1)})
    shape = images, site.groups, prod(site.extents[1:]) // site.groups
    operands = [build.reshape(before, shape), scale, bias]
    normalized = build.result("InstanceNormalization", operands, float32_type(shape), {"epsilon": site.epsilon})
    after = build.reshape(normalized, site.extents)
    build.set_output(0, build.result("Conv", [after, filter], image, {"kernel_shape": (1, 1)}))
    replace_op(graph, whole, build)
    for each in graph.ops if is_rewritten else ():
        if (found := find_site(graph, each)) is not None:
            _rewrite(graph, found)
    return graph
