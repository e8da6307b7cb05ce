"""The knobs of a planned model: the decisions by estimates that concern it, with the shares of a run that they concern."""

from collections import defaultdict
from collections.abc import Mapping

from layoutopt.cost import CostModel
from layoutopt.cost.scaled import KernelClass, kernel_class, planned_kernel
from layoutopt.driver.tuning.knobs import (
    Knob,
    conversion_price,
    kernel_price,
    op_formats,
    op_fusion,
    pass_runs,
    plan_rank,
    target_prices,
    winograd_threshold,
)
from layoutopt.ir.types import Op, Signature
from layoutopt.ops import canonical_signature, is_canonical
from layoutopt.passes.base import PassResult
from layoutopt.patterns import fusion_patterns
from layoutopt.planner import Plan

THRESHOLD_PASSES = frozenset(
    [
        "absorb-integer-pads",
        "affine-convolutions",
        "avoid-prepacking",
        "avoid-skip-layer-normalization",
        "fold-repeats",
        "keep-softmax-in-floating-point",
        "matmul-convolutions",
        "merge-maps",
        "move-maps",
        "pad-colours",
        "pool-integers",
        "scale-filters",
        "split-transposes",
        "tabulate-integers",
        "widen-rows",
    ]
)
"""The passes that decide by thresholds and measured costs of another machine, and without which a result is right as well."""

_TARGET = 0.35
_PASS = 0.2
_FUSION = 0.3
_PRICE = 0.4  # per share of the run in kernels that have a choice
_RANK = 0.3  # likewise
_CONVERSION = 0.1  # at least
_OP = 0.1  # per share of the run in one op
_MAX_OPS = 32
_SMALLEST_SHARE = 0.002
_SMALLEST_WINOGRAD = 3  # extents of a kernel


def knobs_of(
    plan: Plan, passes: list[PassResult], cost_model: CostModel, block: int, *, is_timed: bool = False
) -> list[Knob]:
    """The knobs of a model.

    Args:
        plan: its first plan.
        passes: the passes that ran.
        cost_model: the cost model with the sizes of symbolic dimensions.
        block: the number of channels in its blocks; 0 if it has none.
        is_timed: whether the prices come from kernels timed on this machine.
    """
    seconds = {op: cost_model.kernel_seconds(op, signature) for op, signature in plan.signatures.items()}
    total = max(plan.seconds, sum(seconds.values()), 1e-12)
    shares = {op: each / total for op, each in seconds.items()}
    with_choice = {op: signature for op, signature in plan.signatures.items() if cost_model.preferred_formats(op)}
    changed = {each.name for each in passes if each.changed}
    return [
        *([target_prices(_TARGET)] if is_timed else []),
        *_winograd(with_choice, shares, block),
        *_fusions(plan, changed),
        *(pass_runs(each, _PASS) for each in sorted(THRESHOLD_PASSES & changed)),
        *_prices(with_choice, shares),
        *_ops(with_choice, shares, cost_model),
    ]


def _winograd(signatures: Mapping[Op, Signature], shares: Mapping[Op, float], block: int) -> list[Knob]:
    """The threshold of Winograd, if a blocked convolution has a kernel of 3 x 3."""
    share = sum(shares[op] for op, signature in signatures.items() if _is_tileable(op) and not is_canonical(signature))
    return [winograd_threshold(share)] if block and share else []


def _is_tileable(op: Op) -> bool:
    """Whether an op is a dense convolution with stride 1 and a kernel of 3 or more along an axis."""
    if kernel_class(op) != ("convolution", "dense"):
        return False
    weight = op.inputs[1] if len(op.inputs) > 1 else None
    shape = weight.static_shape if weight is not None else None
    strides = op.attributes.get("strides") or (1,)
    is_stepping = isinstance(strides, tuple | list) and any(each != 1 for each in strides)
    return shape is not None and max(shape[2:], default=1) >= _SMALLEST_WINOGRAD and not is_stepping


def _fusions(plan: Plan, changed: set[str]) -> list[Knob]:
    """The fused ops that the pass `fuse-patterns` may have made and that the runtime has separate ops for."""
    if "fuse-patterns" not in changed:
        return []
    fused = {each.fused_op for each in fusion_patterns() if "::" in each.fused_op}
    return [op_fusion(kind, _FUSION) for kind in sorted(fused & {op.kind for op in plan.signatures})]


def _prices(signatures: Mapping[Op, Signature], shares: Mapping[Op, float]) -> list[Knob]:
    """The prices of conversions and of every class of kernels with formats of their own, and the next cheapest plans."""
    classes: dict[KernelClass, float] = defaultdict(float)
    for op in signatures:
        classes[kernel_class(op)] += shares[op]
    knobs = [kernel_price(each, _PRICE * share) for each, share in classes.items() if share >= _SMALLEST_SHARE]
    share = sum(classes.values())
    ranks = [plan_rank(_RANK * share)] if share >= _SMALLEST_SHARE else []
    return [conversion_price(max(_CONVERSION, _PRICE * share)), *knobs, *ranks]


def _ops(signatures: Mapping[Op, Signature], shares: Mapping[Op, float], cost_model: CostModel) -> list[Knob]:
    """The formats of the ops with the largest shares; an op that would take twice as long in canonical formats is left out."""
    found = [
        op_formats(*planned_kernel(op, signature), _OP * shares[op])
        for op, signature in signatures.items()
        if op.name and shares[op] >= _SMALLEST_SHARE and _has_alternative(op, signature, cost_model)
    ]
    return sorted(found, key=lambda each: -each.weight)[:_MAX_OPS]


def _has_alternative(op: Op, signature: Signature, cost_model: CostModel) -> bool:
    """Whether the op in canonical formats takes less than twice as long."""
    return cost_model.kernel_seconds(op, canonical_signature(op)) < 2 * cost_model.kernel_seconds(op, signature)


__all__ = ["THRESHOLD_PASSES", "knobs_of"]
