"""Segmented comparison: every segment of the rewritten model gets the original's values, so errors do not accumulate.

Both models are cut at values that they have in common. The rewritten one computes every segment from the original's values:

    x -> [ segment ] -> q'      q -> [ segment ] -> p'      p -> [ segment ] -> y'

and q', p', y' must equal q, p, y up to the rounding of one segment. This finds faults that the rounding errors of a deep
network would hide, and accepts differences that one rounding or discontinuous op has caused. If all segments agree, the models
are equivalent.

Floating-point values may differ by a multiple of the rounding spread of the same segment of the original: its sums and
the values that enter it are perturbed, as in `rounding_spread`. Operands of discontinuous ops (`ops.discontinuous`) enter both
models unperturbed.

Rounded integers must be between the roundings of a slightly smaller and a slightly larger floating-point value, by
`RELATIVE_MARGINS` of the largest magnitude. Integers that an op computes from integers may differ by one step. Differences must
be rare: with sums in another order, integers of 8 bits rounded from float32 differ in one element of a thousand.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from layoutopt.ir.types import Array, DType
from layoutopt.runtime.errors import error_message, raise_if_out_of_memory
from layoutopt.runtime.session import Session
from layoutopt.verification.difference import INFINITE, Difference, difference, maximum
from layoutopt.verification.model_edits import (
    COMPUTED,
    LOWER,
    PERTURBATION,
    UPPER,
    add_bound_outputs,
    add_outputs,
    cut_at,
    tensors_between,
)
from layoutopt.verification.observed_values import ObservedValue
from layoutopt.verification.original_runs import RUN_ERRORS, Run, run_original
from layoutopt.verification.perturbation import COHERENT, error_growths, perturb_sums, perturbed_inputs
from layoutopt.verification.request import Counterparts, Request
from layoutopt.verification.runnable import Runnable
from layoutopt.verification.verdict import Comparison, Verification

RELATIVE_MARGINS = {DType.FLOAT64: 1e-7, DType.FLOAT32: 1e-4, DType.FLOAT16: 1e-2, DType.BFLOAT16: 6e-2}
"""The accepted difference of floating-point values before rounding to integers, relative to the largest magnitude."""

ROUNDING_ULPS = 32
"""Typical difference of two floating-point values, in units in the last place of the largest one. It determines how many of the
integers that they are rounded to may differ; at least one may."""

_FULL_RANGE_BITS = (
    16  # integers of up to 16 bits are assumed to use their whole range, wider ones up to the largest element
)


@dataclass(frozen=True, slots=True)
class Cuts:
    """The values at which two models are cut.

    Attributes:
        values: the values in both models.
        dtypes: the element type of each, by the original's name.
        unperturbed: rounded integers and operands of discontinuous ops, which are never perturbed.
        relative_margins: by rounded integer, the accepted difference of its floating-point operand, relative to the largest.
    """

    values: Sequence[ObservedValue]
    dtypes: Mapping[str, DType]
    unperturbed: frozenset[str] = frozenset()
    relative_margins: Mapping[str, Array] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.values)


def relative_margin(dtype: DType) -> Array:
    """The accepted relative difference before a rounding, as an array of the floating-point type."""
    return np.asarray(RELATIVE_MARGINS[dtype], dtype.numpy)


def compare_segments(original: Runnable, rewritten: Runnable, cuts: Cuts, request: Request) -> Verification:
    """Compare two models segment by segment, without onnxruntime's optimisations.

    Args:
        original: the reference model.
        rewritten: the model to check.
        cuts: values that both models have.
        request: pins, test inputs, seed and time limits; its observed values are compared like outputs.
    """
    try:
        session = exposed_session(original, cuts, request)
        found, failures = run_original(session, request.inputs, request.seed, request.limits)
        if not found:
            raise ValueError(f"the original cannot be run{failures[0]}")
        runs = [CutRun.of(session, run, run.outputs) for run in found]
        del session
        _, comparisons = compare_runs(original, rewritten, cuts, request, runs)
    except RUN_ERRORS as error:
        raise_if_out_of_memory(error)
        return Verification("not verified", f"the models cannot be run segment by segment: {error_message(error)}")
    return replace(Verification.of(comparisons), tensors=differing_tensors(original, cuts, comparisons))


def differing_tensors(original: Runnable, cuts: Cuts, comparisons: Sequence[Comparison]) -> frozenset[str]:
    """The tensors that the original computes in the segments of comparisons that failed."""
    failed = {each.name for each in comparisons if not each.passed}
    return (
        tensors_between(original.message(), failed, {each.original for each in cuts.values}) if failed else frozenset()
    )


@dataclass(frozen=True, slots=True)
class CutRun:
    """One run of the original: the inputs, and the outputs and cut values by name."""

    run: Run
    values: Mapping[str, Any]

    @classmethod
    def of(cls, session: Session, run: Run, outputs: Sequence[Any]) -> "CutRun":
        """The run whose outputs are those of a session."""
        names = [each.name for each in session.get_outputs()]
        return cls(replace(run, outputs=()), dict(zip(names, outputs, strict=True)))


def exposed_session(original: Runnable, cuts: Cuts, request: Request) -> Session:
    """A session of the original with the values at cuts, and the bounds of rounded ones, as further outputs."""
    message = original.message()
    add_outputs(message, [*(each.original for each in request.observed), *(each.original for each in cuts.values)])
    add_bound_outputs(message, cuts.relative_margins)
    return original.edited(message).session(is_optimised=False)


def compare_runs(
    original: Runnable, rewritten: Runnable, cuts: Cuts, request: Request, runs: Sequence[CutRun]
) -> tuple[Mapping[str, Difference], list[Comparison]]:
    """The rounding spread of every value within its segment, and the comparisons of all values on runs of the original.

    Args:
        original: the reference model.
        rewritten: the model to check.
        cuts: values that both models have.
        request: pins, seed and time limits; its observed values are compared like outputs.
        runs: runs of the original with the values at cuts.
    """
    spread = _segment_spread(original, rewritten, cuts, request, runs)
    values = {each.rewritten: cuts.dtypes[each.original] for each in cuts.values}
    session = _cut_session(rewritten, values, [each.rewritten for each in request.observed])
    return spread, [each for run in runs for each in _compare_run(session, run, cuts, request, spread)]


def _cut_session(
    model: Runnable,
    values: Mapping[str, DType],
    names: Sequence[str],
    seed: int | None = None,
    growths: Mapping[str, float] | None = None,
) -> Session:
    """A session of a model that is cut at values and has further outputs; with perturbed sums if a seed is given."""
    message = model.message()
    add_outputs(message, [name for name in names if name not in values])
    cut_at(message, values)
    if seed is not None:
        message = perturb_sums(message, seed, growths or {})
    return model.edited(message).session(is_optimised=False)


def _segment_spread(
    original: Runnable, rewritten: Runnable, cuts: Cuts, request: Request, runs: Sequence[CutRun]
) -> dict[str, Difference]:
    """The rounding spread of every value within its segment of the original."""
    observed = [each.original for each in request.observed]
    names = [name for name in runs[0].values if not name.endswith((LOWER, UPPER, PERTURBATION))]
    at_cuts = {each.original for each in cuts.values}
    found: dict[str, list[Difference]] = {name: [] for name in names}
    found_growths = error_growths(original.message(), rewritten.message())
    growths = {f"{name}{suffix}": growth for name, growth in found_growths.items() for suffix in ("", COMPUTED)}
    for seed in (request.seed, COHERENT):
        session = _cut_session(original, cuts.dtypes, observed, seed, growths)
        given = [each.name for each in session.get_inputs()]
        requested = [f"{name}{COMPUTED}" if name in at_cuts and name in given else name for name in names]
        for each in runs:
            feed = _feed(each, given, set(given) if seed == COHERENT else cuts.unperturbed, request.seed + 7)
            for name, actual in zip(names, session.run(requested, feed, request.limits.run), strict=True):
                found[name].append(difference(each.values[name], actual))
        del session  # two models are never in memory at once
    return {
        name: maximum(each for each in differences if np.isfinite(each.largest)) for name, differences in found.items()
    }


def _feed(cut_run: CutRun, given: Sequence[str], unperturbed: Set[str], seed: int) -> dict[str, Any]:
    """The given inputs of the cut original, perturbed by one unit in the last place unless they are in `unperturbed`."""
    inputs = cut_run.run.feed
    feed = {name: inputs[name] if name in inputs else cut_run.values[name] for name in given}
    moved = perturbed_inputs(feed, seed)
    return {name: value if name in unperturbed else moved[name] for name, value in feed.items()}


def _compare_run(
    session: Session, cut_run: CutRun, cuts: Cuts, request: Request, spread: Mapping[str, Difference]
) -> list[Comparison]:
    """The comparisons of all outputs and cut values of the rewritten model on one run of the original."""
    at_cuts = {each.original: each for each in cuts.values}
    counterparts = Counterparts({**at_cuts, **request.counterparts.by_name})
    given = {each.name for each in session.get_inputs()}
    cut_inputs = {each.original for each in cuts.values if each.rewritten in given}
    inputs = {**{name: cut_run.values[name] for name in cut_inputs}, **cut_run.run.feed}
    packed = counterparts.pack({name: x for name, x in inputs.items() if counterparts.name(name) in given})
    feed = {counterparts.name(name): x for name, x in packed.items()}
    names = list(spread)
    requested = [f"{counterparts.name(name)}{COMPUTED if name in cut_inputs else ''}" for name in names]
    found = []
    for name, physical in zip(names, session.run(requested, feed, request.limits.run), strict=True):
        expected = cut_run.values[name]
        actual = counterparts.unpack(name, physical, expected)
        is_integer = isinstance(expected, np.ndarray) and expected.dtype.kind in "iu"
        if is_integer and (name in at_cuts or name in cuts.relative_margins):
            one = _compare_rounded(name, cut_run.values, actual)
        else:
            one = Comparison.against_spread(name, expected, difference(expected, actual), spread[name])
        found.append(replace(one, at_sizes=cut_run.run.at_sizes))
    return found


def _compare_rounded(name: str, expected_outputs: Mapping[str, Any], actual: Array) -> Comparison:
    """A comparison of rounded integers, scaled so that 1 is the largest accepted distance in steps and frequency."""
    expected, limit = expected_outputs[name], Difference(1.0, 1.0)
    dtype = str(expected.dtype)
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return Comparison(name, dtype, INFINITE, Difference(), limit)
    perturbation = expected_outputs.get(f"{name}{PERTURBATION}", np.float32(np.nan))
    wide = actual.astype(np.int64)
    steps = np.abs(expected.astype(np.int64) - wide)
    distance = steps.max(initial=0)
    if np.isfinite(perturbation):
        bounds = [expected_outputs[f"{name}{suffix}"].astype(np.int64) for suffix in (LOWER, UPPER)]
        beyond = np.maximum(np.minimum(*bounds) - wide, wide - np.maximum(*bounds)).max(initial=0)
        distance = 1 + beyond if beyond > 0 else 0
    bits = DType.of(expected).bits
    levels = 2.0**bits if bits <= _FULL_RANGE_BITS else 1 + 2 * np.abs(expected.astype(np.float64)).max(initial=0)
    accepted = min(1.0, ROUNDING_ULPS * float(np.finfo(perturbation.dtype).eps) * levels) * steps.size
    error = max(float(distance), np.count_nonzero(steps) / max(1.0, accepted))
    return Comparison(name, dtype, Difference(error, 0.0), Difference(), limit)


__all__ = [
    "CutRun",
    "Cuts",
    "compare_runs",
    "compare_segments",
    "differing_tensors",
    "exposed_session",
    "relative_margin",
]
