"""The kernels and conversions of a plan, with their prices."""

from collections.abc import Callable, Hashable, Iterator, Mapping

from layoutopt.cost import CostModel, sized
from layoutopt.cost_models.roofline import structure
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes
from layoutopt.ir.types import Op, Signature, Storage, Value
from layoutopt.kernel_times.stored_prices import StoredPrices, UsedKernel, merged
from layoutopt.ops import View, canonical_signature, rule_of
from layoutopt.ops.region_ops import expected_runs, regions_with_rule


def plan_kernels(
    graph: Graph, model: CostModel, sizes: Sizes, prices: StoredPrices, signatures: Mapping[Op, Signature]
) -> list[UsedKernel]:
    """The kernels of a plan; those of the original without any signatures.

    Args:
        graph: the graph.
        model: a new cost model with `prices`, which has priced nothing yet.
        sizes: the sizes of symbolic dimensions.
        prices: records the kernels.
        signatures: the plan.
    """
    at_sizes = sized(model, sizes)
    found: dict[Hashable, tuple[list[UsedKernel], float]] = {}

    def price(runs: float, key: Hashable, action: Callable[..., float], *arguments: object) -> None:
        if key not in found:
            with prices.recording() as used:
                action(*arguments)
            found[key] = used, 0.0
        used, count = found[key]
        found[key] = used, count + runs

    runs = expected_runs(graph)
    for each in regions_with_rule(graph):
        for op in each.ops:
            signature = signatures.get(op) or canonical_signature(op)
            price(runs[each], (structure(op), signature), at_sizes.kernel_seconds, op, signature)
        for value, src, dst in _conversions(each, signatures):
            price(runs[each], (value.type, src, dst), at_sizes.conversion_seconds, value, src, dst)
    return merged(found)


def _conversions(graph: Graph, signatures: Mapping[Op, Signature]) -> Iterator[tuple[Value, Storage, Storage]]:
    """The conversions of a plan in one graph: each tensor once per storage that readers require."""
    stored: dict[Value, Storage] = {}
    done: set[tuple[Value, Storage]] = set()
    for op in graph.ops:
        signature = signatures.get(op)
        if signature is None:
            continue
        for value, required in zip(op.inputs, signature.inputs, strict=True):
            if value is None or required is None or value.is_constant or value.rank is None:
                continue
            has = stored.get(value) or Storage(Format.canonical(value.rank))
            if has.format != required.format and (value, required) not in done:
                done.add((value, required))
                yield value, has, required
        pairs = zip(op.outputs, signature.outputs, strict=True)
        stored |= {value: storage for value, storage in pairs if value is not None and storage is not None}
        yield from _move_of_view(op, signature)


def _move_of_view(op: Op, signature: Signature) -> Iterator[tuple[Value, Storage, Storage]]:
    """The conversion that a view op makes, unless its result has the bytes of its input."""
    rule = rule_of(op)
    if not isinstance(rule, View):
        return
    y, source, target = op.outputs[0], signature.inputs[0], signature.outputs[0]
    if y is not None and source is not None and target is not None:
        same = rule.output_format(op, source.format)
        if same is not None and same != target.format:
            yield y, Storage(same), target


__all__ = ["plan_kernels"]
