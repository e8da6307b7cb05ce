"""Prices from requested kernel times, with corrected estimates for kernels that were not timed.

price of a timed kernel     its time
price of any other one      estimate * geometric mean of time / estimate over the timed kernels of the same kind, or, if there
                            is none, over those of the same op type in other formats; and 10 % more in the last plan, which
                            should not rest on estimates that are too low
a convolution for which Winograd is chosen by its estimate, since no tiling was timed, costs its price / estimated speed-up
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log

from layoutopt.cost import CostModel, MeasuredPrices, priced_with
from layoutopt.cost_models.roofline import structure
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes
from layoutopt.ir.types import Op, Signature, Slot, Storage, TensorType, Value
from layoutopt.kernel_times.kernels import LoweredKernel
from layoutopt.kernel_times.store import RequestedTimes
from layoutopt.ops import View, canonical_signature, rule_of
from layoutopt.ops.region_ops import expected_runs, regions_with_rule

_CAUTION = 1.1
_LIMIT = log(4)
"""The largest correction of an estimate, as the logarithm of a factor: larger ratios of time and estimate are limited to it."""


@dataclass(frozen=True, slots=True)
class PricedKernel:
    """A kernel that was priced.

    Attributes:
        kernel: the kernel; None if it cannot be timed alone.
        kind: the kind whose corrections apply to its estimate.
        seconds: its price.
        is_timed: whether the price is a time.
    """

    kernel: LoweredKernel | None
    kind: Hashable
    seconds: float
    is_timed: bool


class StoredPrices(MeasuredPrices):
    """The prices of one run.

    Args:
        times: the requested times of kernels on this machine.
        opsets: the operator sets of the model.

    Attributes:
        priced: the kernels that were priced, in order.
        is_cautious: whether the prices of kernels that were not timed are raised.
        uses_alternatives: whether a convolution has the price of its fastest algorithm, or else of the default one.
    """

    def __init__(self, times: RequestedTimes, opsets: Mapping[str, int]) -> None:
        self._requested = times
        self._opsets = dict(opsets)
        self._corrections: dict[Hashable, float] = {}
        self._ratios: dict[Hashable, dict[str, float]] = defaultdict(dict)
        self._kernels: dict[Hashable, LoweredKernel | None] = {}
        self.priced: list[PricedKernel] = []
        self.is_cautious = False
        self.uses_alternatives = True

    def kernel(self, op: Op, formats: Mapping[Slot, Format], estimate: float) -> float:
        """Seconds of the kernel for an op on operands in given formats."""
        key = (structure(op), tuple(formats.items()))
        if key not in self._kernels:
            self._kernels[key] = LoweredKernel.of(op, formats, self._opsets)
        others = tuple(str(each) for each in formats.values() if not each.is_canonical)
        return self._price(self._kernels[key], (op.kind, others), estimate)

    def conversion(self, type: TensorType, src: Format, dst: Format, estimate: float) -> float:
        """Seconds of a conversion that moves bytes."""
        key = (type, src, dst)
        if key not in self._kernels:
            self._kernels[key] = LoweredKernel.of_conversion(type, src, dst, self._opsets)
        return self._price(self._kernels[key], (str(src), str(dst)), estimate)

    def _price(self, kernel: LoweredKernel | None, kind: Hashable, estimate: float) -> float:
        times = [] if kernel is None else self._times(kernel)
        speed_up = kernel.estimated_speed_up if kernel is not None and self.uses_alternatives else 1.0
        if kernel is not None and times and min(times) > 0 and estimate > 0:
            for each in (kind, _op_type(kind)):
                self._ratios[each][kernel.key] = log(times[0] / estimate)
        if times:
            found = min(times) if len(times) > 1 else times[0] / speed_up
        else:
            correction = self._corrections.get(kind, self._corrections.get(_op_type(kind), 1.0))
            found = estimate * correction * (_CAUTION if self.is_cautious else 1.0) / speed_up
        is_timed = len(times) > 1 or (len(times) == 1 and speed_up == 1.0)
        self.priced.append(PricedKernel(kernel, kind, found, is_timed))
        return found

    def _times(self, kernel: LoweredKernel) -> list[float]:
        """The times of the default algorithm and of the others that were timed; empty if the default one was not."""
        seconds = self._requested.get(kernel.key)
        if seconds is None:
            return []
        others = (self._requested.get(each.key) for each in (kernel.alternatives if self.uses_alternatives else ()))
        return [seconds, *(each for each in others if each is not None)]

    def correct_estimates(self) -> None:
        """Correct the estimates of all kinds and op types by the times of the kernels that have been priced."""
        means = {kind: sum(each.values()) / len(each) for kind, each in self._ratios.items()}
        self._corrections = {kind: exp(max(-_LIMIT, min(_LIMIT, mean))) for kind, mean in means.items()}


def _op_type(kind: Hashable) -> Hashable:
    """The op type of a kind; a conversion has none in common with others."""
    return kind[0] if isinstance(kind, tuple) and isinstance(kind[1], tuple) else kind


# --- the kernels and conversions of a plan, with their prices ---


@dataclass(frozen=True, slots=True)
class UsedKernel:
    """An op on given formats, or a conversion, that a plan uses.

    Attributes:
        seconds: its price.
        count: how often it is used, times the expected runs.
        priced_kernels: the kernels that were priced for it: one, those of an emulation and its alternatives, or one per
            planned size.
    """

    seconds: float
    count: float
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
    priced: Sequence[PricedKernel] = () if prices is None else prices.priced
    found: dict[Hashable, UsedKernel] = {}
    recorded: dict[Hashable, Sequence[PricedKernel]] = {}

    def price(count: float, key: Hashable, action: Callable[..., float], *arguments: object) -> None:
        start = len(priced)
        seconds = action(*arguments)
        priced_kernels = priced[start:]  # all those of its structure: the prices of its other ops are cached
        if seconds:  # an op that a convolution computes has no kernel
            priced_kernels = recorded.setdefault(key, priced_kernels)  # of fused ops and of others with this structure
        known = found.get((key, seconds)) or UsedKernel(seconds, 0.0, priced_kernels)
        found[key, seconds] = replace(known, count=known.count + count)

    for each in regions_with_rule(graph):
        for op in each.ops:
            chosen = signatures.get(op) or canonical_signature(op)
            price(runs[each], (structure(op), chosen), at_sizes.kernel_seconds, op, chosen)
        for value, src, dst in _conversions(each, signatures):
            price(runs[each], (value.type, src, dst), at_sizes.conversion_seconds, value, src, dst)
    return list(found.values())


def _conversions(graph: Graph, signatures: Mapping[Op, Signature]) -> Iterator[tuple[Value, Storage, Storage]]:
    """The conversions of a plan in one graph: each tensor once per storage that readers require, or callers of the model."""
    planned = [(op, signatures[op]) for op in graph.ops if op in signatures]
    results = (pair for op, signature in planned for pair in zip(op.outputs, signature.outputs, strict=True))
    stored = {value: storage for value, storage in results if value is not None and storage is not None}
    reads = [pair for op, signature in planned for pair in zip(op.inputs, signature.inputs, strict=True)]
    if graph is graph.root:
        given = [(value, stored[value].format.rank) for value in graph.outputs if value in stored]
        reads += [(value, Storage(Format.canonical(rank))) for value, rank in given]
    for value, required in dict.fromkeys(reads):
        if value is not None and required is not None and not value.is_constant and value.rank is not None:
            has = stored.get(value) or Storage(Format.canonical(value.rank))
            if has.format != required.format:
                yield value, has, required
    for op, signature in planned:
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
