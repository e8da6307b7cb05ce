"""Segmented comparison: every segment of the rewritten model gets what the original computed, so errors do not add up.

Both models are cut at values that they have in common. The rewritten one computes every segment from the original's values:

    x -> [ segment ] -> q'      q -> [ segment ] -> p'      p -> [ segment ] -> y'

and q', p', y' have to be q, p, y up to the rounding of one segment. That finds faults that the rounding of a deep network
would hide, and clears differences that one rounding or decision early on has caused. If all segments agree, the models
compute the same.

Floating-point values may differ by a multiple of the spread that rounding makes in the same segment of the original: its
weights and the values that enter it are perturbed, as in `spread`. Values by which an op decides (`ops.decisions`) enter
both models unperturbed.

Rounded integers may only be what floating-point values nearby are rounded to: those that are smaller or larger by `MARGINS`
of the largest. Where an op computes integers from integers, there may be one step. Neither may be often: sums in another
order hardly differ, for 8 bits from float32 in one element of a thousand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from layoutopt.ir.types import Array, DType
from layoutopt.onnx_io.expose import COMPUTED, LOWER, MARGIN, UPPER, cut, expose, expose_bounds
from layoutopt.runtime.errors import raise_if_out_of_memory
from layoutopt.runtime.session import Session
from layoutopt.verification.difference import Difference, difference, maximum
from layoutopt.verification.observed import Observed
from layoutopt.verification.perturbation import perturb_sums, perturb_weights, perturbed_inputs
from layoutopt.verification.runnable import Runnable
from layoutopt.verification.runs import RUN_ERRORS, Run, one_line, run_original
from layoutopt.verification.verdict import Comparison, Verification, concluded, judged
from layoutopt.verification.verify import Request, dtype_of, magnitude, packed, unpacked

FACTOR = 16
"""By how many times the spread of its segment a value may differ: one segment averages rounding less than a whole model
does. Without a fault the largest ratio measured is 15 (Winograd convolutions and group normalisations of sd_vae_decoder)."""

UNITS = 8
"""By how many units in the last place of the largest magnitude a value may differ in any case. In eleven networks of
examples/zoo and 325 pairs of a trained model and a target, none differs by more than that and by more than 4.2 spreads."""

MARGINS = {DType.FLOAT64: 1e-7, DType.FLOAT32: 1e-4, DType.FLOAT16: 1e-2, DType.BFLOAT16: 6e-2}
"""By which part of the largest magnitude floating-point values may differ before they are rounded to integers."""

ERRORS = 32
"""How many rounding errors of the largest floating-point value may lie between two of them, usually: what that moves past a
rounding is how often integers may differ. One of them always may."""

_FEW_BITS = 16  # so many are used up, of more only as many as the integers are large


@dataclass(frozen=True, slots=True)
class Cuts:
    """Where two models are cut.

    Attributes:
        values: the values in both models.
        dtypes: the element type of each, by the original's name.
        decisive: those by which the model decides, which are never perturbed.
        margins: for integers that floating-point values are rounded to, the accepted part of the largest of these.
    """

    values: Sequence[Observed]
    dtypes: Mapping[str, DType]
    decisive: frozenset[str] = frozenset()
    margins: Mapping[str, Array] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.values)


def margin_of(dtype: DType) -> Array:
    """The accepted part of the largest magnitude before a rounding, in the type of the floating-point values."""
    return np.asarray(MARGINS[dtype], dtype.numpy)


def compare_segments(original: Runnable, rewritten: Runnable, cuts: Cuts, request: Request) -> Verification:
    """Compare two models segment by segment, without onnxruntime's optimisations.

    Args:
        original: the model to go by.
        rewritten: the model to judge.
        cuts: values that both models have.
        request: pins, sizes, seed and time; values that it observes are compared like outputs.
    """
    try:
        runs = _original_runs(original, cuts, request)
        spread = _segment_spread(original, cuts, request, runs)
        tensors = {**{each.original: each for each in cuts.values}, **request.tensors}
        values = {each.rewritten: cuts.dtypes[each.original] for each in cuts.values}
        session = _cut(rewritten, values, [each.rewritten for each in request.observed])
        comparisons = [each for run in runs for each in _compared(session, run, cuts, request, tensors, spread)]
    except RUN_ERRORS as error:
        raise_if_out_of_memory(error)
        return Verification("not verified", f"the models cannot be run segment by segment: {one_line(error)}")
    return concluded(comparisons)


@dataclass(frozen=True, slots=True)
class _Values:
    """One run of the original: the inputs, and every output and cut value by name."""

    run: Run
    of: Mapping[str, Any]


def _original_runs(original: Runnable, cuts: Cuts, request: Request) -> list[_Values]:
    message = original.message()
    expose(message, [*(each.original for each in request.observed), *(each.original for each in cuts.values)])
    expose_bounds(message, cuts.margins)
    session = original.edited(message).session(optimised=False)
    runs, refusals = run_original(session, request.inputs, request.seed, request.budget)
    if not runs:
        raise ValueError(f"the original cannot be run{refusals[0]}")
    names = [each.name for each in session.get_outputs()]
    return [_Values(replace(run, outputs=()), dict(zip(names, run.outputs, strict=True))) for run in runs]


def _cut(model: Runnable, values: Mapping[str, DType], names: Any, seed: int | None = None) -> Session:
    """A session of a model cut at values; with perturbed weights if there is a seed."""
    message = model.message()
    expose(message, [name for name in names if name not in values])
    cut(message, values)
    if seed is not None:
        perturb_weights(message, seed)
        if not model.has_float16:
            perturb_sums(message, seed)
    return model.edited(message).session(optimised=False)


def _segment_spread(original: Runnable, cuts: Cuts, request: Request, runs: Sequence[_Values]) -> dict[str, Difference]:
    """How far rounding in one segment of the original moves what comes out of it."""
    observed = [each.original for each in request.observed]
    names = [name for name in runs[0].of if not name.endswith((LOWER, UPPER, MARGIN))]
    places = {each.original for each in cuts.values}
    found: dict[str, list[Difference]] = {name: [] for name in names}
    for seed in (None, request.seed):
        session = _cut(original, cuts.dtypes, observed, seed)
        given = {each.name for each in session.get_inputs()}
        asked = [f"{name}{COMPUTED}" if name in places and name in given else name for name in names]
        for values in runs:
            feed = _feed(values, given, cuts.decisive if seed is None else given, request.seed + 7)
            for name, got in zip(names, session.run(asked, feed, request.budget.run), strict=True):
                found[name].append(difference(values.of[name], got))
    return {
        name: maximum(each for each in differences if np.isfinite(each.largest)) for name, differences in found.items()
    }


def _feed(values: _Values, given: set[str], exact: frozenset[str] | set[str], seed: int) -> dict[str, Any]:
    """The inputs of the cut original, those that are not exact perturbed by a unit in the last place."""
    feed = {**values.run.feed, **{name: values.of[name] for name in given if name not in values.run.feed}}
    moved = perturbed_inputs(feed, seed)
    return {name: value if name in exact else moved[name] for name, value in feed.items()}


def _compared(
    session: Session,
    values: _Values,
    cuts: Cuts,
    request: Request,
    tensors: Mapping[str, Observed],
    spread: Mapping[str, Difference],
) -> list[Comparison]:
    """Every output and cut value of the rewritten model on one run of the original."""
    places = {each.original: each.rewritten for each in cuts.values}
    given = {each.name for each in session.get_inputs()}
    feed = {name: packed(value, tensors.get(name)) for name, value in values.run.feed.items()}
    feed |= {to: packed(values.of[name], tensors[name]) for name, to in places.items() if to in given}
    names = list(spread)
    asked = [_handed_out(name, places, given, tensors) for name in names]
    found = []
    for name, physical in zip(names, session.run(asked, feed, request.budget.run), strict=True):
        want = values.of[name]
        got = unpacked(physical, want, tensors.get(name))
        is_rounded = (
            isinstance(want, np.ndarray) and want.dtype.kind in "iu" and (name in places or name in cuts.margins)
        )
        one = _rounded(name, values.of, got) if is_rounded else _number(name, want, got, spread[name])
        found.append(replace(one, place=values.run.place))
    return found


def _handed_out(name: str, places: Mapping[str, str], given: set[str], tensors: Mapping[str, Observed]) -> str:
    """The output of the cut rewritten model that holds a value of the original."""
    rewritten = tensors[name].rewritten if name in tensors else name
    return f"{rewritten}{COMPUTED}" if rewritten in given and name in places else rewritten


def _number(name: str, want: Any, got: Any, spread: Difference) -> Comparison:
    dtype = dtype_of(want)
    one = judged(name, dtype, difference(want, got), spread, factor=FACTOR, units=UNITS)
    return replace(one, magnitude=magnitude(want))


def _rounded(name: str, wants: Mapping[str, Any], got: Array) -> Comparison:
    """A comparison of rounded integers: 1 is the largest accepted distance in steps, or multiple of the accepted frequency."""
    want, limit = wants[name], Difference(1.0, 1.0)
    dtype = str(want.dtype)
    if want.shape != got.shape or want.dtype != got.dtype:
        return Comparison(name, dtype, Difference(np.inf, np.inf), Difference(), limit)
    margin = wants.get(f"{name}{MARGIN}", np.float32(np.nan))
    wide = got.astype(np.int64)
    steps = np.abs(want.astype(np.int64) - wide)
    far = steps.max(initial=0)
    if np.isfinite(margin):
        ends = [wants[f"{name}{end}"].astype(np.int64) for end in (LOWER, UPPER)]
        beyond = np.maximum(np.minimum(*ends) - wide, wide - np.maximum(*ends)).max(initial=0)
        far = 1 + beyond if beyond > 0 else 0
    bits = DType.of(want).bits
    many = 2.0**bits if bits <= _FEW_BITS else 1 + 2 * np.abs(want.astype(np.float64)).max(initial=0)
    often = min(1.0, ERRORS * float(np.finfo(margin.dtype).eps) * many) * steps.size
    error = max(float(far), np.count_nonzero(steps) / max(1.0, often))
    return Comparison(name, dtype, Difference(error, 0.0), Difference(), limit)


__all__ = ["Cuts", "compare_segments", "margin_of"]
