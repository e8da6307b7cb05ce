"""Comparison of two models as a whole: does the rewritten one compute what the original computes?

Both run in stock onnxruntime on the same test inputs. A rewritten model adds numbers up in another order, so its outputs
differ by rounding; by how much rounding may move them is measured on the original itself (`spread`). The rewritten model
passes if

    difference <= 3 x rounding spread        of every output, for the largest element and for the root mean square

Both run as anybody would run them, with onnxruntime's optimisations. Two kinds of models get a second comparison:

- Models with float16 or bfloat16, whose spread hides faults, are compared with float32 in the place of the narrow types, too.
- Quantised models are compared without optimisations where onnxruntime's levels disagree: it computes DequantizeLinear -> op ->
  QuantizeLinear in integers at one level and in floating point at the other.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from layoutopt.dialects.onnxruntime.passes.check_block_size import NAME
from layoutopt.formats import Format
from layoutopt.ir.sizes import Dims
from layoutopt.ir.types import Array
from layoutopt.runtime.custom_ops import Libraries, kernel_libraries
from layoutopt.runtime.errors import raise_if_out_of_memory
from layoutopt.runtime.session import Session
from layoutopt.sample_inputs import Given, SampleInputs, inputs_for
from layoutopt.verification.difference import Difference, difference
from layoutopt.verification.numeric_profile import Nature, nature
from layoutopt.verification.observed import Observed
from layoutopt.verification.runnable import Runnable, Source
from layoutopt.verification.runs import RUN_ERRORS, Budget, Run, load_and_run, misdeclared_outputs, one_line
from layoutopt.verification.spread import Spread, measure_spread, perturbed_copy
from layoutopt.verification.upcast import to_bytes_wide
from layoutopt.verification.verdict import FACTOR, UNITS, Comparison, Verification, concluded, judged

_OTHER_MACHINE = re.compile(re.escape(NAME.partition("model is ")[2]).replace(r"\{\}", r"\d+"))
"""A part of the error of a model that is packed for another machine: that it does not run on this one is no difference."""

SENSITIVE = 100
"""An output depends on the inputs if two of them make it differ by more than this many units in the last place or spreads."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a comparison is asked for.

    Attributes:
        pins: the formats that the rewritten model has its inputs and outputs in, where these are not canonical.
        observed: further outputs of both models, which may have another name and format in the rewritten one.
        inputs: how inputs are made, and at which sizes of symbolic dimensions.
        seed: of the random inputs.
        budget: the time that it may take.
        lazy: whether the rounding spread is measured only if the models differ at all.
    """

    pins: Mapping[str, Format] = field(default_factory=dict)
    observed: Sequence[Observed] = ()
    inputs: SampleInputs = field(default_factory=SampleInputs)
    seed: int = 0
    budget: Budget = field(default_factory=Budget)
    lazy: bool = False

    @property
    def tensors(self) -> dict[str, Observed]:
        """The inputs, outputs and inner values that have another name, format or rank in the rewritten model, by the
        original's name."""
        pinned = {name: Observed(name, name, format) for name, format in self.pins.items()}
        return {**{each.original: each for each in self.observed}, **pinned}


