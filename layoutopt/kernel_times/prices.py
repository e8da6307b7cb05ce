"""Prices from measurement: plan, time the kernels that the plan uses, and plan again until all of them have been timed.

    plan at the target's prices -> its kernels timed -> plan at measured prices -> its new kernels timed -> plan ...

    price of a timed kernel    its time
    price of any other one     estimate * geometric mean of time / estimate over the timed kernels of the same kind, or, if
                               there is none, over those of the same op type in other formats; and 10 % more in the last plan,
                               which should not rest on estimates that are too low

A convolution for which Winograd is chosen by its estimate, since no tiling was timed, costs its price / estimated speed-up. The
planner chooses a kernel by its corrected estimate, and keeps it if its measured time is still the lowest. All numbers of the
result have the prices of the last plan.

The original as onnxruntime runs it by itself has the same prices, in its own optimised form:

    original --onnxruntime, without blocks--> fused ops in canonical formats --lift--> graph
    price = kernels, blocked where onnxruntime has blocked kernels, + Transposes + reorders between blocked and other ops

onnxruntime blocks every convolution and pooling that it can, keeps element-wise ops between them blocked, and converts at
the other edges. It has no Winograd convolution, so every op has its default algorithm.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from math import exp, inf, log
from time import perf_counter
from typing import Literal

from msgspec.structs import replace
from typing_extensions import override

from layoutopt.cost import CostModel, MeasuredPrices, priced_with
from layoutopt.cost_models import RooflineModel
from layoutopt.cost_models.roofline import structure
from layoutopt.dialects.onnxruntime.default_blocks import (
    block_of,
    find_fused_tensors,
    is_chosen_by_default,
    stays_blocked,
)
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Sizes
from layoutopt.ir.types import Op, Signature, Slot, Storage, TensorType, Value
from layoutopt.kernel_times.kernels import LoweredKernel
from layoutopt.kernel_times.store import RequestedTimes
from layoutopt.ops import View, X, Y, canonical_signature, rule_of
from layoutopt.ops.region_ops import expected_runs, regions_with_rule
from layoutopt.passes.base import PlanWith
from layoutopt.planner import Plan
from layoutopt.record import Record

_CAUTION = 1.1
_LIMIT = log(4)
"""The largest correction of an estimate, as the logarithm of a factor: larger ratios of time and estimate are limited to it."""
_PLANS = 5  # at measured prices
_MAX_PRICE_RATIO = 1.5  # kernels of an emulation that cost more than this times the price of the op are not timed
_MIN_SHARE = 1e-3  # of a plan's time: kernels below it are not timed


class PricedKernel(Record):
    """A kernel that was priced."""

    kernel: LoweredKernel | None  # None if it cannot be timed alone
    kind: Hashable
    seconds: float  # its price
    is_timed: bool  # whether the price is a time


class StoredPrices(MeasuredPrices):
    """The prices of one run, by requested times and the operator sets of the model."""

    def __init__(self, times: RequestedTimes, opsets: Mapping[str, int]) -> None:
        self._requested = times
        self._opsets = dict(opsets)
        self._corrections: dict[Hashable, float] = {}
        self._ratios: dict[Hashable, dict[str, float]] = defaultdict(dict)
        self._kernels: dict[Hashable, LoweredKernel | None] = {}
        self.priced: list[PricedKernel] = []
        self.is_cautious = False  # whether the prices of kernels that were not timed are raised
        # whether a convolution has the price of its fastest algorithm, not of the default one
        self.uses_alternatives = True

    @override
    def kernel(self, op: Op, formats: Mapping[Slot, Format], estimate: float) -> float:
        key = (structure(op), tuple(formats.items()))
        if key not in self._kernels:
            self._kernels[key] = LoweredKernel.of(op, formats, self._opsets)
        others = tuple(str(each) for each in formats.values() if not each.is_canonical)
        return self._price(self._kernels[key], ((op.kind, others), op.kind), estimate)

    @override
    def conversion(self, type: TensorType, src: Format, dst: Format, estimate: float) -> float:
        key = (type, src, dst)
        if key not in self._kernels:
            self._kernels[key] = LoweredKernel.of_conversion(type, src, dst, self._opsets)
        return self._price(self._kernels[key], ((str(src), str(dst)),), estimate)

    def _price(self, kernel: LoweredKernel | None, kinds: Sequence[Hashable], estimate: float) -> float:
        """Seconds of a kernel, whose estimate has the correction of the first of its kinds that has one."""
        others, speed_up = kernel.alternatives if kernel is not None and self.uses_alternatives else ((), 1.0)
        seconds = None if kernel is None else self._requested.get(kernel.key)
        timed = [each for each in (self._requested.get(other.key) for other in others) if each is not None]
        if kernel is not None and seconds and estimate > 0:
            for kind in kinds:
                self._ratios[kind][kernel.key] = log(seconds / estimate)
        if seconds is None:
            correction = next((self._corrections[kind] for kind in kinds if kind in self._corrections), 1.0)
            found = estimate * correction * (_CAUTION if self.is_cautious else 1.0) / speed_up
        else:
            found = min(seconds, *timed) if timed else seconds / speed_up
        is_timed = seconds is not None and (bool(timed) or speed_up == 1.0)
        self.priced.append(PricedKernel(kernel, kinds[0], found, is_timed))
        return found

    def correct_estimates(self) -> None:
        """Correct the estimates of all kinds by the times of the kernels that have been priced."""
        means = {kind: sum(each.values()) / len(each) for kind, each in self._ratios.items()}
        self._corrections = {kind: exp(max(-_LIMIT, min(_LIMIT, mean))) for kind, mean in means.items()}


class UsedKernel(Record):
    """An op on given formats, or a conversion, that a plan uses.

    The kernels that were priced for it are one, those of an emulation and its alternatives, or one per planned size.
    """

    seconds: float  # its price
    count: float  # how often it is used, times the expected runs
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

    Measured prices record the kernels, so a cost model with them has to be a new one that has priced nothing yet.
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
        reads += [(y, Storage.canonical(stored[y].format.rank)) for y in graph.outputs if y in stored]
    for value, required in dict.fromkeys(reads):
        if value is not None and required is not None and not value.is_constant and value.rank is not None:
            has = stored.get(value) or Storage.canonical(value.rank)
            if has.format != required.format:
                yield value, has, required
    for op, signature in planned:  # a view op converts, unless its result has the bytes of its input
        rule = rule_of(op)
        if isinstance(rule, View) and (source := signature.inputs[0]) is not None:
            y, target = op.outputs[0], signature.outputs[0]
            same = rule.output_format(op, source.format)
            if y is not None and target is not None and same is not None and same != target.format:
                yield y, Storage(same), target


def kernels_in_default_formats(
    graph: Graph, model: CostModel, sizes: Sizes, prices: StoredPrices | None = None
) -> list[UsedKernel]:
    """The kernels of an unplanned graph in the formats that onnxruntime chooses by default.

    At measured prices with its own fusions into convolutions; empty if an extent is not known at the sizes.
    """

    def new_model() -> CostModel:
        if prices is None or not isinstance(model, RooflineModel):
            return model
        return priced_with(model.with_measured(prices), fused_tensors=find_fused_tensors(graph, by_runtime=True))

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
    return value.shape is not None and all(
        isinstance(dim, int) or dim.at(point) is not None for dim in value.shape for point in sizes.points
    )


def default_signatures(graph: Graph, model: CostModel) -> Iterator[tuple[Op, Signature]]:
    """Every op of a graph in canonical formats, not of its bodies, with the formats in which onnxruntime runs it by default."""
    blocked: dict[Value, Storage] = {}
    for op in graph.ops:
        chosen = _default_signature(op, model, blocked)
        pairs = zip(op.outputs, chosen.outputs, strict=True)
        blocked |= {y: each for y, each in pairs if y is not None and each is not None and block_of(each)}
        yield op, chosen


def _default_signature(op: Op, model: CostModel, blocked: Mapping[Value, Storage]) -> Signature:
    """The formats in which onnxruntime runs an op: those of a blocked operand, or of the kernel with the least conversions."""
    rule, first = rule_of(op), op.input(0)
    if rule is None or isinstance(rule, View):
        return canonical_signature(op)
    x = blocked.get(first) if first is not None else None
    if x is not None and stays_blocked(op, blocked.keys(), block_of(x)):
        same = rule.signature(op, {X: x.format, Y: x.format})
        return same if isinstance(same, Signature) else canonical_signature(op)
    found = [rule.signature(op, dict(formats)) for formats in model.preferred_formats(op)]
    chosen = [each for each in found if isinstance(each, Signature) and is_chosen_by_default(op, each)]
    return min(chosen, key=lambda each: model.kernel_seconds(op, each), default=canonical_signature(op))


class RefinedPlan(Record):
    """A plan at measured prices.

    It is compared to the original after onnxruntime's optimiser, or to the folded graph, in onnxruntime's default formats and
    with its fusions.
    """

    model: CostModel  # has the prices of the plan
    plan: Plan
    kernels: Sequence[UsedKernel]
    baseline: Literal["optimised", "folded"]
    baseline_seconds: float  # 0 if they are not known
    seconds: float  # of timing and planning


def refine_plan(
    graph: Graph,
    model: RooflineModel,
    sizes: Sizes,
    plan_with: PlanWith,
    times: RequestedTimes,
    first: Plan,
    original: Graph | None = None,
    progress: Callable[[str], None] = lambda step: None,
    restricted: Callable[[CostModel], CostModel] | None = None,
) -> RefinedPlan | None:
    """The last plan of a graph at measured prices; None if the time limit of planning ended one.

    If some of its kernels may have no times, it is made at raised prices of such kernels.

    Args:
        graph: the graph, unplanned.
        model: the cost model of the target, which estimates the kernels that were not timed.
        sizes: the sizes of symbolic dimensions.
        plan_with: plans at the prices of a cost model.
        times: requests the times of kernels on this machine.
        first: the plan at the prices of the target.
        original: the original after onnxruntime's optimiser, if its time is to be estimated, too.
        progress: called with the name of each step.
        restricted: restricts a cost model to a runtime with canonical formats, which has no default ones; None for onnxruntime.
    """
    begin, prices, fused_tensors = perf_counter(), StoredPrices(times, graph.opsets), find_fused_tensors(graph)

    def new_model() -> CostModel:
        measured = model.with_measured(prices)
        if restricted is not None:
            return restricted(measured)
        return priced_with(measured, fused_tensors=fused_tensors, is_default_kernel=is_chosen_by_default)

    def kernels(signatures: Mapping[Op, Signature]) -> list[UsedKernel]:
        return plan_kernels(graph, new_model(), sizes, prices, signatures)

    def default_kernels(graph: Graph | None) -> list[UsedKernel]:
        if graph is None or restricted is not None:
            return []
        return kernels_in_default_formats(graph, model, sizes, prices)

    def request(used: Sequence[UsedKernel]) -> bool:
        untimed = [each for each in _important(used) if times.get(each.key) is None]
        if untimed:
            progress(f"timing {len(untimed)} kernels")
        return times.request(untimed)

    # The times of the original's kernels correct the estimates of many others.
    for used in (kernels(first.signatures), kernels({}), default_kernels(original)):
        request(used)
    for number in range(_PLANS):
        prices.is_cautious = number == _PLANS - 1 or times.is_spent
        prices.correct_estimates()
        last = new_model()
        plan = plan_with(last)
        if plan.stopped:
            return None
        if prices.is_cautious or not request(kernels(plan.signatures)):
            break
    prices.uses_alternatives = False
    before = default_kernels(original)
    seconds = total_seconds(before or default_kernels(graph))
    prices.uses_alternatives = True
    baseline: Literal["optimised", "folded"] = "optimised" if before else "folded"
    return RefinedPlan(last, plan, kernels(plan.signatures), baseline, seconds, perf_counter() - begin)


def _important(used: Sequence[UsedKernel]) -> list[LoweredKernel]:
    """The kernels that take a share of the total time, longest first, with other algorithms for their ops.

    And the longest one of each kind, since an estimate of the target may be wrong by any factor for a kind of op.
    """
    least = _MIN_SHARE * total_seconds(used)
    kinds: set[Hashable] = set()
    found: dict[str, LoweredKernel] = {}
    for each in sorted(used, key=lambda each: -each.total):
        # A fused op has a share of the price of its only kernel.
        limit = inf if len(each.priced_kernels) == 1 else each.seconds * _MAX_PRICE_RATIO
        for priced in each.priced_kernels:
            is_wanted = priced.seconds <= limit and (each.total >= least or priced.kind not in kinds)
            if priced.kernel is not None and is_wanted:
                kinds.add(priced.kind)
                found |= {model.key: model for model in (priced.kernel, *priced.kernel.alternatives[0])}
    return list(found.values())
