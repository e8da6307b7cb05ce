"""The rounding spread of a model: how far its outputs move where nothing but rounding changes.

Perturbed are the inputs (one unit in the last place), the weights (`perturbation.WEIGHT_UNITS` units), and the order of
computation: the model runs with onnxruntime's optimisations and without. The spread of an output is its largest difference
from the unperturbed run over all of these and all test inputs.

The two levels of optimisation may compute different things: some of onnxruntime's rewrites change a quantised model by
whole steps, a few are wrong. Where the levels are further apart than rounding explains, their difference is no part of the
spread, and a rewritten model has to agree with one of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from layoutopt.runtime.errors import raise_if_out_of_memory
from layoutopt.verification.difference import Difference, difference, maximum
from layoutopt.verification.perturbation import WEIGHT_UNITS, perturb_sums, perturb_weights, perturbed_inputs
from layoutopt.verification.runnable import Runnable
from layoutopt.verification.runs import RUN_ERRORS, Budget, Run
from layoutopt.verification.verdict import UNITS

EXPLAINED = 10
"""How many times the spread of perturbations the two levels may be apart and still count as rounding."""

_FLOOR = UNITS * 2.0**-23

Outputs = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Spread:
    """What rounding does to a model.

    Attributes:
        of: the spread of every output, by name.
        other_level: the outputs without onnxruntime's optimisations, one list per run; None if they do not run.
        levels_differ: the outputs for which the levels of optimisation compute different things.
    """

    of: Mapping[str, Difference]
    other_level: Sequence[Outputs] | None
    levels_differ: frozenset[str]


def measure_spread(
    original: Runnable,
    runs: Sequence[Run],
    names: Sequence[str],
    run_again: Callable[[Mapping[str, Any]], Outputs],
    budget: Budget,
    *,
    perturbed: Callable[[], Runnable | None],
    optimised: bool = True,
    seed: int = 0,
) -> Spread:
    """Measure the spread of the outputs.

    Args:
        original: the model.
        runs: what it computes, at the level that `optimised` means.
        names: of the outputs.
        run_again: runs it on other inputs, at the same level.
        budget: when to stop.
        perturbed: makes a copy of the model with perturbed weights.
        optimised: whether `runs` are at onnxruntime's default level.
        seed: of the perturbations.
    """
    moved = [_differences(run.outputs, _tried(run_again, perturbed_inputs(run.feed, seed + 11))) for run in runs]
    if not budget.is_spent:
        moved += _with_perturbed_weights(perturbed, runs, budget, optimised)
    inner = _merged(names, moved)
    if not optimised or budget.is_spent:
        return Spread(inner, None, frozenset())
    other = _at_other_level(original, runs, budget)
    if other is None:
        return Spread(inner, None, frozenset())
    levels = _merged(names, [_differences(run.outputs, each) for run, each in zip(runs, other, strict=True)])
    differ = frozenset(name for name in names if not _is_explained(levels[name], inner[name]))
    spread = {name: inner[name] if name in differ else inner[name] | levels[name] for name in names}
    return Spread(spread, other, differ)


def _is_explained(levels: Difference, perturbed: Difference) -> bool:
    return levels.is_within(perturbed.scaled(EXPLAINED) | Difference(_FLOOR, _FLOOR).scaled(EXPLAINED))


def perturbed_copy(model: Runnable, seed: int, units: int = WEIGHT_UNITS) -> Runnable | None:
    """A copy of a model with its weights and sums moved by units in the last place; None if it has neither."""
    message = model.message()
    has_weights = perturb_weights(message, seed, units)
    has_sums = not model.has_float16 and perturb_sums(message, seed)
    return model.edited(message) if has_weights or has_sums else None


def _with_perturbed_weights(
    perturbed: Callable[[], Runnable | None], runs: Sequence[Run], budget: Budget, optimised: bool
) -> list[list[Difference] | None]:
    try:
        model = perturbed()
        session = model.session(optimised=optimised) if model is not None else None
    except RUN_ERRORS as error:  # a constant that may not change, such as an axis: there is nothing to learn from it
        raise_if_out_of_memory(error)
        return []
    if session is None:
        return []
    return [
        _differences(run.outputs, _tried(lambda feed: session.run(None, feed, budget.run), run.feed)) for run in runs
    ]


def _at_other_level(original: Runnable, runs: Sequence[Run], budget: Budget) -> list[Outputs] | None:
    try:
        session = original.session(optimised=False)
        return [session.run(None, run.feed, budget.run) for run in runs]
    except RUN_ERRORS as error:
        raise_if_out_of_memory(error)
        return None


def _tried(run: Callable[[Mapping[str, Any]], Outputs], feed: Mapping[str, Any]) -> Outputs | None:
    """The outputs on perturbed inputs; None where these are not valid, since an extent or an index has changed."""
    try:
        return run(feed)
    except RUN_ERRORS as error:
        raise_if_out_of_memory(error)
        return None


def _differences(wants: Outputs, gots: Outputs | None) -> list[Difference] | None:
    """The difference of every output; None if there is nothing to compare."""
    return None if gots is None else [difference(want, got) for want, got in zip(wants, gots, strict=True)]


def _merged(names: Sequence[str], moved: Sequence[list[Difference] | None]) -> dict[str, Difference]:
    """The largest difference of every output. An infinite one, of another shape or another NaN, is no measure of anything."""
    known = [each for each in moved if each is not None]
    return {
        name: maximum(each[place] for each in known if isfinite(each[place].largest))
        for place, name in enumerate(names)
    }


__all__ = ["Spread", "measure_spread", "perturbed_copy"]