def verify_models(
    original: Source | Runnable,
    rewritten: Source | Runnable,
    *,
    pins: Mapping[str, Format] | None = None,
    observed: Sequence[Observed] = (),
    seed: int = 0,
    dims: Dims | None = None,
    inputs: SampleInputs | Given | None = None,
    plain: bool = False,
    only_optimised: bool = False,
    computes_float16: bool | None = None,
    request: Request | None = None,
    custom_ops: Libraries = (),
) -> Verification:
    """Run both models on two sets of random inputs, and on one more for every further size, and compare their outputs.

    Args:
        original: the model to go by: a file, or the bytes of one.
        rewritten: the model to judge.
        pins: the formats that the rewritten model has its inputs and outputs in, where not canonical.
        observed: further outputs of both models, which may have another name and format in the rewritten one.
        seed: of the random inputs.
        dims: sizes of symbolic dimensions to try, or ranges of them, by name, or by `input[axis]` where they have none.
        inputs: arrays by the name of the input to compare on, or several sets of them; or how inputs are made, sizes included.
            By default that follows from the original's graph.
        plain: compare without onnxruntime's optimisations only.
        only_optimised: the rewritten model is written for onnxruntime with its optimisations, so no comparison without them.
        computes_float16: whether the original has float16, if that is known; to find out means to read it once more.
        request: the same and more in one object, in the place of `pins`, `observed`, `seed` and `dims`.
        custom_ops: the path of a shared library with kernels of custom operators for onnxruntime, or several.

    Raises:
        ExtensionError: a library of kernels cannot be loaded.
        DimensionError: the original has no such symbolic dimension.
        InputError: the original does not take the given arrays.
    """
    with kernel_libraries(custom_ops):
        if request is None:
            made = inputs if isinstance(inputs, SampleInputs) else _inputs_for(original, dims, inputs)
            request = Request(pins or {}, observed, made, seed)
        models = Runnable.of(original, computes_float16), Runnable.of(rewritten, computes_float16)
        return _verdict(models, request, plain=plain, only_optimised=only_optimised)


def _verdict(models: tuple[Runnable, Runnable], request: Request, *, plain: bool, only_optimised: bool) -> Verification:
    """The verdict on two models, with a second comparison for the two kinds of models that get one."""
    verdict = _Comparison(*models, request, optimised=not plain).verdict()
    if verdict.is_conclusive or plain:
        return verdict
    kind = nature(models[0].source) if models[0].folder is None else Nature()
    if kind.is_narrow and not kind.rounds:
        return _as_wide_numbers(*models, request, verdict)
    if verdict.status != "failed" or not kind.rounds or only_optimised:
        return verdict
    declared = _Comparison(*models, request, optimised=False).verdict()
    if declared.status == "passed":
        return replace(declared, reason=f"without onnxruntime's optimisations; with them {verdict.reason}")
    return verdict if declared.status == "not verified" else declared


def _inputs_for(model: Source | Runnable, dims: Dims | None, given: Given | None) -> SampleInputs:
    return inputs_for(model.source if isinstance(model, Runnable) else model, dims, given)


def _as_wide_numbers(original: Runnable, rewritten: Runnable, request: Request, verdict: Verification) -> Verification:
    """The verdict on models with narrow types, after a look at both with float32 in the place of these.

    Where they differ then, constants may have been computed anew and rounded to a narrow type: the spread is measured with the
    original's weights moved by a unit of their own types.
    """
    exact, other = (to_bytes_wide(each.source) if each.folder is None else None for each in (original, rewritten))
    if exact is None or other is None:
        return verdict
    wide = _Comparison(Runnable.of(exact), Runnable.of(other), request).verdict()
    if wide.status == "failed":
        wide = _Comparison(Runnable.of(exact), Runnable.of(other), request, narrow=original).verdict()
    if wide.status == "not verified" or (verdict.status == "passed" and wide.status == "passed"):
        return verdict
    if wide.status == "passed" and (not verdict.comparisons or _is_as_exact(original, rewritten, exact, request)):
        return replace(wide, reason=f"with float32 in the place of 16-bit types; as it is {verdict.reason}")
    if verdict.status == "passed":
        return replace(wide, reason=f"with float32 in the place of 16-bit types {wide.reason}")
    return verdict


COARSER = 8
"""How many times further than the original a rewritten model in 16 bits may be from what both compute with float32.

One model at onnxruntime's levels of optimisation is up to seven times as far as at another: bert_medium 0.0007 to 0.0051.
"""


