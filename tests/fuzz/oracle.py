"""Test oracle for random graphs: equal outputs, the same bytes when a graph is optimised again, no error but a PinError.

Some outputs cannot be compared: rounding determines the sign of a difference of equal numbers, or a quotient by it. To detect
them, the nodes run one by one with noise after each. A few runs suffice for most outputs; if an output differs nevertheless,
more runs test whether noise moves every differing element as far.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir

import layoutopt
from layoutopt.driver.job import Model
from layoutopt.driver.result import Result
from layoutopt.errors import LayoutoptError, PinError, VerificationError
from layoutopt.files import MARK
from layoutopt.formats import pack, unpack
from layoutopt.onnx_io import to_bytes
from layoutopt.runtime.session import inference_session
from layoutopt.testing.rules import compare

from .cases import Case, case_of
from .choices import Seeded, chance, pick
from .graph_builder import Array, Arrays
from .isolation import Verdict, in_separate_process

LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL")
_REMOVED = "is not a graph input, initializer, or output of a previous node"
"""The error after FastGeluFusion of onnxruntime 1.32 has removed a product x * 0.5 that another op reads, too. It does not fuse
a GELU that is an output of the graph, as the original's is. Without optimisations the model runs."""
_ASKS_FOR_SIZES = "give sizes with --dim"
_NOISES = 3
_MORE_NOISES = 64  # detects an element that one rounding in ten changes with probability 0.999
_STABLE = 0.2  # accepted effect of noise, as a fraction of the tolerance


def verdict(kind: str, detail: str = "") -> Verdict:
    """The verdict on a random graph: a failure unless the kind is one of the four that are named here."""
    return Verdict(kind, detail, is_failure=kind not in ("equal", "not compared", "refused", "runtime"))


def examine(seed: int) -> Verdict:
    """The verdict on the example of a seed."""
    case = case_of(seed)
    return Verdict("no graph") if case is None else evaluate(case)


def explain(seed: int, outcome: Verdict) -> Verdict:
    """The outcome with the component that ended the process."""
    case = case_of(seed)
    return outcome if case is None else explained(case)


def keep(seed: int, outcome: Verdict, folder: Path) -> None:
    """Write the model of an example, and its text and options."""
    case = case_of(seed)
    assert case is not None
    onnx.save(case.model, folder / "model.onnx")
    (folder / "model.txt").write_text(f"{outcome.kind}: {outcome.detail}\n\n{case!r}\n")


def evaluate(case: Case) -> Verdict:
    """The verdict on an example, which is optimised and run."""
    try:
        expected_outputs = [_run(case.model.SerializeToString(), feed, LEVELS[0]) for feed in case.feeds[:1]]
    except Exception as error:  # onnxruntime's exceptions have no common base
        return verdict("runtime", f"cannot run the original, but its nodes one by one: {error}")
    feeds = case.feeds[:1]
    for feed in case.feeds[1:]:  # the graph may not suit other extents
        try:
            expected_outputs.append(_run(case.model.SerializeToString(), feed, LEVELS[0]))
            feeds.append(feed)
        except Exception:
            continue
    if len(case.feeds) > 1:
        full = [index for index, feed in enumerate(feeds) if not _is_empty_somewhere(case, feed)]
        if not full:
            return verdict("not compared", "symbolic dimensions, and a tensor without elements at every size")
        feeds, expected_outputs = ([each[index] for index in full] for each in (feeds, expected_outputs))
    case = replace(case, feeds=feeds)
    stable = [_stable_outputs(case, feed, expected) for feed, expected in zip(feeds, expected_outputs, strict=True)]
    for dims in (case.dims, case.sizes):
        with tempfile.TemporaryDirectory(prefix="layoutopt-fuzz-") as folder:
            found = _evaluate(replace(case, dims=dims), expected_outputs, stable, Path(folder))
        if not (found.is_failure and _ASKS_FOR_SIZES in found.detail):
            break
    return found


def _evaluate(case: Case, expected_outputs: list[Arrays], stable: list[set[str]], folder: Path) -> Verdict:
    choices = Seeded(case.seed)
    source = folder / "model.onnx"
    onnx.save(case.model, source)
    forms: list[Model] = [case.model, case.model, source, onnx_ir.from_proto(case.model)]
    is_all_stable = all(found == set(expected) for found, expected in zip(stable, expected_outputs, strict=True))
    try:
        form, verify = pick(choices, forms), is_all_stable and chance(choices, 30)
        try:
            result = optimize(case, form, verify=verify)
        except VerificationError as error:
            if _REMOVED not in str(error):
                raise
            result = optimize(case, form)  # `_differs` finds out whether onnxruntime has removed the value
    except PinError as error:
        declared = {each.name for each in (*case.model.graph.input, *case.model.graph.output)}
        is_inner = any(name not in declared for name in case.pins)
        is_expected = is_inner or "QDQ group" in str(error) or _has_default_inputs(case.model)
        return verdict("refused" if is_expected else "pins", str(error))
    except LayoutoptError as error:
        is_expected = _ASKS_FOR_SIZES in str(error) and _has_default_inputs(case.model)
        return verdict("refused" if is_expected else type(error).__name__, str(error))
    except Exception as error:
        return verdict("crash", f"{type(error).__name__}: {error}")
    fault = _differs(case, result.proto.SerializeToString(), expected_outputs, stable) or _differs_again(
        case, result, choices, folder
    )
    if fault:
        return verdict(*fault)
    return verdict("equal" if any(stable) else "not compared")


