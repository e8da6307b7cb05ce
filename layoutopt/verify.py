"""Does a rewritten model compute the same? Both are run in stock onnxruntime on the same random inputs, at several sizes.

Compared are all outputs, and the values before a final Softmax or Sigmoid, which would hide an error. The measure is the
largest difference over the largest magnitude of the original's output, which does not blow up near zero:

    error = max |a - b| / max |a|    at most the tolerance of the output's element type

Both run as anybody would run them, with onnxruntime's optimisations. Where that does not do, it is asked what the model is. An
output may be as coarse as the coarsest type of fractions that it was computed through. Models that are quantised are compared
by what they say, without optimisations: onnxruntime computes DequantizeLinear -> op -> QuantizeLinear in integers here and in
fractions there, and a value that falls on the other side of a rounding is a step off.

The errors of deep networks in float16 can be larger than any tolerance. Then both are compared as wide numbers, with float32 in
the place of float16: these have to be equal as float32 is. And the rewritten one may not be much further from them than the
original is, both as they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, Literal, TypeAlias

import numpy as np

from layoutopt.formats import Format, pack, unpack
from layoutopt.ir.types import Array
from layoutopt.onnx_io import Nature, has_float16, nature, to_bytes_wide
from layoutopt.onnx_io.session import Session
from layoutopt.probes import Probe
from layoutopt.sizes import Range, checked
from layoutopt.trials import ENOUGH, draw, spelled, symbols_of, trials

Source: TypeAlias = bytes | str | PathLike[str]

TOLERANCES: dict[str, float] = {
    "float64": 1e-7,
    "float32": 1e-4,
    "float16": 1e-2,
    "bfloat16": 6e-2,
    "float8": 0.25,
    "int8": 0.02,
    "uint8": 0.02,
}
"""Largest accepted error per element type; other integers, booleans and strings have to be equal. Quantised types may differ
in the last step, where a sum in another order falls on the other side of a rounding."""


DEADLY = ("MatmulTransposeFusion",)
"""What onnxruntime (1.31) may not survive in a model with float16: a Transpose of the batch, and behind it a product whose
other operand has fewer axes. It is left out there, so that such a model can be verified; in what layoutopt writes anew
`dialects.product_ranks` sees to it."""

COARSER = 8
"""How much further than the original a rewritten model in 16 bits may be from what both say in exact numbers.

