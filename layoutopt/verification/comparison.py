"""Comparison of two models on the same test inputs, in stock onnxruntime: as a whole, or segment by segment.

A rewritten model adds numbers in another order, so its outputs differ by rounding. Perturbed runs of the original measure how
far rounding moves a value, its *rounding spread*. The rewritten model passes if

    difference <= 3 x rounding spread        of every value, for the largest element and for the root mean square

Without cuts a model is one segment: both models run with onnxruntime's default optimisations. Otherwise both are cut at values
that they have in common, and the rewritten one computes every segment from the original's values:

    x -> [ segment ] -> q'      q -> [ segment ] -> p'      p -> [ segment ] -> y'

and q', p', y' must equal q, p, y up to the rounding of one segment. This finds faults that the rounding errors of a deep
network would hide, and accepts differences that one rounding or discontinuous op has caused. If all segments agree, the models
are equivalent. A segmented comparison runs without optimisations; a model that is larger than memory is run in parts (`parts`).

Three things are perturbed: inputs (one unit in the last place), sums (`perturbation.perturb_sums`), and, without cuts, the
order of computation, by running the model with and without onnxruntime's optimisations. The two levels may compute different
functions: some of onnxruntime's rewrites change a quantised model by whole quantisation steps, a few are wrong. Where they
differ by more than `ROUNDING_FACTOR` spreads, the difference is not part of the spread, and a rewritten model has to agree with
one of the levels.

Rounded integers must be between the roundings of a slightly smaller and a slightly larger floating-point value, by
`RELATIVE_MARGINS` of the largest magnitude. Integers that an op computes from integers may differ by one step. Differences must
be rare: with sums in another order, integers of 8 bits rounded from float32 differ in one element of a thousand.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any

import numpy as np
from msgspec.structs import replace

from layoutopt.dialects.onnxruntime.blocked_passes import NAME
from layoutopt.ir.types import Array, DType
from layoutopt.record import Record
from layoutopt.runtime.errors import RUN_ERRORS, error_message, raise_if_out_of_memory
from layoutopt.verification.cuts import NO_CUTS, Cuts, ObservedValue
from layoutopt.verification.difference import EPSILONS, INFINITE, Difference, difference, maximum
from layoutopt.verification.edits import (
    COMPUTED,
    LOWER,
    PERTURBATION,
    UPPER,
    add_bound_outputs,
    add_outputs,
    cut_at,
    tensors_between,
    upcast_to_float32,
)
from layoutopt.verification.parts import PartedSession
from layoutopt.verification.perturbation import (
    COHERENT,
    error_growths,
    perturb_narrow_weights,
    perturb_sums,
    perturbed_inputs,
)
from layoutopt.verification.runnable import AnySession, Runnable
from layoutopt.verification.runs import RUN_SECONDS, Request, Run, Values, load_and_run, misdeclared_outputs, sizes_of
from layoutopt.verification.verdict import SPREAD_FACTOR, ULPS, Comparison, Verification

ROUNDING_FACTOR = 10
"""Largest difference of the two levels that counts as rounding, as a multiple of the spread of perturbations."""

SENSITIVITY = 100
"""An output depends on the inputs if two sets of them move it by more than this many units in the last place or spreads."""

ROUNDING_ULPS = 32
"""Typical difference of two floating-point values, in units in the last place of the largest one. It determines how many of the
integers that they are rounded to may differ; at least one may."""

_FULL_RANGE_BITS = 16
"""Integers of up to 16 bits are assumed to use their whole range, wider ones up to the largest element."""

_OTHER_MACHINE = re.compile(re.escape(NAME.partition("model is ")[2]).replace(r"\{\}", r"\d+"))
"""Part of the error of a model that is packed for another machine; such a model cannot be verified on this one."""

_FLOOR = ULPS * EPSILONS["float32"] * ROUNDING_FACTOR


class RoundingSpread(Record):
    """The effect of rounding on the values of a model.

    Attributes:
        by_name: the spread of every value.
        unoptimised: the outputs without onnxruntime's optimisations, one mapping per run; None if no output is level-dependent.
        level_dependent: the outputs that differ between the optimisation levels by more than `ROUNDING_FACTOR` spreads.
    """

    by_name: Mapping[str, Difference]
    unoptimised: Sequence[Values] | None = None
    level_dependent: frozenset[str] = frozenset()


class PairOfModels(Record):
    """Two models to compare.

    Attributes:
        original: the reference model.
        rewritten: the model to check.
        request: the conditions of the comparison.
        cuts: the values at which both are cut, if they are not optimised.
        is_optimised: whether onnxruntime optimises both, at its default level.
        narrow: the 16-bit model that `original` is an upcast of; its weights are perturbed by one unit in the last place of
            their own types, twice the effect of rounding them.
    """

    original: Runnable
    rewritten: Runnable
    request: Request
    cuts: Cuts = NO_CUTS
    is_optimised: bool = True
    narrow: Runnable | None = None

    def verdict(self, *, has_spread: bool = True, known: list[tuple[Run, Values]] | None = None) -> Verification:
        """Run both models, one after the other, and compare their outputs and the values at cuts.

        Args:
            has_spread: whether the rounding spread is measured; without it, only a few units in the last place are accepted.
            known: a list to which the runs and the rewritten model's outputs are added.
        """
        if has_spread and self.request.defers_spread:
            exact = self.verdict(has_spread=False)
            if exact.status == "passed" or not (exact.comparisons or exact.misdeclared):
                return exact
        loaded = load_and_run(self._exposed(), self.request, is_optimised=self.is_optimised)
        if isinstance(loaded, str):
            return Verification("not verified", f"{self._prefix}{loaded}")
        session, runs = loaded
        names = [name for name in runs[0].values if not name.endswith((LOWER, UPPER, PERTURBATION))]
        misdeclared: dict[str, str] = {}
        for run in runs:
            misdeclared |= misdeclared_outputs(session, run.values)
        try:
            spreads = self._spreads(session, runs, names, has_spread)
            del session, loaded  # two models are never in memory at once
            spread = next(spreads)
            computed: Iterable[Values] = self._rewritten_values(runs, names)
            if known is not None:
                computed = list(computed)
                known += zip(runs, computed, strict=True)
            comparisons = [
                self._comparison(name, run, actual[name], spread, number, misdeclared)
                for number, (run, actual) in enumerate(zip(runs, computed, strict=True))
                for name in names
            ]
            while not all(each.passed for each in comparisons) and (wider := next(spreads, None)) is not None:
                spread = wider
                comparisons = [
                    each if self._is_rounded(each.name, runs[0]) else each.within(spread.by_name[each.name])
                    for each in comparisons
                ]
        except RUN_ERRORS as error:
            raise_if_out_of_memory(error)
            return self._not_run(error, misdeclared)
        outputs = [name for name in names if name not in self._at_cuts]
        depends = depends_on_inputs(runs, outputs, spread.by_name)
        verdict = Verification.of(comparisons, depends, sizes_of(runs))
        if verdict.status == "passed":
            return verdict
        if misdeclared:
            return _misdeclared(misdeclared)
        return verdict if self.is_optimised else replace(verdict, tensors=self._differing(comparisons))

    def computes(self, known: Sequence[tuple[Run, Values]]) -> bool:
        """Whether the rewritten model computes known outputs, but for a few units in the last place, on the inputs of runs."""
        runs = [run for run, _ in known]
        try:
            for (_, expected), actual in zip(known, self._rewritten_values(runs, [*known[0][1]]), strict=True):
                for name, value in expected.items():
                    found = difference(value, actual[name])
                    if not Comparison.against_spread(name, value, found, Difference()).passed:
                        return False
        except RUN_ERRORS as error:
            raise_if_out_of_memory(error)
            return False
        return True

    @property
    def _prefix(self) -> str:
        return "" if self.is_optimised else "the models cannot be run segment by segment: "

    @property
    def _at_cuts(self) -> dict[str, ObservedValue]:
        return {each.original: each for each in self.cuts.values}

    def _not_run(self, error: Exception, misdeclared: Mapping[str, str]) -> Verification:
        """The verdict where the rewritten model, or the cut original, cannot be run."""
        message = error_message(error)
        if (engine := self.rewritten.engine) is not None:
            return Verification("failed", f"{engine.name} cannot run it: {message}")
        if not self.is_optimised:
            return Verification("not verified", f"{self._prefix}{message}")
        at_sizes = "".join(getattr(error, "__notes__", ()))
        reason = f"the original can be run, the rewritten model cannot{at_sizes}: {message}"
        if other := _OTHER_MACHINE.search(reason):
            return Verification("not verified", f"the rewritten model is {other.group()}")
        return _misdeclared(misdeclared) if misdeclared else Verification("failed", reason)

    def _differing(self, comparisons: Iterable[Comparison]) -> frozenset[str]:
        """The tensors that the original computes in the segments of comparisons that failed."""
        failed = {each.name for each in comparisons if not each.passed}
        return tensors_between(self.original.message(), failed, self._at_cuts.keys())

    def _exposed(self) -> Runnable:
        """The original with observed values, values at cuts, and bounds of rounded ones as further outputs."""
        names = [*(each.original for each in self.request.observed), *self._at_cuts]
        if not names and not self.cuts.relative_margins:
            return self.original
        message = self.original.message()
        add_outputs(message, names)
        add_bound_outputs(message, self.cuts.relative_margins)
        return self.original.edited(message)

    def _cut(self, model: Runnable, names: Sequence[str], dtypes: Mapping[str, DType]) -> Runnable:
        """A model that is cut at values and has further outputs."""
        if not names and not dtypes:
            return model
        message = model.message()
        add_outputs(message, [name for name in names if name not in dtypes])
        cut_at(message, dtypes)
        return model.edited(message)

    def _spreads(
        self, session: AnySession, runs: Sequence[Run], names: Sequence[str], has_spread: bool
    ) -> Iterator[RoundingSpread]:
        """The rounding spread of every value within its segment of the original; of cut models one after each perturbation.

        Segments that agree within a spread agree within a wider one, so that most need one perturbation. Of a model without
        cuts all perturbations count at once, because a small spread makes the comparison conclusive.
        """
        if not has_spread:
            del session
            yield RoundingSpread(dict.fromkeys(names, Difference()))
        elif not self.cuts.values:
            spread = self._spread(session, runs, names)
            del session
            yield spread
        else:
            del session
            differences: list[Mapping[str, Difference]] = []
            for copy, moves_inputs in self._perturbed(self._cut_original()):
                seed = self.request.seed + 7 if moves_inputs else None
                differences += _differences(  # no name refers to the session, which would exist until the next spread
                    [run.values for run in runs],
                    self._computed(copy.session(is_optimised=False), runs, names, {}, seed),
                )
                yield RoundingSpread(_largest(names, differences))

    def _cut_original(self) -> Runnable:
        return self._cut(self.original, [each.original for each in self.request.observed], self.cuts.dtypes)

    def _spread(self, session: AnySession, runs: Sequence[Run], names: Sequence[str]) -> RoundingSpread:
        """Measure the rounding spread of every value of a model without cuts."""
        seed = self.request.seed
        cut = self._cut_original()
        plain: Sequence[Values] | None = [run.values for run in runs]
        differences: list[Mapping[str, Difference]] = []
        if self.is_optimised:
            for run in runs:
                differences += _differences([run.values], self._run_again(lambda: session, [run], names, seed + 11))
            load = partial(cut.session, is_optimised=False)
            plain = None if self.request.is_late else list(self._run_again(load, runs, names)) or None
        for copy, moves_inputs in self._perturbed(cut):
            if plain is None or (self.is_optimised and self.request.is_late):
                break
            load = partial(copy.session, is_optimised=False)
            differences += _differences(plain, self._run_again(load, runs, names, seed + 7 if moves_inputs else None))
        perturbations = _largest(names, differences)
        if not self.is_optimised or plain is None:
            return RoundingSpread(perturbations)
        levels = _largest(names, _differences([run.values for run in runs], plain))
        differ = frozenset(
            name
            for name, found in perturbations.items()
            if not levels[name].is_within(found.scaled(ROUNDING_FACTOR) | Difference(_FLOOR, _FLOOR))
        )
        spread = {name: found if name in differ else found | levels[name] for name, found in perturbations.items()}
        return RoundingSpread(spread, plain if differ else None, differ)

    def _perturbed(self, cut: Runnable) -> Iterator[tuple[Runnable, bool]]:
        """Copies of the cut original with perturbed sums or weights, and whether their inputs are perturbed too."""
        seed = self.request.seed
        if self.narrow is not None:
            message = self.narrow.message()
            perturb_narrow_weights(message, seed)
            wide = upcast_to_float32(self.narrow.edited(message).source)
            if wide is not None:
                yield Runnable.of(wide), False
            return
        found = error_growths(self.original.message(), self.rewritten.message())
        growths = {f"{name}{suffix}": growth for name, growth in found.items() for suffix in ("", COMPUTED)}
        for each in (COHERENT, seed):
            moves_inputs = not self.is_optimised and each != COHERENT
            yield cut.edited(perturb_sums(cut.message(), each, growths)), moves_inputs

    def _run_again(
        self, load: Callable[[], AnySession], runs: Sequence[Run], names: Sequence[str], seed: int | None = None
    ) -> Iterable[Values]:
        """The values of the cut original, or of a copy of it; empty if an optimised model does not run on perturbed inputs."""
        if not self.is_optimised:
            return self._computed(load(), runs, names, {}, seed)
        try:
            return list(self._computed(load(), runs, names, {}, seed))
        except RUN_ERRORS as error:
            raise_if_out_of_memory(error)
            return []

    def _rewritten_values(self, runs: Sequence[Run], names: Sequence[str]) -> Iterator[Values]:
        """The rewritten model's values for every run.

        Raises:
            Exception: it cannot be loaded or run; one of `RUN_ERRORS`, with the sizes of the run as a note.
        """
        dtypes = {
            each.rewritten: DType.UINT8 if each.is_unsigned else self.cuts.dtypes[name]
            for name, each in self._at_cuts.items()
        }
        cut = self._cut(self.rewritten, [each.rewritten for each in self.request.observed], dtypes)
        session, counterparts = cut.session(is_optimised=self.is_optimised), self.request.counterparts(self.cuts.values)
        return self._computed(session, runs, names, counterparts)

    def _computed(
        self,
        session: AnySession,
        runs: Sequence[Run],
        names: Sequence[str],
        counterparts: Mapping[str, ObservedValue],
        seed: int | None = None,
    ) -> Iterator[Values]:
        """The values of a cut model on the inputs of some runs and the original's values at cuts, as tensors of the original.

        With a seed, these are one unit in the last place higher or lower, but for those in `Cuts.unperturbed`. A parted model
        runs on all inputs before the first values are yielded.
        """
        given = {each.name for each in session.get_inputs()}
        every = (*names, *self._at_cuts, *runs[0].feed)
        values = {name: counterparts.get(name) or ObservedValue(name, name, None) for name in every}
        cut_inputs = [name for name in self._at_cuts if values[name].rewritten in given]
        requested = [f"{values[name].rewritten}{COMPUTED if name in cut_inputs else ''}" for name in names]

        def feed(run: Run) -> dict[str, Array]:
            plain = {**{name: run.values[name] for name in cut_inputs}, **run.feed}
            if seed is not None:
                moved = {name: x for name, x in plain.items() if name not in self.cuts.unperturbed}
                plain |= perturbed_inputs(moved, seed)
            return {values[name].rewritten: values[name].packed(x) for name, x in plain.items()}

        for some in [runs] if isinstance(session, PartedSession) else [[run] for run in runs]:
            try:
                outputs = session.run_all(requested, [feed(run) for run in some], RUN_SECONDS)
            except RUN_ERRORS as error:
                error.add_note(some[0].at_sizes)
                raise
            for run, arrays in zip(some, outputs, strict=True):
                yield {
                    name: values[name].unpacked(array, run.values[name])
                    for name, array in zip(names, arrays, strict=True)
                }

    def _comparison(
        self,
        name: str,
        run: Run,
        actual: Any,
        spread: RoundingSpread,
        number: int,
        misdeclared: Mapping[str, str],
    ) -> Comparison:
        """The comparison of a value of the rewritten model with that of a run of the original, the `number`-th one."""
        expected = run.values[name]
        if self._is_rounded(name, run):
            return replace(_compare_rounded(name, run.values, actual, self.cuts), at_sizes=run.at_sizes)
        found = difference(expected, actual)
        if name in misdeclared and _are_empty(expected, actual):
            found = Difference()  # a loop of no iterations gives the shape that its body declares
        if name in spread.level_dependent and spread.unoptimised is not None:
            other = difference(spread.unoptimised[number][name], actual)
            found = min(found, other, key=lambda each: each.largest)
        factor = SPREAD_FACTOR if self.narrow is None else 1
        return Comparison.against_spread(
            name, expected, found, spread.by_name[name], factor=factor, at_sizes=run.at_sizes
        )

    def _is_rounded(self, name: str, run: Run) -> bool:
        """Whether a value is an integer that is compared with the roundings of nearby values, and not with a spread."""
        value = run.values[name]
        is_integer = isinstance(value, np.ndarray) and value.dtype.kind in "iu"
        return is_integer and (name in self._at_cuts or name in self.cuts.relative_margins)


def _differences(expected: Iterable[Values], actual: Iterable[Values]) -> list[dict[str, Difference]]:
    """The difference of every value; empty if the perturbed model did not run."""
    return [
        {name: difference(one[name], value) for name, value in other.items()}
        for one, other in zip(expected, actual, strict=False)
    ]


def _largest(names: Iterable[str], differences: Sequence[Mapping[str, Difference]]) -> dict[str, Difference]:
    """The largest difference of every value; infinite ones (another shape, another NaN) are left out."""
    return {name: maximum(each[name] for each in differences if isfinite(each[name].largest)) for name in names}


def _are_empty(expected: Any, actual: Any) -> bool:
    """Whether both are arrays of one element type without an element."""
    is_empty = all(isinstance(each, np.ndarray) and each.size == 0 for each in (expected, actual))
    return is_empty and expected.dtype == actual.dtype


def _misdeclared(reasons: Mapping[str, str]) -> Verification:
    """The verdict on models that differ where the original's outputs contradict their declared shapes."""
    return Verification("not verified", next(iter(reasons.values())), misdeclared=tuple(reasons))