def _is_as_exact(original: Runnable, rewritten: Runnable, exact: bytes, request: Request) -> bool:
    """Whether the rewritten model, as it is, is about as near to the original in float32 as the original itself."""
    base = replace(request, observed=(), pins={})
    wide = Runnable.of(exact)
    before = errors_of(_Comparison(wide, original, base, widens=True).verdict())
    after = errors_of(_Comparison(wide, rewritten, request, widens=True).verdict())
    return bool(after) and all(
        after[name] <= max(_STEP, COARSER * before.get(name, 0.0)) for name in after if name in before
    )


_STEP = 1e-2  # of float16: what a few units in its last place come to


def errors_of(verdict: Verification) -> dict[str, float]:
    """The largest finite error of every output, by the largest magnitude that it has on any of the inputs.

    A sum may happen to cancel, so that its rounding errors are large for what it is; on other inputs it does not.
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


@dataclass(slots=True)
class _Comparison:
    """One comparison of two models at one level of optimisation.

    Attributes:
        original: the model to go by.
        rewritten: the model to judge.
        request: what is asked for.
        optimised: whether onnxruntime optimises both.
        widens: whether outputs of 16 bits count as float32: an input that is handed out keeps its type.
        narrow: the model that `original` is a wide copy of; its weights are perturbed by a unit of their own types, twice what
            rounding them does.
    """

    original: Runnable
    rewritten: Runnable
    request: Request
    optimised: bool = True
    widens: bool = False
    narrow: Runnable | None = None

    def verdict(self) -> Verification:
        """Run both, one after the other, and compare."""
        loaded = load_and_run(
            self.original, self.request.inputs, self.request.seed, self.request.budget, optimised=self.optimised
        )
        if isinstance(loaded, str):
            return Verification("not verified", loaded)
        session, runs = loaded
        names = [each.name for each in session.get_outputs()]
        misdeclared: dict[str, str] = {}
        for run in runs:
            misdeclared |= misdeclared_outputs(session, run.outputs)
        unmoved = Spread({name: Difference() for name in names}, None, frozenset())
        spread = unmoved if self.request.lazy else self._spread(session, runs, names)
        del session, loaded  # two models are never in memory at once
        gots = self._run_rewritten(runs, names)
        if isinstance(gots, str):
            if other := _OTHER_MACHINE.search(gots):
                return Verification("not verified", f"the rewritten model is {other.group()}")
            return _excused(misdeclared) if misdeclared else Verification("failed", gots)
        verdict = self._judged(runs, gots, names, spread, misdeclared)
        if self.request.lazy and verdict.status == "failed":
            again = replace(self.request, lazy=False)
            return replace(self, request=again).verdict()
        return _excused(misdeclared) if misdeclared and verdict.status == "failed" else verdict

    def _spread(self, session: Session, runs: Sequence[Run], names: Sequence[str]) -> Spread:
        budget = self.request.budget
        return measure_spread(
            self.original,
            runs,
            names,
            lambda feed: session.run(None, feed, budget.run),
            budget,
            perturbed=self._perturbed,
            optimised=self.optimised,
            seed=self.request.seed,
        )

    def _perturbed(self) -> Runnable | None:
        """The original with perturbed weights."""
        if self.narrow is None:
            return perturbed_copy(self.original, self.request.seed)
        copy = perturbed_copy(self.narrow, self.request.seed, units=1)
        if copy is None:
            return None
        wide = to_bytes_wide(copy.source)
        return None if wide is None else Runnable.of(wide, False)

    def _run_rewritten(self, runs: Sequence[Run], names: Sequence[str]) -> list[list[Any]] | str:
        """The rewritten model's outputs for every run, as tensors of the original; or why it cannot be run."""
        tensors = self.request.tensors
        place = ""
        try:
            session = self.rewritten.session(optimised=self.optimised)
            gots = []
            for run in runs:
                place = run.place
                feed = {name: packed(value, tensors.get(name)) for name, value in run.feed.items()}
                asked = [tensors[name].rewritten if name in tensors else name for name in names]
                pairs = zip(names, session.run(asked, feed), run.outputs, strict=True)
                gots.append([unpacked(got, want, tensors.get(name)) for name, got, want in pairs])
        except RUN_ERRORS as error:
            raise_if_out_of_memory(error)
            return f"the original can be run, the rewritten model cannot{place}: {one_line(error)}"
        return gots

    def _judged(
        self,
        runs: Sequence[Run],
        gots: Sequence[Sequence[Any]],
        names: Sequence[str],
        spread: Spread,
        misdeclared: Collection[str],
    ) -> Verification:
        comparisons = []
        for number, (run, outputs) in enumerate(zip(runs, gots, strict=True)):
            for index, name in enumerate(names):
                want = self._value(run.outputs[index])
                found = difference(want, self._value(outputs[index]))
                if name in misdeclared and _are_empty(want, outputs[index]):
                    found = Difference()  # where a loop runs no iteration, the shape depends on what its body declares
                if name in spread.levels_differ and spread.other_level is not None:
                    other = difference(self._value(spread.other_level[number][index]), self._value(outputs[index]))
                    found = min(found, other, key=lambda each: each.largest)
                one = judged(name, dtype_of(want), found, spread.of[name], factor=FACTOR if self.narrow is None else 1)
                comparisons.append(replace(one, place=run.place, magnitude=magnitude(want)))
        sizes = tuple(dict.fromkeys(tuple(run.sizes.items()) for run in runs if run.sizes))
        return concluded(comparisons, _is_sensitive(runs, names, spread), sizes)

    def _value(self, value: Any) -> Any:
        is_narrow = isinstance(value, np.ndarray) and str(value.dtype) in ("float16", "bfloat16")
        return value.astype(np.float32) if is_narrow and self.widens else value