One model at onnxruntime's levels of optimisation is up to seven times as far as at another: bert_medium 0.0007 to 0.0051.
"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output on one set of inputs, of which size where there is a choice, and the original's largest magnitude."""

    name: str
    dtype: str
    error: float
    tolerance: float
    place: str = ""
    largest: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether the error is within the tolerance."""
        return self.error <= self.tolerance


@dataclass(frozen=True, slots=True)
class Verification:
    """What verification came to.

    Attributes:
        status: passed, failed, or "not verified" where a model could not be run.
        reason: why not, in one line; or what differs most.
        comparisons: every output on every set of inputs.
        sensitive: whether some output depended on the inputs by more than the tolerance; if not, passing says little.
        sizes: of the symbolic dimensions, those that were tried.
    """

    status: Literal["passed", "failed", "not verified"]
    reason: str = ""
    comparisons: tuple[Comparison, ...] = ()
    sensitive: bool = True
    sizes: tuple[tuple[tuple[str, int], ...], ...] = ()

    @property
    def worst(self) -> Comparison | None:
        """The comparison with the largest error for its tolerance."""
        return max(self.comparisons, key=_badness, default=None)


def verify_models(
    original: Source,
    rewritten: Source,
    *,
    pins: Mapping[str, Format] | None = None,
    probes: Sequence[Probe] = (),
    seed: int = 0,
    dims: Mapping[str, int | Range] | None = None,
    plain: bool = False,
    only_optimised: bool = False,
    computes_float16: bool | None = None,
) -> Verification:
    """Run both models on two sets of random inputs, and on one more for every further size, and compare.

    Args:
        original: the model to go by, as bytes or a path.
        rewritten: the model to judge.
        pins: the formats that the rewritten model has its inputs and outputs in, where not canonical.
        probes: outputs of both models that have other names, or another format in the rewritten one.
        seed: of the random inputs.
        dims: sizes of symbolic dimensions to try, or ranges of them, by name, or by `input[axis]` where they have none.
        plain: compare what the models say, without onnxruntime's optimisations.
        only_optimised: the rewritten model is for onnxruntime as anybody runs it, so what it does without optimisations is
            no excuse.
        computes_float16: whether the original has float16, if that is known; to find out means to read it once more.

    Raises:
        DimensionError: the original has no such symbolic dimension.
    """
    verdict = _verified(original, rewritten, pins, probes, seed, dims, plain, computes_float16=computes_float16)
    if verdict.status == "passed" or plain:
        return verdict
    kind = nature(original)
    passed = within(verdict, kind) if verdict.status == "failed" else None
    if passed is None and kind.is_narrow and not kind.rounds:
        passed = _as_wide_numbers(original, rewritten, verdict, pins, probes, seed, dims)
    if passed is not None:
        return passed
    if not kind.rounds or only_optimised:
        return verdict
    said = _verified(original, rewritten, pins, probes, seed, dims, True)
    said = within(said, kind) or said
    if said.status == "passed":
        return replace(said, reason=f"as the models say; with onnxruntime's optimisations {verdict.reason}")
    return verdict if said.status == "not verified" else said


def within(verdict: Verification, kind: Nature) -> Verification | None:
    """The verdict by the tolerances of what outputs are computed through; None if these are exceeded as well."""
    limits = {name: TOLERANCES[dtype] for name, dtype in kind.through.items()}
    comparisons = tuple(
        replace(each, tolerance=max(each.tolerance, limits.get(each.name, 0.0)))
        if each.dtype.startswith("float")
        else each
        for each in verdict.comparisons
    )
    if not comparisons or _first_failed(comparisons) is not None:
        return None
    return replace(verdict, status="passed", reason="", comparisons=comparisons)


def _as_wide_numbers(
    original: Source,
    rewritten: Source,
    verdict: Verification,
    pins: Mapping[str, Format] | None,
    probes: Sequence[Probe],
    seed: int,
    dims: Mapping[str, int | Range] | None,
) -> Verification | None:
    """What becomes of models in 16 bits that differ or cannot be run: passed if in float32 they do not differ; else None.

    Where there is nothing but float32 to go by, constants that were computed anew have been rounded to 16 bits.
    """
    exact, other = to_bytes_wide(original), to_bytes_wide(rewritten)
    if exact is None or other is None:
        return None
    same = _verified(exact, other, pins, probes, seed, dims, False)
    if not verdict.comparisons:
        same = within(same, nature(original)) or same
        return replace(same, reason=f"as wide numbers; {verdict.reason}") if same.status == "passed" else None
    if same.status != "passed":
        return None
    limits = {each.name: each.tolerance for each in verdict.comparisons}
    before = errors_of(_verified(exact, original, None, (), seed, dims, False, widens=True))
    after = errors_of(_verified(exact, rewritten, pins, probes, seed, dims, False, widens=True))
    if not all(name in after and after[name] <= max(limits[name], COARSER * before.get(name, 0.0)) for name in limits):
        return None
    words = f"{max(after.values()):.2g} from them, where the original is {max(before.values()):.2g}"
    return replace(same, reason=f"as wide numbers; as it is {verdict.reason}, and is up to {words}")


def errors_of(verdict: Verification) -> dict[str, float]:
    """The largest finite error of every output, by the largest magnitude that it has on any of the inputs.

    A sum may happen to cancel, so that its rounding errors are large for what it is; on other inputs it does not.
    """
    errors: dict[str, float] = {}
    largest: dict[str, float] = {}
    for each in verdict.comparisons:
        largest[each.name] = max(largest.get(each.name, 0.0), each.largest)
    for each in verdict.comparisons:
        is_measured = largest[each.name] > 0 and np.isfinite(each.error)
        error = each.error * each.largest / largest[each.name] if is_measured else each.error
        errors[each.name] = max(errors.get(each.name, 0.0), error)
    return {name: error for name, error in errors.items() if np.isfinite(error)}


def _verified(
    original: Source,
    rewritten: Source,
    pins: Mapping[str, Format] | None,
    probes: Sequence[Probe],
    seed: int,
    dims: Mapping[str, int | Range] | None,
    plain: bool,
    *,
    widens: bool = False,
    computes_float16: bool | None = None,
) -> Verification:
    """One comparison of both models; `widens` what they give to float32: of wide numbers an input may be handed out narrow."""
    names = {probe.original: probe.rewritten for probe in probes}
    formats = {**{probe.original: probe.format for probe in probes}, **(pins or {})}
    try:
        risky = not plain and (has_float16(original) if computes_float16 is None else computes_float16)
        without = DEADLY if risky else ()
        session = Session(original, optimised=not plain, without=without)
    except Exception as error:  # onnxruntime's exceptions have no common base
        return Verification("not verified", f"the original cannot be run: {_line(error)}")
    symbols = symbols_of(session)
    runs, refusals = run_original(session, trials(symbols, checked([each.name for each in symbols], dims or {})), seed)
    outputs = [output.name for output in session.get_outputs()]
    broken = next(filter(None, (_broken_promise(session, run.outputs) for run in runs)), "")
    del session  # before the second model is loaded
    if not runs:
        return Verification("not verified", f"the original cannot be run{refusals[0]}")
    try:
        session = Session(rewritten, optimised=not plain, without=without)
    except Exception as error:
        return Verification("failed", f"the original can be run, the rewritten model cannot: {_line(error)}")
    asked = [names.get(output, output) for output in outputs]
    gots = []
    for run in runs:
        feed = {name: packed(name, value, formats) for name, value in run.feed.items()}
        try:
            outputs_given = session.run(asked, feed)
            gots.append([_widened(each) for each in outputs_given] if widens else outputs_given)
        except Exception as error:
            reason = f"the original can be run, the rewritten model cannot{run.place}: {_line(error)}"
            return Verification("not verified", broken) if broken else Verification("failed", reason)
    del session
    wants = [[_widened(each) if widens else each for each in run.outputs] for run in runs]
    sizes = tuple(dict.fromkeys(tuple(run.sizes.items()) for run in runs)) if symbols else ()
    sensitive = not runs[0].feed or any(not compare("", a, b).passed for a, b in zip(*wants[:2], strict=True))
    comparisons = _compare_all(outputs, runs, wants, gots, formats)
    worst = _first_failed(comparisons)
    if worst is None:
        return Verification("passed", "", comparisons, sensitive, sizes)
    failed = Verification(
        "failed", f"{worst.name} differs by {worst.error:.2g}{worst.place}", comparisons, sensitive, sizes
    )
    if plain:
        return Verification("not verified", broken) if broken else failed
    # onnxruntime's own rewrites may be what differs: what the model says is what it computes without them.
    session = Session(original, optimised=False)
    unoptimised = [session.run(None, run.feed) for run in runs]
    second = _compare_all(outputs, runs, unoptimised, gots, formats)
    if _first_failed(second) is None:
        reason = (
            f"with its optimisations onnxruntime runs the original itself wrong, by {worst.error:.2g} in {worst.name}"
        )
        return Verification("passed", reason, second, sensitive, sizes)
    if broken:
        return Verification("not verified", broken)
    return failed


def _broken_promise(session: Session, outputs: Sequence[Any]) -> str:
    """Which output has another shape than the model declares, so that the inputs cannot have been valid.

    Integers may say extents: TopK of k from an input, declared as k = 3. A rewritten model relies on what is declared.
    """
    for declared, output in zip(session.get_outputs(), outputs, strict=True):
        if not isinstance(output, np.ndarray) or not any(isinstance(dim, int) for dim in declared.shape or ()):
            continue
        pairs = zip(declared.shape, output.shape, strict=False)
        if len(declared.shape) != output.ndim or any(isinstance(dim, int) and dim != size for dim, size in pairs):
            shapes = f"{list(output.shape)}, but declares {list(declared.shape)}"
            return f"on random inputs the original gives {declared.name} the shape {shapes}"
    return ""


@dataclass(frozen=True, slots=True)
class Run:
    """What the original made of some inputs."""

    sizes: Mapping[str, int]
    feed: Mapping[str, Array]
    outputs: Sequence[Any]

    @property
    def place(self) -> str:
        """At which sizes, in words."""
        return _place(self.sizes)


def _place(sizes: Mapping[str, int]) -> str:
    return f" at {spelled(sizes)}" if sizes else ""


def run_original(session: Any, wanted: Sequence[Mapping[str, int]], seed: int) -> tuple[list[Run], list[str]]:
    """Run it at as many sizes as are enough, twice at the first; and why not at others."""
    runs: list[Run] = []
    refusals: list[str] = []
    for sizes in wanted:
        if len({tuple(run.sizes.items()) for run in runs}) == ENOUGH:
            break
        try:
            for each in (seed, seed + 1) if not runs else (seed,):
                feed = draw(session, each, sizes)
                runs.append(Run(sizes, feed, session.run(None, feed)))
        except Exception as error:  # onnxruntime's exceptions have no common base
            runs = [run for run in runs if run.sizes is not sizes]
            refusals.append(f"{_place(sizes)}: {_line(error)}")
    return runs, refusals


def _compare_all(
    names: Sequence[str],
    runs: Sequence[Run],
    wants: Sequence[Sequence[Any]],
    gots: Sequence[Sequence[Any]],
    formats: Mapping[str, Format],
) -> tuple[Comparison, ...]:
    return tuple(
        replace(compare(name, want, unpacked(name, got, want, formats)), place=run.place)
        for run, wanted, got_all in zip(runs, wants, gots, strict=True)
        for name, want, got in zip(names, wanted, got_all, strict=True)
    )


def _widened(value: Any) -> Any:
    is_narrow = isinstance(value, np.ndarray) and str(value.dtype) in ("float16", "bfloat16")
    return value.astype(np.float32) if is_narrow else value


def _first_failed(comparisons: Sequence[Comparison]) -> Comparison | None:
    return next((each for each in comparisons if not each.passed), None)


def compare(name: str, want: Any, got: Any) -> Comparison:
    """One output against another; a sequence or map is judged by its worst element, anything but tensors has to be equal."""
    if isinstance(want, dict) and isinstance(got, dict) and list(want) == list(got):
        want, got = list(want.values()), list(got.values())
    if isinstance(want, list) and isinstance(got, list) and len(want) == len(got) > 0:
        return max((compare(name, a, b) for a, b in zip(want, got, strict=True)), key=_badness)
    if isinstance(want, float) and isinstance(got, float):
        want, got = np.asarray(want, np.float32), np.asarray(got, np.float32)
    if not isinstance(want, np.ndarray) or not isinstance(got, np.ndarray):
        return Comparison(name, "object", 0.0 if _same(want, got) else np.inf, 0.0)
    dtype = str(want.dtype)
    tolerance = next((limit for prefix, limit in TOLERANCES.items() if dtype.startswith(prefix)), 0.0)
    if want.shape != got.shape or want.dtype != got.dtype:
        return Comparison(name, dtype, np.inf, tolerance)
    if want.dtype == object or want.size == 0 or want.dtype == np.bool_:
        return Comparison(name, dtype, 0.0 if _same(want, got) else np.inf, tolerance)
    return Comparison(name, dtype, _error(want, got), tolerance, largest=_largest(want))


def _error(want: Array, got: Array) -> float:
    wide = np.complex128 if np.iscomplexobj(want) else np.float64
    a, b = want.astype(wide), got.astype(wide)
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    largest = float(np.abs(a[finite]).max())
    difference = float(np.abs(a[finite] - b[finite]).max())
    return difference / largest if largest else (0.0 if difference == 0 else float("inf"))


def _largest(want: Array) -> float:
    sizes = np.abs(want.astype(np.complex128 if np.iscomplexobj(want) else np.float64))
    return float(sizes[np.isfinite(sizes)].max(initial=0.0))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
    return type(a) is type(b) and not isinstance(a, np.ndarray) and bool(a == b)


def _badness(comparison: Comparison) -> float:
    return comparison.error / (comparison.tolerance or 1e-300)


def packed(name: str, value: Array, pins: Mapping[str, Format]) -> Array:
    """An input as the rewritten model takes it."""
    return pack(value, pins[name]) if name in pins else value


def unpacked(name: str, got: Any, want: Any, pins: Mapping[str, Format]) -> Any:
    """What the rewritten model gives for `want`, as the tensor that it is."""
    if name not in pins:
        return got
    physical = pins[name].physical_shape(want.shape)  # a dialect may declare the array under another shape
    return unpack(got.reshape(physical), pins[name], want.shape)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
