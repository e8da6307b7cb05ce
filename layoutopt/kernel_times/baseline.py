"""The price of the original as onnxruntime runs it by itself: its own optimised form, at the same prices as the plan.

    original --onnxruntime, without blocks--> fused ops in canonical formats --lift--> graph
    price = kernels, blocked where onnxruntime has blocked kernels, + Transposes + reorders between blocked and other ops

onnxruntime blocks every convolution and pooling that it can, keeps element-wise ops between them blocked, and converts at
the other edges. It has no Winograd convolution, so every op has its default algorithm.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from layoutopt import inference, onnx_io
from layoutopt.cost import CostModel, priced_with
from layoutopt.cost_models import RooflineModel
from layoutopt.dialects.onnxruntime.default_blocks import (
    block_of,
    is_chosen_by_default,
    stays_blocked,
)
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes
from layoutopt.ir.types import Op, Signature, Storage, TensorType, Value
from layoutopt.kernel_times.prices import StoredPrices, UsedKernel, plan_kernels
from layoutopt.ops import View, X, Y, canonical_signature, rule_of
from layoutopt.ops.region_ops import regions_with_rule
from layoutopt.runtime.session import EXTERNAL_WEIGHTS
from layoutopt.verification.runnable import Runnable

_WITHOUT_BLOCKS = ("NchwcTransformer", "ConvActivationFusion", "ConvAddActivationFusion")


def optimised_graph(original: Runnable, folder: Path) -> Graph:
    """A model as onnxruntime runs it, after its optimiser, without blocked formats; its large weights are not read.

    Args:
        original: the model.
        folder: for the optimised form, whose constants are read from there.

    Raises:
        RuntimeError: and other exceptions of onnxruntime, which does not load the model.
        ModelError: the types of the optimised form cannot be inferred.
    """
    saved = folder / "optimised.onnx"
    original.save_optimised(saved, EXTERNAL_WEIGHTS, threads=1, disabled=_WITHOUT_BLOCKS)
    return inference.lift(onnx_io.read(saved))


def kernels_in_default_formats(
    graph: Graph, model: CostModel, fused_tensors: Mapping[str, float], sizes: Sizes, prices: StoredPrices | None = None
) -> list[UsedKernel]:
    """The kernels of a graph in the formats that onnxruntime chooses by default; empty if an extent is not known at the sizes.

    Args:
        graph: the graph, unplanned.
        model: the cost model of the target.
        fused_tensors: the tensors whose ops are part of blocked convolutions, with the share of their time that remains.
        sizes: the sizes of symbolic dimensions.
        prices: the measured prices; None for those of the model.
    """

    def new_model() -> CostModel:
        measured = model.with_measured(prices) if isinstance(model, RooflineModel) and prices is not None else model
        return priced_with(measured, fused_tensors=fused_tensors)

    regions = regions_with_rule(graph)
    # Optional outputs without readers, such as the mask of Dropout, may have no known shape.
    read = (value for region in regions for value in region.values if region.uses(value) or region.is_output(value))
    if not all(_is_known(value, sizes) for value in read):
        return []
    at_sizes = priced_with(new_model(), sizes=sizes)
    signatures = {op: found for region in regions for op, found in default_signatures(region, at_sizes)}
    return plan_kernels(graph, new_model(), sizes, prices, signatures)


def _is_known(value: Value, sizes: Sizes) -> bool:
    """Whether all extents of a tensor are known at every planned size."""
    if not isinstance(value.type, TensorType):
        return True
    shape = value.shape
    return shape is not None and all(
        isinstance(dim, int) or dim.at(point) is not None for dim in shape for point in sizes.points
    )


def default_signatures(graph: Graph, model: CostModel) -> Iterator[tuple[Op, Signature]]:
    """Every op of a graph, with the formats in which onnxruntime runs it by default.

    Args:
        graph: a graph in canonical formats, without its bodies.
        model: the cost model, which has the blocked kernels of the machine.
    """
    blocked: dict[Value, Storage] = {}
    for op in graph.ops:
        chosen = _default_signature(op, model, blocked)
        pairs = zip(op.outputs, chosen.outputs, strict=True)
        blocked |= {y: each for y, each in pairs if y is not None and each is not None and block_of(each)}
        yield op, chosen


def _default_signature(op: Op, model: CostModel, blocked: Mapping[Value, Storage]) -> Signature:
    """The formats in which onnxruntime runs an op: those of a blocked operand, or of the kernel with the least conversions."""
    rule = rule_of(op)
    if rule is None or isinstance(rule, View):
        return canonical_signature(op)
    x = blocked.get(op.inputs[0]) if op.inputs and op.inputs[0] is not None else None
    if x is not None and stays_blocked(op, blocked.keys(), block_of(x)):
        same = rule.signature(op, {X: x.format, Y: x.format})
        return same if isinstance(same, Signature) else canonical_signature(op)
    found = [rule.signature(op, dict(formats)) for formats in model.preferred_formats(op)]
    chosen = [each for each in found if isinstance(each, Signature) and is_chosen_by_default(op, each)]
    return min(chosen, key=lambda each: model.kernel_seconds(op, each), default=canonical_signature(op))
