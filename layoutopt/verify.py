"""Does a rewritten model compute the same? Both are run in stock onnxruntime on the same random inputs.

Compared are all outputs, and the values before a final Softmax or Sigmoid, which would hide an error. The measure is the
largest difference over the largest magnitude of the original's output, which does not blow up near zero:

    error = max |a - b| / max |a|    at most the tolerance of the output's element type
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal, TypeAlias

import numpy as np
import onnxruntime

from layoutopt.errors import LayoutoptError
from layoutopt.formats import Format, pack, unpack
from layoutopt.ir.types import Array
from layoutopt.probes import Probe

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


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output on one set of inputs."""

    name: str
    dtype: str
    error: float
    tolerance: float

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
    """

    status: Literal["passed", "failed", "not verified"]
    reason: str = ""
    comparisons: tuple[Comparison, ...] = ()
    sensitive: bool = True

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
) -> Verification:
    """Run both models on two sets of random inputs and compare.

    Args:
        original: the model to go by, as bytes or a path.
        rewritten: the model to judge.
        pins: the formats that the rewritten model has its inputs and outputs in, where not canonical.
        probes: outputs of both models that have other names, or another format in the rewritten one.
        seed: of the random inputs.
    """
    names = {probe.original: probe.rewritten for probe in probes}
    formats = {**{probe.original: probe.format for probe in probes}, **(pins or {})}
    try:
        session = _session(original)
        feeds = [draw(session, seed), draw(session, seed + 1)]
        outputs = [output.name for output in session.get_outputs()]
        wants = [session.run(None, feed) for feed in feeds]
    except Exception as error:  # onnxruntime's exceptions have no common base
        return Verification("not verified", f"the original cannot be run: {_line(error)}")
    del session  # before the second model is loaded
    try:
        session = _session(rewritten)
        asked = [names.get(output, output) for output in outputs]
        packed = [{name: _packed(name, value, formats) for name, value in feed.items()} for feed in feeds]
        gots = [session.run(asked, feed) for feed in packed]
    except Exception as error:
        return Verification("failed", f"the original can be run, the rewritten model cannot: {_line(error)}")
    del session
    sensitive = not feeds[0] or any(not compare("", a, b).passed for a, b in zip(*wants, strict=True))
    comparisons = _compare_all(outputs, wants, gots, formats)
    worst = _first_failed(comparisons)
    if worst is None:
        return Verification("passed", "", comparisons, sensitive)
    # onnxruntime's own rewrites may be what differs: what the model says is what it computes without them.
    plain = [_session(original, optimised=False).run(None, feed) for feed in feeds]
    second = _compare_all(outputs, plain, gots, formats)
    if _first_failed(second) is None:
        reason = (
            f"with its optimisations onnxruntime runs the original itself wrong, by {worst.error:.2g} in {worst.name}"
        )
        return Verification("passed", reason, second, sensitive)
    return Verification("failed", f"{worst.name} differs by {worst.error:.2g}", comparisons, sensitive)


def _compare_all(
    names: Sequence[str], wants: Sequence[Sequence[Any]], gots: Sequence[Sequence[Any]], formats: Mapping[str, Format]
) -> tuple[Comparison, ...]:
    return tuple(
        compare(name, want, _unpacked(name, got, want, formats))
        for wanted, got_all in zip(wants, gots, strict=True)
        for name, want, got in zip(names, wanted, got_all, strict=True)
    )


def _first_failed(comparisons: Sequence[Comparison]) -> Comparison | None:
    return next((each for each in comparisons if not each.passed), None)


def draw(session: Any, seed: int) -> dict[str, Array]:
    """Random inputs: normal for fractions, small indices for integers, coin tosses for booleans. Symbolic extents are 2."""
    generator = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    extents: dict[str, int] = {}
    for each in session.get_inputs():
        shape = [_extent(dim, extents) for dim in each.shape]
        feeds[each.name] = _random(each.type, shape, generator, each.name)
    return feeds


def _extent(dim: Any, extents: dict[str, int]) -> int:
    return dim if isinstance(dim, int) else extents.setdefault(str(dim), 2)


def _random(type: str, shape: Sequence[int], generator: np.random.Generator, name: str) -> Array:
    kind = type.removeprefix("tensor(").removesuffix(")")
    if kind in ("float", "double", "float16"):
        return generator.normal(size=shape).astype({"float": np.float32, "double": np.float64}.get(kind, np.float16))
    if kind == "bool":
        return generator.integers(0, 2, shape).astype(np.bool_)
    if kind in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        low, high = {"int8": (-100, 100), "uint8": (0, 200)}.get(kind, (0, 2))
        return generator.integers(low, high, shape).astype(kind)
    if kind == "string":
        return np.full(shape, "a", dtype=object)
    raise LayoutoptError(f"no random values for the type {type}", where=name)


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
    return Comparison(name, dtype, _error(want, got), tolerance)


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


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
    return type(a) is type(b) and not isinstance(a, np.ndarray) and bool(a == b)


def _badness(comparison: Comparison) -> float:
    return comparison.error / (comparison.tolerance or 1e-300)


def _packed(name: str, value: Array, pins: Mapping[str, Format]) -> Array:
    return pack(value, pins[name]) if name in pins else value


def _unpacked(name: str, got: Any, want: Any, pins: Mapping[str, Format]) -> Any:
    if name not in pins:
        return got
    physical = pins[name].physical_shape(want.shape)  # a dialect may declare the array under another shape
    return unpack(got.reshape(physical), pins[name], want.shape)


def _session(model: Source, *, optimised: bool = True) -> Any:
    options = onnxruntime.SessionOptions()
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    source = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
