"""Comparison of the outputs of two models on the same test inputs, in stock onnxruntime.

A rewritten model adds numbers in another order, so its outputs differ by rounding. Perturbed runs of the original measure
how far rounding moves an output (`rounding_spread`). The rewritten model passes if

    difference <= 3 x rounding spread        of every output, for the largest element and for the root mean square

Both run with onnxruntime's default optimisations. Two kinds of models get a second comparison:

- Models with float16 or bfloat16, whose rounding spread hides faults, are also compared after an upcast to float32.
- Quantised models are compared without optimisations where onnxruntime's optimisation levels disagree: it computes
  DequantizeLinear -> op -> QuantizeLinear in integers at one level and in floating point at the other.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from layoutopt.dialects.onnxruntime.blocked_passes import NAME
from layoutopt.formats import Format
from layoutopt.ir.sizes import Dims
from layoutopt.runtime.custom_ops import Libraries, kernel_libraries
from layoutopt.runtime.errors import error_message, raise_if_out_of_memory
from layoutopt.runtime.session import Session
from layoutopt.sample_inputs import Given, SampleInputs, sample_inputs_for
from layoutopt.verification.difference import Difference, difference
from layoutopt.verification.numeric_profile import NumericProfile, numeric_profile
from layoutopt.verification.observed_values import ObservedValue
from layoutopt.verification.original_runs import RUN_ERRORS, Run, load_and_run, misdeclared_outputs
from layoutopt.verification.other_blocks import block_of, defined_block, with_definitions
from layoutopt.verification.perturbation import COHERENT, error_growths, perturb_narrow_weights, perturb_sums
from layoutopt.verification.request import Request
from layoutopt.verification.rounding_spread import RoundingSpread, measure_spread
from layoutopt.verification.runnable import Runnable, Source
from layoutopt.verification.upcast import upcast_to_float32
from layoutopt.verification.verdict import SPREAD_FACTOR, ULPS, Comparison, Verification

_OTHER_MACHINE = re.compile(re.escape(NAME.partition("model is ")[2]).replace(r"\{\}", r"\d+"))
"""Part of the error of a model that is packed for another machine; such a model cannot be verified on this one."""

SENSITIVITY = 100
"""An output depends on the inputs if two sets of them move it by more than this many units in the last place or spreads."""

FLOAT16_ERROR_RATIO = 8
"""Accepted error of a rewritten 16-bit model against float32, as a multiple of the original's own error.

