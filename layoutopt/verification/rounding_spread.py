"""Rounding spread: the largest change of a model's outputs by rounding alone.

Three things are perturbed: the inputs (one unit in the last place), the sums (`perturbation.perturb_sums`), and the order of
computation, by running the model with and without onnxruntime's optimisations. The spread of an output is its
largest difference from the unperturbed run over all perturbations and all test inputs.

The two optimisation levels may compute different functions: some of onnxruntime's rewrites change a quantised model by
whole quantisation steps, a few are wrong. Where the levels differ by more than `ROUNDING_FACTOR` spreads, their difference is
not part of the spread, and a rewritten model has to agree with one of the levels.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Self

from layoutopt.runtime.errors import raise_if_out_of_memory
from layoutopt.verification.difference import EPSILONS, Difference, difference, maximum
from layoutopt.verification.original_runs import RUN_ERRORS, Run, TimeLimits
from layoutopt.verification.perturbation import perturbed_inputs
from layoutopt.verification.runnable import Runnable
from layoutopt.verification.verdict import ULPS

ROUNDING_FACTOR = 10
"""Largest difference of the two levels that counts as rounding, as a multiple of the spread of perturbations."""

_FLOOR = ULPS * EPSILONS["float32"]

Outputs = Sequence[Any]


@dataclass(frozen=True, slots=True)
class RoundingSpread:
    """The effect of rounding on the outputs of a model.

    Attributes:
        by_output: the spread of every output, by name.
        unoptimised: the outputs without onnxruntime's optimisations, one list per run; None if no output is level-dependent.
        level_dependent: the outputs that differ between the optimisation levels by more than `ROUNDING_FACTOR` spreads.
    """

    by_output: Mapping[str, Difference]
    unoptimised: Sequence[Outputs] | None = None
    level_dependent: frozenset[str] = frozenset()

    @classmethod
    def zero(cls, names: Sequence[str]) -> Self:
        """The spread of a model that rounding does not change."""
        return cls(dict.fromkeys(names, Difference()))


def measure_spread(
    original: Runnable,
    runs: Sequence[Run],
    names: Sequence[str],
    run_again: Callable[[Mapping[str, Any]], Outputs],
    limits: TimeLimits,
    *,
    perturbed: Sequence[Callable[[], Runnable | None]],
    is_optimised: bool = True,
    seed: int = 0,
) -> RoundingSpread:
    """Measure the rounding spread of the outputs.

    Args:
        original: the model.
        runs: its runs on the test inputs.
        names: of the outputs.
        run_again: runs the model on other inputs, at the same optimisation level as `runs`.
        limits: time limits.
        perturbed: make copies of the model with perturbed sums or weights, which run without optimisations.
        is_optimised: whether `runs` are at onnxruntime's default optimisation level; False for no optimisation.
        seed: of the perturbations.
    """
    differences = [
        _differences(run.outputs, _outputs_or_none(run_again, perturbed_inputs(run.feed, seed + 11))) for run in runs
    ]
    unoptimised = _all_outputs(original, runs, limits) if is_optimised and not limits.is_exceeded else None
    expected = [run.outputs for run in runs] if unoptimised is None else unoptimised
    for make in perturbed:
        if limits.is_exceeded or (unoptimised is None and is_optimised):
            break
        moved = _all_outputs(make(), runs, limits) or []
        differences += [_differences(one, other) for one, other in zip(expected, moved, strict=False)]
    perturbations = _largest(names, differences)
    if unoptimised is None:
        return RoundingSpread(perturbations)
    levels = _largest(names, [_differences(run.outputs, each) for run, each in zip(runs, unoptimised, strict=True)])
    differ = frozenset(name for name in names if not _is_rounding(levels[name], perturbations[name]))
    spread = {name: perturbations[name] | (Difference() if name in differ else levels[name]) for name in names}
    return RoundingSpread(spread, unoptimised if differ else None, differ)


def _is_rounding(levels: Difference, perturbed: Difference) -> bool:
    return levels.is_within(perturbed.scaled(ROUNDING_FACTOR) | Difference(_FLOOR, _FLOOR).scaled(ROUNDING_FACTOR))


def _all_outputs(model: Runnable | None, runs: Sequence[Run], limits: TimeLimits) -> list[Outputs] | None:
    """The outputs of a model without optimisations; None without a model, or if it does not run."""
    if model is None:
        return None
    try:
        session = model.session(is_optimised=False)
        return [session.run(None, run.feed, limits.run) for run in runs]
    except RUN_ERRORS as error:
        raise_if_out_of_memory(error)
        return None


def _outputs_or_none(run: Callable[[Mapping[str, Any]], Outputs], feed: Mapping[str, Any]) -> Outputs | None:
    """The outputs on perturbed inputs; None where these are invalid because an extent or an index has changed."""
    try:
        return run(feed)
    except RUN_ERRORS as error:
        raise_if_out_of_memory(error)
        return None


def _differences(expected_outputs: Outputs, actual_outputs: Outputs | None) -> list[Difference] | None:
    """The difference of every output; None if the perturbed model did not run."""
    if actual_outputs is None:
        return None
    return [difference(expected, actual) for expected, actual in zip(expected_outputs, actual_outputs, strict=True)]


def _largest(names: Sequence[str], differences: Sequence[list[Difference] | None]) -> dict[str, Difference]:
    """The largest difference of every output; infinite ones (another shape, another NaN) are left out."""
    measured = [each for each in differences if each is not None]
    return {
        name: maximum(each[index] for each in measured if isfinite(each[index].largest))
        for index, name in enumerate(names)
    }


__all__ = ["RoundingSpread", "measure_spread"]
