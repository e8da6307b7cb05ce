"""The kernels and conversions of a plan, with their prices."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from layoutopt.cost import CostModel, priced_with
from layoutopt.cost_models.roofline import structure
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes
from layoutopt.ir.types import Op, Signature, Storage, Value
from layoutopt.kernel_times.stored_prices import PricedKernel, StoredPrices
from layoutopt.ops import View, canonical_signature, rule_of
from layoutopt.ops.region_ops import expected_runs, regions_with_rule


@dataclass(frozen=True, slots=True)
class UsedKernel:
    """An op on given formats, or a conversion, that a plan uses.

    Attributes:
        seconds: its price.
        count: how often it is used, times the expected runs.
        is_move: whether it is a conversion.
        priced_kernels: the kernels that were priced for it: one, those of an emulation and its alternatives, or one per
            planned size.
    """

    seconds: float
    count: float
    is_move: bool
    priced_kernels: Sequence[PricedKernel]

    @property
    def total(self) -> float:
        """Seconds of all its uses."""
        return self.seconds * self.count

    @property
    def is_timed(self) -> bool:
        """Whether its price consists of times."""
        return all(each.is_timed for each in self.priced_kernels)


def total_seconds(kernels: Iterable[UsedKernel]) -> float:
    """The seconds of all uses of kernels."""
    return sum(each.total for each in kernels)


def plan_kernels(
    graph: Graph, model: CostModel, sizes: Sizes, prices: StoredPrices | None, signatures: Mapping[Op, Signature]
) -> list[UsedKernel]:
    """The distinct kernels of a plan; those of the original without any signatures.

    Args:
        graph: the graph.
        model: the cost model; with `prices` a new one that has priced nothing yet.
        sizes: the sizes of symbolic dimensions.
        prices: measured prices, which record the kernels; None for those of the target.
        signatures: the plan.
    """
    at_sizes, runs = priced_with(model, sizes=sizes), expected_runs(graph)

    def recording() -> AbstractContextManager[list[PricedKernel]]:
        return nullcontext([]) if prices is None else prices.recording()

    found: dict[Hashable, UsedKernel] = {}
    recorded: dict[Hashable, list[PricedKernel]] = {}

    def price(count: float, key: Hashable, action: Callable[..., float], *arguments: object, is_move: bool) -> None:
        with recording() as priced_kernels:  # the first op of a structure has all of them, because prices are cached
            seconds = action(*arguments)
        if seconds:  # an op that a convolution computes has no kernel
            priced_kernels = recorded.setdefault(key, priced_kernels)  # of fused ops and of others with this structure
        known = found.get((key, seconds)) or UsedKernel(seconds, 0.0, is_move, priced_kernels)
        found[key, seconds] = replace(known, count=known.count + count)

    for each in regions_with_rule(graph):
        for op in each.ops:
            chosen = signatures.get(op) or canonical_signature(op)
            price(runs[each], (structure(op), chosen), at_sizes.kernel_seconds, op, chosen, is_move=False)
        for value, src, dst in _conversions(each, signatures):
            price(runs[each], (value.type, src, dst), at_sizes.conversion_seconds, value, src, dst, is_move=True)
    return list(found.values())


def _conversions(graph: Graph, signatures: Mapping[Op, Signature]) -> Iterator[tuple[Value, Storage, Storage]]:
    """The conversions of a plan in one graph: each tensor once per storage that readers require, or callers of the model."""
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
    for value in dict.fromkeys(graph.outputs) if graph is graph.root else ():
        given = stored.get(value)
        canonical = None if given is None else Storage(Format.canonical(given.format.rank))
        if given is None or canonical is None or given.format == canonical.format or (value, canonical) in done:
            continue
        yield value, given, canonical


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


__all__ = ["UsedKernel", "plan_kernels", "total_seconds"]
