"""Structural mutants of real networks.

An example is a model of `base_models` with up to three mutations of its structure, in a file. The reference is stock ONNX
Runtime with default options: if it runs the mutant, layoutopt must return an equivalent or unchanged model; if it does not,
layoutopt must raise a one-line error or return the model unchanged. Outcomes that are failures:

    traceback    an error that is not layoutopt's own
    lost         the source, its data or another file has changed, or there is a file besides the output
    wrong        the result differs from the mutant by more than rounding; not if the mutant runs at the default level of
                 optimisation only, where ONNX Runtime has fused ops by wrong declared shapes
    refused      layoutopt refuses what ONNX Runtime runs, at its default level of optimisation and without optimisation
    not one line the error has a line break
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto
from onnx.external_data_helper import set_external_data

import layoutopt
from layoutopt.errors import LayoutoptError
from layoutopt.runtime.session import Session
from layoutopt.sample_inputs import SampleInputs
from layoutopt.verification.difference import leaves

from . import base_models
from .choices import Choices, Seeded, chance, pick
from .isolation import Verdict, in_separate_process
from .mutations import mutate

_TARGETS = ("gpu-hopper", "ascend-910b", "cpu")
_DIALECTS = ("ops", "functions", "ascend", "standard")
_ERROR = 1e-4  # relative to the largest magnitude of an output; more if rounding moves it further
_COARSE = 1e-2  # for 16 bits
_ROUNDINGS = 4  # perturbed runs of the mutant
_SPREAD_FACTOR = 16  # accepted multiple of the rounding spread


@dataclass(frozen=True)
class Example:
    """A mutant, and how it is optimised."""

    model: bytes
    weights: bytes  # of its file of external data; empty if it has none
    mutations: tuple[str, ...]
    options: Mapping[str, Any]
    external: str | None  # the file of external data of the result


def example(seed: int) -> Example:
    """The example of a seed."""
    choices = Seeded(f"structure {seed}")
    model = base_models.base_model(choices)
    weights = _externalise(choices, model) if chance(choices, 15) else b""
    mutations = mutate(choices, model)
    target = pick(choices, _TARGETS)
    options: dict[str, Any] = {"target": target, "verify": chance(choices, 25)}
    if target != "cpu" and chance(choices, 50):
        options["dialect"] = pick(choices, _DIALECTS)
    if chance(choices, 10):
        options["mode"] = "training"
    external = "out.data" if chance(choices, 15) else None
    return Example(model.SerializeToString(), weights, tuple(mutations), options, external)


def examine(seed: int) -> Verdict:
    """The outcome of the example of a seed."""
    try:
        given = example(seed)
    except ValueError:  # invalid text, or a message that is too large
        return Verdict("no mutant")
    with tempfile.TemporaryDirectory(prefix="layoutopt-fuzz-") as folder:
        return evaluate(given, Path(folder))


def evaluate(given: Example, folder: Path) -> Verdict:
    """Optimise a mutant and compare."""
    source, out = folder / "m.onnx", folder / "out.onnx"
    source.write_bytes(given.model)
    (folder / "weights").write_bytes(given.weights)
    before = _listing(folder)
    session, runs = _runs(source)
    context = f"{', '.join(given.mutations)}; {dict(given.options)}"
    try:
        result = layoutopt.optimize(source, **given.options, measure=False)
        result.save(out, external_data=given.external)
    except LayoutoptError as error:
        text = f"{type(error).__name__}: {error}"
        if "\n" in str(error):
            return Verdict("not one line", f"{context}: {text}", is_failure=True)
        if runs and not _runs(source, is_optimised=False)[1]:
            return Verdict("refused, runs only when fused")
        if runs:
            return Verdict("refused", f"{context}: {text}", is_failure=True)
        fault = _lost(folder, before, set())
        return Verdict("lost", f"{context}: {fault}", is_failure=True) if fault else Verdict("refused, does not run")
    except MemoryError as error:
        return Verdict("out of memory", f"{context}: {error}", is_failure=bool(runs))
    except Exception as error:
        return Verdict("traceback", f"{context}: {type(error).__name__}: {error}", is_failure=True)
    fault = _lost(folder, before, {"out.onnx", "out.data"})
    if fault:
        return Verdict("lost", f"{context}: {fault}", is_failure=True)
    changed = "rewritten" if result.report.changed else "unchanged"
    if not result.report.changed and given.external is None and not given.weights:
        if out.read_bytes() != given.model:
            return Verdict("wrong", f"{context}: unchanged, but with other bytes", is_failure=True)
        return Verdict(f"unchanged{'' if runs else ', does not run'}")
    if not runs:
        return Verdict(f"{changed}, does not run")
    assert session is not None
    fault = _difference(source, session, out, runs)
    if fault and not _runs(source, is_optimised=False)[1]:
        return Verdict(f"{changed}, runs only when fused")
    if fault:
        return Verdict("wrong", f"{context}: {changed}: {fault}", is_failure=True)
    repaired = any(note.source == "read" for note in result.report.notes)
    return Verdict(f"{changed}, equal{', repaired' if repaired else ''}")


Feed = Mapping[str, Any]


def _runs(path: Path, *, is_optimised: bool = True) -> tuple[Session | None, list[tuple[Feed, list[Any]]]]:
    """The mutant in stock ONNX Runtime and its outputs for two sets of random inputs; empty if it does not run."""
    try:
        session = Session(path, threads=1, is_optimised=is_optimised)
    except Exception:  # onnxruntime's exceptions have no common base
        return None, []
    symbols = {
        dim if isinstance(dim, str) and dim else f"{each.name}[{axis}]"
        for each in session.get_inputs()
        for axis, dim in enumerate(each.shape or ())
        if not isinstance(dim, int)
    }
    for size in (2, 8, 16) if symbols else (2,):
        try:
            feeds = [SampleInputs().draw(session, seed, dict.fromkeys(symbols, size)) for seed in (0, 1)]
            return session, [(feed, session.run(None, feed)) for feed in feeds]
        except Exception:
            continue
    return None, []


def _lost(folder: Path, before: Mapping[str, bytes], allowed: set[str]) -> str:
    after = _listing(folder)
    changed = [name for name, content in before.items() if after.get(name) != content]
    more = sorted(set(after) - set(before) - allowed)
    return f"changed {changed}, appeared {more}" if changed or more else ""


def _listing(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _difference(source: Path, original: Session, out: Path, runs: Sequence[tuple[Feed, list[Any]]]) -> str:
    """The difference of the result from the mutant as text; empty if there is none."""
    try:
        rewritten = Session(out, threads=1)
    except Exception as error:
        return f"the result does not load: {error}"
    wanted = [(each.name, each.type) for each in original.get_outputs()]
    given = [(each.name, each.type) for each in rewritten.get_outputs()]
    if wanted != given:
        return f"the outputs are {given}, not {wanted}"
    names = [(each.name, each.type) for each in original.get_inputs()]
    if names != [(each.name, each.type) for each in rewritten.get_inputs()]:
        return f"the inputs are {[each.name for each in rewritten.get_inputs()]}, not {names}"
    for feed, expected in runs:
        try:
            found = rewritten.run(None, feed)
        except Exception as error:
            return f"the result does not run: {error}"
        spread = None
        for place, (name, _) in enumerate(wanted):
            moved = _distance(expected[place], found[place])
            if moved > _limit(expected[place]):
                spread = spread or _spread(source, feed, expected)
                if moved > _SPREAD_FACTOR * spread[place]:
                    return f"{name}: differs by {moved:.2g}, rounding moves it by {spread[place]:.2g}"
    return ""


def _limit(expected: Any) -> float:
    """The accepted distance whatever rounding does."""
    kinds = {array.dtype for array in leaves(expected) if isinstance(array, np.ndarray)}
    if any(kind.kind != "f" for kind in kinds):
        return 0.0
    return _COARSE if any(kind.itemsize < 4 for kind in kinds) else _ERROR


def _distance(expected: Any, actual: Any) -> float:
    """The largest finite difference of two outputs, relative to the largest magnitude; infinite for others than numbers."""
    pairs = leaves(expected), leaves(actual)
    if type(expected) is not type(actual) or len(pairs[0]) != len(pairs[1]):
        return float("inf")
    return max((_distance_of_leaves(a, b) for a, b in zip(*pairs, strict=True)), default=0.0)


def _distance_of_leaves(expected: Any, actual: Any) -> float:
    if not isinstance(expected, np.ndarray) or not isinstance(actual, np.ndarray):
        return 0.0 if expected is actual or expected == actual else float("inf")
    if not expected.size and not actual.size:  # a Loop without iterations has the declared shape
        return 0.0
    if (expected.shape, expected.dtype) != (actual.shape, actual.dtype):
        return float("inf")
    if expected.dtype.kind not in "biuf":
        return 0.0 if np.array_equal(expected, actual) else float("inf")
    wide, other = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(wide) & np.isfinite(other)
    moved = float(np.abs(wide[finite] - other[finite]).max(initial=0.0))
    return moved / (float(np.abs(wide[finite]).max(initial=0.0)) or 1.0)


def _spread(source: Path, feed: Feed, expected: Sequence[Any]) -> list[float]:
    """The rounding spread of the outputs: without optimisations, and with inputs perturbed by a few units in the last place."""
    found = [0.0] * len(expected)
    plain = Session(source, is_optimised=False, threads=1)
    attempts = [(plain, feed)]
    for seed in range(_ROUNDINGS):
        generator = np.random.default_rng(seed)
        moved = {
            name: (array * (1 + generator.choice([-2e-7, 0, 2e-7], array.shape))).astype(array.dtype)
            if isinstance(array, np.ndarray) and array.dtype.kind == "f"
            else array
            for name, array in feed.items()
        }
        attempts.append((plain if seed % 2 else Session(source, threads=1), moved))
    for session, moved in attempts:
        try:
            outputs = session.run(None, moved)
        except Exception:
            continue
        found = [max(known, _distance(a, b)) for known, a, b in zip(found, expected, outputs, strict=True)]
    return found


def _externalise(choices: Choices, model: onnx.ModelProto) -> bytes:
    """Move some weights to external data, and return the content of its file."""
    content = b""
    for tensor in model.graph.initializer:
        size = len(tensor.raw_data)
        if size and tensor.data_type != TensorProto.STRING and chance(choices, 60):
            set_external_data(tensor, "weights", len(content), size)
            content += tensor.raw_data
            tensor.ClearField("raw_data")
    return content


def explain(seed: int, outcome: Verdict) -> Verdict:
    """The outcome, or that the mutant itself crashes ONNX Runtime."""

    def original() -> Verdict:
        given = example(seed)
        with tempfile.TemporaryDirectory(prefix="layoutopt-fuzz-") as folder:
            path = Path(folder) / "m.onnx"
            path.write_bytes(given.model)
            (Path(folder) / "weights").write_bytes(given.weights)
            return Verdict("runs" if _runs(path)[1] else "does not run")

    context = in_separate_process(original)
    return Verdict("ends ONNX Runtime") if context.is_crash else outcome


def keep(seed: int, outcome: Verdict, folder: Path) -> None:
    """Save a mutant with its files."""
    given = example(seed)
    (folder / "m.onnx").write_bytes(given.model)
    (folder / "weights").write_bytes(given.weights)
    (folder / "options.txt").write_text(f"{dict(given.options)}\n")