The error of a model varies by up to a factor of 7 between onnxruntime's optimisation levels: bert_medium 0.0007 to 0.0051.
"""

_FLOAT16_ERROR = 1e-2  # an error of a few units in the last place of float16


def verify_models(
    original: Source | Runnable,
    rewritten: Source | Runnable,
    *,
    pins: Mapping[str, Format] | None = None,
    observed: Sequence[ObservedValue] = (),
    seed: int = 0,
    dims: Dims | None = None,
    inputs: SampleInputs | Given | None = None,
    only_optimised: bool = False,
    has_float16: bool | None = None,
    request: Request | None = None,
    custom_ops: Libraries = (),
) -> Verification:
    """Run both models on two sets of random inputs, and on one more for every further size, and compare their outputs.

    Args:
        original: the reference model: a file, or the bytes of one.
        rewritten: the model to check.
        pins: formats of the rewritten model's inputs and outputs, where these are not canonical.
        observed: further outputs of both models, which may have another name and format in the rewritten model.
        seed: of the random inputs.
        dims: sizes of symbolic dimensions, or ranges of them, by name, or by `input[axis]` for an unnamed dimension.
        inputs: arrays by input name, or several such sets; or a generator of inputs, which includes their sizes.
            By default the generator follows from the original's graph.
        only_optimised: skip the comparison without optimisations, for models written for onnxruntime's optimised form.
        has_float16: whether the original has float16; if None, the model is read once more to find out.
        request: pins, observed values, inputs, seed and time limits in one object, instead of the arguments above.
        custom_ops: the path of a shared library with kernels of custom operators for onnxruntime, or several.

    Raises:
        ExtensionError: a library of kernels cannot be loaded.
        DimensionError: the original has no such symbolic dimension.
        InputError: the original does not take the given arrays.
    """
    with kernel_libraries(custom_ops):
        if request is None:
            samples = inputs if isinstance(inputs, SampleInputs) else _inputs_for(original, dims, inputs)
            request = Request(pins or {}, observed, samples, seed)
        models = Runnable.of(original, has_float16), Runnable.of(rewritten, has_float16)
        if isinstance(original, Runnable) and isinstance(rewritten, Runnable):
            return _compare(models, request, only_optimised=only_optimised)
        blocks = tuple(block_of(each) for each in models)
        models = with_definitions(models[0]), with_definitions(models[1])
        try:
            verdict = _compare(models, request, only_optimised=only_optimised)
        except MemoryError as error:
            raise_if_out_of_memory(error, str(models[0].source) if isinstance(models[0].source, str) else "model")
            raise
        return replace(verdict, defined_block=max(map(defined_block, blocks)))


def _compare(models: tuple[Runnable, Runnable], request: Request, *, only_optimised: bool) -> Verification:
    """Compare two models; a second time if they use narrow types or integers and the first comparison is inconclusive."""
    verdict = _Comparison(*models, request).verdict()
    if verdict.is_conclusive:
        return verdict
    profile = numeric_profile(models[0].source) if models[0].folder is None else NumericProfile()
    if profile.is_narrow and not profile.is_quantised:
        return _compare_upcast(*models, request, verdict)
    if verdict.status != "failed" or not profile.is_quantised or only_optimised:
        return verdict
    unoptimised = _Comparison(*models, request, is_optimised=False).verdict()
    if unoptimised.status == "passed":
        return replace(unoptimised, reason=f"without onnxruntime's optimisations; with them {verdict.reason}")
    return verdict if unoptimised.status == "not verified" else unoptimised


def _inputs_for(model: Source | Runnable, dims: Dims | None, given: Given | None) -> SampleInputs:
    return sample_inputs_for(model.source if isinstance(model, Runnable) else model, dims, given)


def _compare_upcast(original: Runnable, rewritten: Runnable, request: Request, verdict: Verification) -> Verification:
    """The verdict on models with 16-bit types, after a comparison of both with these types upcast to float32.

    Where the upcast models differ, constants may have been recomputed and rounded to 16 bits: the spread is then measured
    with the original's weights moved by one unit in the last place of their own types.
    """
    reference, other = (
        upcast_to_float32(each.source) if each.folder is None else None for each in (original, rewritten)
    )
    if reference is None or other is None:
        return verdict
    upcast = _Comparison(Runnable.of(reference), Runnable.of(other), request)
    wide = upcast.verdict()
    if wide.status == "failed":
        wide = replace(upcast, narrow=original).verdict()
    if wide.status == "not verified" or (verdict.status == "passed" and wide.status == "passed"):
        return verdict
    if wide.status == "passed" and (not verdict.comparisons or _is_as_exact(original, rewritten, reference, request)):
        return replace(wide, reason=f"with float32 instead of 16-bit types; with 16-bit types {verdict.reason}")
    if verdict.status == "passed":
        return replace(wide, reason=f"with float32 instead of 16-bit types {wide.reason}")
    return verdict


def _is_as_exact(original: Runnable, rewritten: Runnable, reference: bytes, request: Request) -> bool:
    """Whether the 16-bit rewritten model is about as close to the float32 reference as the 16-bit original is."""
    base = replace(request, observed=(), pins={})
    wide = Runnable.of(reference)
    before = errors_of(_Comparison(wide, original, base, upcasts_outputs=True).verdict())
    after = errors_of(_Comparison(wide, rewritten, request, upcasts_outputs=True).verdict())
    return bool(after) and all(
        after[name] <= max(_FLOAT16_ERROR, FLOAT16_ERROR_RATIO * before.get(name, 0.0))
        for name in after
        if name in before
    )


def errors_of(verdict: Verification) -> dict[str, float]:
    """The largest finite error of every output, relative to the output's largest magnitude on any of the inputs.

    A sum may cancel on one set of inputs, so that its error is large relative to its magnitude there, but not on others.
    """
    errors: dict[str, float] = {}
    largest: dict[str, float] = {}
    for each in verdict.comparisons:
        largest[each.name] = max(largest.get(each.name, 0.0), each.magnitude)
    for each in verdict.comparisons:
        is_measured = largest[each.name] > 0 and np.isfinite(each.error)
        error = each.error * each.magnitude / largest[each.name] if is_measured else each.error
        errors[each.name] = max(errors.get(each.name, 0.0), error)
    return {name: error for name, error in errors.items() if np.isfinite(error)}


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One comparison of two models at one optimisation level.

    Attributes:
        original: the reference model.
        rewritten: the model to check.
        request: the conditions of the comparison.
        is_optimised: whether onnxruntime optimises both.
        upcasts_outputs: whether 16-bit outputs count as float32: the upcast of a model keeps the type of an input that is
            also an output.
        narrow: the 16-bit model that `original` is an upcast of; its weights are perturbed by one unit in the last place of
            their own types, twice the effect of rounding them.
    """

    original: Runnable
    rewritten: Runnable
    request: Request
    is_optimised: bool = True
    upcasts_outputs: bool = False
    narrow: Runnable | None = None

    def verdict(self) -> Verification:
        """Run both models, one after the other, and compare their outputs."""
        request = self.request
        loaded = load_and_run(
            self.original, request.inputs, request.seed, request.limits, is_optimised=self.is_optimised
        )
        if isinstance(loaded, str):
            return Verification("not verified", loaded)
        session, runs = loaded
        names = [each.name for each in session.get_outputs()]
        misdeclared: dict[str, str] = {}
        for run in runs:
            misdeclared |= misdeclared_outputs(session, run.outputs)
        spread = RoundingSpread.zero(names) if request.defers_spread else self._spread(session, runs, names)
        del session, loaded  # two models are never in memory at once
        actual_outputs = self._run_rewritten(runs, names)
        if isinstance(actual_outputs, str):
            if other := _OTHER_MACHINE.search(actual_outputs):
                return Verification("not verified", f"the rewritten model is {other.group()}")
            return _misdeclared(misdeclared) if misdeclared else Verification("failed", actual_outputs)
        verdict = self._compare(runs, actual_outputs, names, spread, misdeclared)
        if request.defers_spread and verdict.status == "failed":
            return replace(self, request=replace(request, defers_spread=False)).verdict()
        return _misdeclared(misdeclared) if misdeclared and verdict.status == "failed" else verdict

    def _spread(self, session: Session, runs: Sequence[Run], names: Sequence[str]) -> RoundingSpread:
        limits = self.request.limits
        return measure_spread(
            self.original,
            runs,
            names,
            lambda feed: session.run(None, feed, limits.run),
            limits,
            perturbed=[self._perturbed_weights]
            if self.narrow is not None
            else [partial(self._perturbed_sums, each) for each in (self.request.seed, COHERENT)],
            is_optimised=self.is_optimised,
            seed=self.request.seed,
        )

    def _perturbed_sums(self, seed: int) -> Runnable:
        """The original with perturbed sums."""
        message = self.original.message()
        return self.original.edited(perturb_sums(message, seed, error_growths(message, self.rewritten.message())))

    def _perturbed_weights(self) -> Runnable | None:
        """The upcast of the 16-bit original with perturbed weights."""
        assert self.narrow is not None
        message = self.narrow.message()
        perturb_narrow_weights(message, self.request.seed)
        wide = upcast_to_float32(self.narrow.edited(message).source)
        return None if wide is None else Runnable.of(wide, False)

    def _run_rewritten(self, runs: Sequence[Run], names: Sequence[str]) -> list[list[Any]] | str:
        """The rewritten model's outputs for every run, as tensors of the original; or why it cannot be run."""
        counterparts = self.request.counterparts
        requested = [counterparts.name(name) for name in names]
        at_sizes = ""
        try:
            session = self.rewritten.session(is_optimised=self.is_optimised)
            actual_outputs = []
            for run in runs:
                at_sizes = run.at_sizes
                outputs = zip(names, session.run(requested, counterparts.pack(run.feed)), run.outputs, strict=True)
                actual_outputs.append(
                    [counterparts.unpack(name, actual, expected) for name, actual, expected in outputs]
                )
        except RUN_ERRORS as error:
            raise_if_out_of_memory(error)
            return f"the original can be run, the rewritten model cannot{at_sizes}: {error_message(error)}"
        return actual_outputs

    def _compare(
        self,
        runs: Sequence[Run],
        actual_outputs: Sequence[Sequence[Any]],
        names: Sequence[str],
        spread: RoundingSpread,
        misdeclared: Collection[str],
    ) -> Verification:
        comparisons = []
        factor = SPREAD_FACTOR if self.narrow is None else 1
        for number, (run, outputs) in enumerate(zip(runs, actual_outputs, strict=True)):
            for index, name in enumerate(names):
                expected, actual = self._value(run.outputs[index]), self._value(outputs[index])
                found = difference(expected, actual)
                if name in misdeclared and _are_empty(expected, outputs[index]):
                    found = Difference()  # a loop of no iterations gives the shape that its body declares
                if name in spread.level_dependent and spread.unoptimised is not None:
                    other = difference(self._value(spread.unoptimised[number][index]), actual)
                    found = min(found, other, key=lambda each: each.largest)
                limit = spread.by_output[name]
                comparisons.append(
                    Comparison.against_spread(name, expected, found, limit, factor=factor, at_sizes=run.at_sizes)
                )
        sizes = tuple(dict.fromkeys(tuple(run.sizes.items()) for run in runs if run.sizes))
        return Verification.of(comparisons, depends_on_inputs(runs, names, spread), sizes)

    def _value(self, value: Any) -> Any:
        is_narrow = isinstance(value, np.ndarray) and str(value.dtype) in ("float16", "bfloat16")
        return value.astype(np.float32) if is_narrow and self.upcasts_outputs else value


def _are_empty(expected: Any, actual: Any) -> bool:
    """Whether both are arrays of one element type without an element."""
    is_empty = all(isinstance(each, np.ndarray) and each.size == 0 for each in (expected, actual))
    return is_empty and expected.dtype == actual.dtype


def _misdeclared(reasons: Mapping[str, str]) -> Verification:
    """The verdict on models that differ where the original's outputs contradict their declared shapes."""
    return Verification("not verified", next(iter(reasons.values())), misdeclared=tuple(reasons))


def depends_on_inputs(runs: Sequence[Run], names: Sequence[str], spread: RoundingSpread) -> bool:
    """Whether at least one output differs between two sets of inputs of one size."""
    if not runs[0].feed or len(runs) < 2:
        return True
    for name, one, other in zip(names, runs[0].outputs, runs[1].outputs, strict=True):
        comparison = Comparison.against_spread(name, one, difference(one, other), spread.by_output[name])
        if not comparison.difference.is_within(comparison.limit.scaled(SENSITIVITY / ULPS)):
            return True
    return False


__all__ = ["depends_on_inputs", "errors_of", "verify_models"]