def _has_default_inputs(model: onnx.ModelProto) -> bool:
    """Whether a caller may replace initializers, so that shapes computed from them are unknown."""
    return bool({each.name for each in model.graph.input} & {each.name for each in model.graph.initializer})


def explained(case: Case) -> Verdict:
    """The verdict on an example that ends its process, with the component that does."""

    def ends(model: bytes, feed: Arrays) -> bool:
        return in_separate_process(
            lambda: verdict("equal", str([_runs(model, feed, level) for level in LEVELS]))
        ).is_failure

    source = case.model.SerializeToString()
    feeds = [feed for feed in case.feeds if not ends(source, feed)]
    if not feeds:
        return verdict("runtime", "ends when it runs the original")
    if len(feeds) < len(case.feeds):  # the original crashes on some feeds
        case = replace(case, feeds=feeds)
        rest = in_separate_process(lambda: evaluate(case))
        return explained(case) if rest.is_crash else rest
    with tempfile.TemporaryDirectory(prefix="layoutopt-fuzz-") as folder:
        path = Path(folder) / "result.onnx"

        def rewrites() -> Verdict:
            optimize(case, case.model).save(path)
            return verdict("equal")

        ended = in_separate_process(rewrites)
        if ended.is_failure:
            sized = replace(case, dims=case.sizes)
            is_signal = ended.detail.startswith("SIG")  # a trial run of the original ended the process
            if is_signal and case.sizes and not in_separate_process(lambda: evaluate(sized)).is_failure:
                return verdict("runtime", "ends when it runs the original at other sizes")
            return verdict(ended.kind, f"{ended.detail} while it was optimised")
        if any(ends(path.read_bytes(), _packed(case, feed)) for feed in feeds):
            return verdict("killed", "ends when it runs the result")
    return verdict("killed", "but neither by the original, nor by the result, nor by `optimize`")


def optimize(case: Case, model: Model, verify: bool = False) -> Result:
    """The optimised example."""
    return layoutopt.optimize(
        model,
        case.target,
        dialect=case.dialect,
        mode=case.mode,
        pins=case.pins,
        dims=case.dims,
        verify=verify,
        measure=False,
        calibrate=False,
        allow_unverified=True,  # the fuzzer compares on its own inputs
    )


def _differs(
    case: Case, rewritten: bytes, expected_outputs: list[Arrays], stable: list[set[str]]
) -> tuple[str, str] | None:
    """The kind and details of a difference between the result and the original; None if they are equal."""
    for feed, expected, comparable in zip(case.feeds, expected_outputs, stable, strict=True):
        packed = _packed(case, feed)
        for level in LEVELS:
            try:
                actual = _run(rewritten, packed, level)
            except Exception as error:
                if level != LEVELS[0] and not _runs(case.model.SerializeToString(), feed, level):
                    continue
                is_removed = level != LEVELS[0] and _REMOVED in str(error)
                return "runtime" if is_removed else "cannot run", f"{level}: {error}"
            for name in expected:
                fault = _fault(case, name, expected[name], actual[name], name in comparable)
                if fault:  # onnxruntime may run the original differently, and wrongly, at its default level
                    again = _run(case.model.SerializeToString(), feed, LEVELS[1])
                    fault = _fault(case, name, again[name], actual[name], name in comparable) and fault
                if fault and not is_rounding(case, feed, name, expected[name], actual[name]):
                    return "mismatch", f"{level}: {name}: {fault}"
    return None