def _are_empty(want: Any, got: Any) -> bool:
    """Whether both are arrays of one element type without an element."""
    are_empty = all(isinstance(each, np.ndarray) and each.size == 0 for each in (want, got))
    return are_empty and want.dtype == got.dtype


def _excused(misdeclared: Mapping[str, str]) -> Verification:
    """The verdict on a model that differs from an original whose outputs are not what it declares."""
    return Verification("not verified", next(iter(misdeclared.values())), misdeclared=tuple(misdeclared))


def _is_sensitive(runs: Sequence[Run], names: Sequence[str], spread: Spread) -> bool:
    """Whether some output depends on the inputs, as far as two sets of inputs of one size tell."""
    if not runs[0].feed or len(runs) < 2:
        return True
    for name, one, other in zip(names, runs[0].outputs, runs[1].outputs, strict=True):
        limit = judged(name, dtype_of(one), Difference(), spread.of[name]).limit.scaled(SENSITIVE / UNITS)
        if not difference(one, other).is_within(limit):
            return True
    return False


def dtype_of(value: Any) -> str:
    """The element type of an output; of a sequence or map that of its first element."""
    while isinstance(value, list | dict) and value:
        value = next(iter(value.values() if isinstance(value, dict) else value))
    return str(value.dtype) if isinstance(value, np.ndarray) else "float32" if isinstance(value, float) else "object"


def magnitude(value: Any) -> float:
    """The largest finite magnitude in an output that is a tensor of numbers."""
    if not isinstance(value, np.ndarray) or value.dtype.kind in "OSU":
        return 0.0
    sizes = np.abs(value.astype(np.complex128 if np.iscomplexobj(value) else np.float64))
    return float(sizes[np.isfinite(sizes)].max(initial=0.0))


def packed(tensor: Array, observed: Observed | None) -> Array:
    """A tensor of the original as the rewritten model takes it."""
    return tensor if observed is None else observed.packed(tensor)


def unpacked(array: Any, want: Any, observed: Observed | None) -> Any:
    """What the rewritten model gives for `want`, as the tensor that it is."""
    return array if observed is None else observed.unpacked(array, want.shape)


__all__ = ["Comparison", "Request", "Verification", "errors_of", "packed", "unpacked", "verify_models"]