def depends_on_inputs(runs: Sequence[Run], names: Sequence[str], spread: Mapping[str, Difference]) -> bool:
    """Whether at least one output differs between two sets of inputs of one size."""
    if not runs[0].feed or len(runs) < 2:
        return True
    for name in names:
        one, other = runs[0].values[name], runs[1].values[name]
        comparison = Comparison.against_spread(name, one, difference(one, other), spread[name])
        if not comparison.difference.is_within(comparison.limit.scaled(SENSITIVITY / ULPS)):
            return True
    return False


def _compare_rounded(name: str, expected_values: Values, actual: Array, cuts: Cuts) -> Comparison:
    """A comparison of rounded integers, scaled so that 1 is the largest accepted distance in steps and frequency."""
    expected, limit = expected_values[name], Difference(1.0, 1.0)
    dtype = str(expected.dtype)
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return Comparison(name, dtype, INFINITE, Difference(), limit)
    perturbation = expected_values.get(f"{name}{PERTURBATION}", np.float32(np.nan))
    wide = actual.astype(np.int64)
    steps = np.abs(expected.astype(np.int64) - wide)
    distance = steps.max(initial=0)
    if np.isfinite(perturbation):
        bounds = [expected_values[f"{name}{suffix}"].astype(np.int64) for suffix in (LOWER, UPPER)]
        beyond = np.maximum(np.minimum(*bounds) - wide, wide - np.maximum(*bounds)).max(initial=0)
        distance = 1 + beyond if beyond > 0 else 0
        if not cuts.counts_roundings:
            return Comparison(name, dtype, Difference(float(distance), 0.0), Difference(), limit)
    bits = DType.of(expected).bits
    levels = 2.0**bits if bits <= _FULL_RANGE_BITS else 1 + 2 * np.abs(expected.astype(np.float64)).max(initial=0)
    accepted = min(1.0, ROUNDING_ULPS * float(np.finfo(perturbation.dtype).eps) * levels) * steps.size
    error = max(float(distance), np.count_nonzero(steps) / max(1.0, accepted))
    return Comparison(name, dtype, Difference(error, 0.0), Difference(), limit)