def _is_empty_somewhere(case: Case, feed: Arrays) -> bool:
    """Whether a value of the main graph is empty. Sizes that make tensors empty are not supported for symbolic dimensions."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    known = {each.name for each in model.graph.output}
    inner = [name for node in model.graph.node for name in node.output if name and name not in known]
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in inner)
    found = _run(model.SerializeToString(), feed, LEVELS[0])
    return any(isinstance(value, np.ndarray) and not value.size for value in found.values())


def _packed(case: Case, feed: Arrays) -> dict[str, Array]:
    """The feed of the result, with pinned inputs in their formats."""
    return {name: pack(value, case.pins[name]) if name in case.pins else value for name, value in feed.items()}


def _fault(case: Case, name: str, expected: Array, actual: Array, is_comparable: bool) -> str:
    if name in case.pins:
        physical = case.pins[name].physical_shape(expected.shape)
        if actual.shape != physical:
            return f"is {actual.shape}, but pinned to {case.pins[name]} of {expected.shape}, which is {physical}"
        actual = unpack(actual, case.pins[name], expected.shape)
    if (expected.shape, expected.dtype) != (actual.shape, actual.dtype):
        return f"is {actual.dtype}{actual.shape}, not {expected.dtype}{expected.shape}"
    comparison = compare(expected, actual)
    return f"differs by {comparison.error:.2g}" if is_comparable and not comparison.passed else ""


def _without_mark(path: Path) -> bytes:
    """The bytes of a model without its mark, which a result of a model in memory does not have."""
    found = onnx.load(path)
    kept = [each for each in found.metadata_props if each.key != MARK]
    del found.metadata_props[:]
    found.metadata_props.extend(kept)
    return found.SerializeToString(deterministic=True)


def _differs_again(case: Case, result: Result, choices: Seeded, folder: Path) -> tuple[str, str] | None:
    """The fault of a second optimisation with the same options, which must change nothing; None without a fault."""
    first, second = folder / "first.onnx", folder / "second.onnx"
    result.save(first)
    try:
        again = optimize(case, first if chance(choices, 50) else result.proto)
        again.save(second)
        once_more = optimize(case, case.model) if chance(choices, 15) else None
    except Exception as error:
        return "again", f"{type(error).__name__}: {error}"
    if again.report.changed:
        return "not idempotent", "optimised again it is rewritten again"
    if result.report.changed and _without_mark(first) != _without_mark(second):
        return "not idempotent", "optimised again it has other bytes"
    if once_more is not None and to_bytes(once_more.model) != to_bytes(result.model):
        return "not repeatable", "optimised twice it has other bytes"
    return None


def _run(model: bytes, feed: Arrays, level: str) -> dict[str, Array]:
    session = inference_session(model, is_optimised=level == LEVELS[1])
    names = [each.name for each in session.get_outputs()]
    # Copies, since BatchNormalization in training mode writes into its inputs.
    given = {name: np.array(value) for name, value in feed.items()}
    return dict(zip(names, session.run(names, given), strict=True))


def _runs(model: bytes, feed: Arrays, level: str) -> bool:
    try:
        _run(model, feed, level)
    except Exception:
        return False
    return True


def _stable_outputs(case: Case, feed: Arrays, expected: Arrays) -> set[str]:
    """The outputs that noise changes by less than the tolerance."""
    found = set(expected)
    for seed in range(_NOISES):
        values = _run_noisy(case, feed, seed)
        if values is None:
            return set()
        found = {name for name in found if name not in values or _is_stable(expected[name], values[name])}
    return found


def _run_noisy(case: Case, feed: Arrays, seed: int) -> Arrays | None:
    """The values with noise after each node; None if the nodes cannot run one by one."""
    generator = np.random.default_rng(seed)
    values: dict[str, Array] = {**case.constants, **feed}
    try:
        for step in case.steps:
            values |= {name: _noisy(value, generator) for name, value in step.run(values).items()}
    except Exception:  # a node has other extents than its session, or a loop another number of iterations
        return None
    return values


def is_rounding(case: Case, feed: Arrays, name: str, expected: Array, actual: Array) -> bool:
    """Whether noise moves every differing element of an output as far and in the same direction."""
    physical = case.pins[name].physical_shape(expected.shape) if name in case.pins else expected.shape
    if (
        (physical, expected.dtype) != (actual.shape, actual.dtype)
        or expected.dtype.kind not in "biuf"
        or not expected.size
    ):
        return False
    if name in case.pins:
        actual = unpack(actual, case.pins[name], expected.shape)
    wide = expected.astype(np.float64)
    moved = actual.astype(np.float64) - wide
    if not np.isfinite(moved).all():
        return False
    margin = compare(expected, actual).tolerance * np.abs(wide).max()
    differs = np.abs(moved) > margin
    for seed in range(_NOISES, _NOISES + _MORE_NOISES):
        noisy = _run_noisy(case, feed, seed)
        if noisy is None or name not in noisy or noisy[name].shape != expected.shape:
            return False
        differs &= ~((noisy[name].astype(np.float64) - wide) * np.sign(moved) >= np.abs(moved) - margin)
        if not differs.any():
            return True
    return False


def _is_stable(expected: Array, actual: Array) -> bool:
    comparison = compare(expected, actual)
    return comparison.error <= _STABLE * comparison.tolerance


def _noisy(value: Array, generator: np.random.Generator) -> Array:
    """A value with noise as large as the effect of other kernels."""
    if value.dtype.kind != "f" or not value.size:
        return value
    step = {"float16": 5e-4, "float32": 1e-6, "float64": 1e-9}.get(str(value.dtype), 1e-2)
    wide = value.astype(np.float64)
    largest = float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))
    noise = generator.uniform(-step, step, (2, *value.shape))
    return np.asarray(np.where(wide == 0, wide, wide * (1 + noise[0]) + 0.3 * largest * noise[1]), value.dtype)
