"""Equivalence gate: the comparison that a rewritten model must pass before it is returned, and that `verify A B` makes.

1. Both models are compared as a whole. The operands of a final Softmax or Sigmoid, which hides differences, are outputs too.
2. They are compared segment by segment where the first comparison is inconclusive: the difference is larger than the rounding
   spread, the spread is large enough to hide faults, or the outputs hardly depend on the inputs. If the weights do not fit into
   memory, this is the only comparison (`parts`).

`optimize` begins with the segments where it can: the spread of a whole network is inconclusive in most cases, and measuring it
takes half of the time. If they all agree, the first comparison only states the difference.

Where there is no record of the rewrite, values that both models have are matched by name and content: on one set of inputs, the
array that B computes for a name of A must contain the tensor of A in a known format. A wrong match hides no fault, because the
segments on both sides of it differ.

Two kinds of models get a second comparison as a whole:

- Models with float16 or bfloat16, whose rounding spread hides faults, are also compared after an upcast to float32.
- Quantised models are compared without optimisations where onnxruntime's optimisation levels disagree: it computes
  DequantizeLinear -> op -> QuantizeLinear in integers at one level and in floating point at the other. If their segments agree,
  they are compared again as onnxruntime optimises them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations, product
from math import prod
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx_ir
from msgspec.structs import replace

from layoutopt import inference, onnx_io
from layoutopt.files import scratch_folder
from layoutopt.formats import Format
from layoutopt.formats.extent import static_shape
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Dims
from layoutopt.ir.types import Array
from layoutopt.onnx_io.messages import nodes
from layoutopt.runtime.custom_ops import Libraries, kernel_libraries
from layoutopt.runtime.definitions import DEFINITION_DOMAIN, define
from layoutopt.runtime.errors import RUN_ERRORS, raise_if_out_of_memory
from layoutopt.runtime.kernel_queries import BLOCKED_DOMAIN, blocked_channels
from layoutopt.runtime.portable import portable_block
from layoutopt.sample_inputs import Given, lift_source, prepare_inputs
from layoutopt.verification.comparison import PairOfModels
from layoutopt.verification.cuts import CutCandidates, ObservedValue, evenly_spaced
from layoutopt.verification.data_movement import executed_data_movement
from layoutopt.verification.difference import difference
from layoutopt.verification.edits import add_outputs, computed_names, upcast_to_float32
from layoutopt.verification.parts import PartedSession, is_too_large
from layoutopt.verification.runnable import (
    MAX_PREPACKED_BYTES,
    Runnable,
    RunnableCopies,
    Source,
    as_runnable,
    mappable,
    with_definitions,
    with_seeds,
)
from layoutopt.verification.runs import RUN_SECONDS, Request, Run, Values, run_original
from layoutopt.verification.verdict import Verification

FLOAT16_ERROR_RATIO = 8
"""Accepted difference of two 16-bit models that agree after an upcast, as a multiple of the rounding spread.

The error of a model varies by up to a factor of 7 between onnxruntime's optimisation levels: bert_medium 0.0007 to 0.0051.
"""

_BY_SEGMENTS = "segment by segment; as a whole "
_FLOAT16_ERROR = 1e-2  # an error of a few units in the last place of float16
_OTHER_BRANCH = {"then_branch": "else_branch", "else_branch": "then_branch"}

Match: TypeAlias = Callable[[Runnable, Runnable, Request, Sequence[str]], Sequence[ObservedValue]]
"""Finds those of some values of the original that the rewritten model has, too: from both models, a request, and names."""

MAX_MATCHES = 96
"""Largest number of values of A that are searched for in B."""

MATCH_TOLERANCE = 0.05
"""Largest difference of two matching arrays, relative to the largest magnitude."""

FORMAT_SEPARATOR = "__"
"""Separator of a value's name and its format in names that layoutopt generates: `relu__NCHW8c`."""

_BLOCKS = (32, 16, 8, 4)  # largest first: of several matching formats the one with the largest block is chosen
_LETTERS = "ABCDE"


def verify_models(
    original: Source,
    rewritten: Source,
    *,
    pins: Mapping[str, Format] | None = None,
    observed: Sequence[ObservedValue] = (),
    seed: int = 0,
    dims: Dims | None = None,
    inputs: Given | None = None,
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
        inputs: arrays by input name, or several such sets, instead of random inputs.
        custom_ops: the path of a shared library with kernels of custom operators for onnxruntime, or several.

    Raises:
        ExtensionError: a library of kernels cannot be loaded.
        DimensionError: the original has no such symbolic dimension.
        InputError: the original does not take the given arrays.
    """
    with kernel_libraries(custom_ops):
        graph = lift_source(original)
        candidates = CutCandidates() if graph is None else CutCandidates.of(graph)
        request = Request(pins or {}, observed, prepare_inputs(original, graph, dims, inputs)[0], seed)
        try:
            return compare(Runnable.of(original), Runnable.of(rewritten), request, candidates)
        except MemoryError as error:
            raise_if_out_of_memory(error, "model" if isinstance(original, bytes) else str(original))
            raise


def verify_files(
    original: Path, rewritten: Path, request: Request | None = None, graphs: Sequence[Graph] = ()
) -> Verification:
    """Compare two files on random inputs, as a whole and segment by segment.

    Args:
        original: the reference model.
        rewritten: the model to check.
        request: pins, test inputs and seed; by default the generator of inputs follows from the original's graph.
        graphs: the graphs of both models, if already read.

    Raises:
        ModelError: a file cannot be read.
        DimensionError: the original has no such symbolic dimension.
    """
    graphs = graphs or [inference.lift(onnx_io.read(path)) for path in (original, rewritten)]
    request = request or Request(inputs=prepare_inputs(original, graphs[0])[0])
    if mismatch := interface_mismatch(*graphs):
        return Verification("failed", mismatch)
    with scratch_folder() as folder:
        first, second = (
            Runnable.of(path)
            if path.stat().st_size <= MAX_PREPACKED_BYTES
            else as_runnable(onnx_io.read(path), folder / f"copy{number}.onnx")
            for number, path in enumerate((original, rewritten))
        )
        return compare(first, second, request, CutCandidates.of(graphs[0]), matching_values, always_cuts=True)


def verify_rewrite(
    original: onnx_ir.Model,
    emitted: onnx_ir.Model,
    final: onnx_ir.Model,
    match: Callable[[Sequence[str]], Sequence[ObservedValue]],
    candidates: CutCandidates,
    request: Request,
    copies: RunnableCopies,
    *,
    path: str | None = None,
    is_emulated: bool = False,
    has_devices: bool = False,
) -> Verification:
    """Compare a rewritten model with the original.

    Args:
        original: the model that was read.
        emitted: the rewritten model.
        final: the model to be returned: `emitted`, or its form after onnxruntime's optimisations.
        match: finds the values of the original in `emitted`.
        candidates: the values at which the original can be cut.
        request: pins, test inputs and seed.
        copies: the models as Runnables.
        path: the file that the original was read from; None if it was not a file.
        is_emulated: whether onnxruntime emulates the formats of the result, so that its data movement there is not measured.
        has_devices: whether nodes of the result have devices; its partitions run one after the other then.
    """
    is_parted = final is emitted and is_too_large(original, emitted)
    with scratch_folder() as traces:
        reference = replace(copies.of(original, mappable(path)), trace=traces / "original", is_parted=is_parted)
        written = replace(copies.of(final), trace=traces / "final", is_parted=is_parted or has_devices)
        verdict = compare(
            reference,
            written,
            request,
            candidates,
            lambda *given: match(given[-1]),
            None if final is emitted else lambda: copies.of(emitted),
        )
        if verdict.status != "passed" or is_parted:
            return verdict
        is_measured = not verdict.defined_block and not is_emulated and not has_devices
        return replace(
            verdict,
            moved_before=executed_data_movement(reference, request.inputs),
            moved_after=executed_data_movement(written, request.inputs) if is_measured else None,
        )


def compare(
    original: Runnable,
    final: Runnable,
    request: Request,
    candidates: CutCandidates,
    match: Match | None = None,
    unoptimised: Callable[[], Runnable] | None = None,
    *,
    always_cuts: bool = False,
) -> Verification:
    """Compare two models as a whole, and segment by segment if that is inconclusive, or if they are run part by part.

    Segments come first unless a type is narrow or quantised. If one differs, the comparison as a whole may be conclusive.

    Args:
        original: the reference model.
        final: the rewritten model.
        request: pins, test inputs and seed.
        candidates: the values at which the original can be cut.
        match: finds values of the original in the rewritten model, before onnxruntime's optimisations; None for a comparison as
            a whole only.
        unoptimised: function that returns the rewritten model before onnxruntime's optimisations, which keeps more of the
            original's values; None if that is `final`.
        always_cuts: whether to compare segment by segment even if the comparison as a whole is conclusive.
    """
    (original, known), (final, block) = (_prepared(each, candidates) for each in (original, final))
    if match is None:
        verdict = compare_as_a_whole(original, final, request, candidates)
    else:
        verdict = _compare_by_segments(original, final, request, candidates, match, unoptimised, always_cuts)
    return replace(verdict, defined_block=max(known, block))


def _prepared(model: Runnable, candidates: CutCandidates) -> tuple[Runnable, int]:
    """A model that runs and draws the same random numbers on this machine, and the blocks that run by definition, or 0."""
    defined, block = with_definitions(model)
    return with_seeds(defined) if candidates.has_random_ops else defined, block


def _compare_by_segments(
    original: Runnable,
    final: Runnable,
    request: Request,
    candidates: CutCandidates,
    match: Match,
    unoptimised: Callable[[], Runnable] | None,
    always_cuts: bool,
) -> Verification:
    def common(names: Sequence[str]) -> list[ObservedValue]:
        """The values that nodes of the original's main graph compute, without those in functions that it calls."""
        computed = computed_names(original.message()) if names else set()
        return [each for each in match(original, final, request, names) if each.original in computed]

    known = list[tuple[Run, Values]]()  # of the final model

    def by_segments(is_close: bool = False) -> Verification | None:
        """The verdict on all segments; None without cuts, or if the cut model is not equivalent to the final one.

        With `is_close`, the final model is as close to the original as two equivalent models are, and so to the cut one.
        """
        cuts, cuttable = candidates.cuts(common(candidates.names)), final
        if not cuts.values and not original.is_parted:
            return None
        restarted = replace(request, start=monotonic())  # late comparisons have fewer sizes and perturbations
        if unoptimised is not None:
            cuttable, _ = _prepared(unoptimised(), candidates)
            is_close = is_close or bool(known and PairOfModels(original, cuttable, whole).computes(known))
            known.clear()
            if not is_close and not _is_baking_equivalent(cuttable, final, restarted, candidates):
                return None
        segments = PairOfModels(original, cuttable, restarted, cuts, is_optimised=False).verdict()
        if unoptimised is not None and candidates.is_quantised and segments.status == "passed":
            optimised = _compare_optimised(original, cuttable, restarted, candidates, cuts.values)
            segments = optimised if optimised.status == "failed" else segments
        is_failed = segments.status == "failed"
        return replace(segments, reason=f"segment by segment {segments.reason}") if is_failed else segments

    if original.is_parted:
        segments, session = by_segments(), original.session()
        assert segments is not None and isinstance(session, PartedSession)
        parts = f"segment by segment, one of {len(session.parts)} in memory at a time"
        return replace(segments, reason=parts) if segments.status == "passed" else segments
    saturated = common(candidates.before_saturation)
    computed = computed_names(final.message()) if saturated else set()
    observed = [each for each in saturated if each.rewritten in computed]
    whole, segments = replace(request, observed=observed), None
    is_first = not (always_cuts or candidates.is_narrow or candidates.is_quantised)
    if is_first:
        exact = PairOfModels(original, final, whole).verdict(has_spread=False, known=known if unoptimised else None)
        if not exact.comparisons and not exact.misdeclared:
            return exact
        is_first = bool(exact.comparisons)  # else the original's outputs contradict their declared shapes
        segments = by_segments(exact.status == "passed") if is_first else None
        if segments is not None and segments.status == "passed" and {*segments.sizes} == {*exact.sizes}:
            assert exact.worst is not None
            return replace(segments, reason=f"{_BY_SEGMENTS}{exact.worst.difference_text}", depends_on_inputs=True)
        whole = replace(whole, start=monotonic())
    verdict = compare_as_a_whole(original, final, whole, candidates)
    is_complete = len(observed) == len(candidates.before_saturation)
    is_sufficient = verdict.is_conclusive and verdict.depends_on_inputs and is_complete and not always_cuts
    is_failed = verdict.status == "failed" and (
        not verdict.comparisons or _differs_before_quantisation(verdict, candidates)
    )
    if is_sufficient or is_failed or verdict.status == "not verified":
        return verdict
    segments = segments if is_first else by_segments()
    if segments is None:
        return verdict
    if segments.status == "passed" and verdict.status == "failed" and not {*segments.sizes} >= {*verdict.sizes}:
        return verdict
    if segments.status == "failed":
        return replace(segments, sizes=verdict.sizes)
    if segments.status == "not verified":
        return replace(verdict, reason=f"{verdict.reason or 'as a whole only'}; {segments.reason}")
    if verdict.is_conclusive:
        return replace(verdict, depends_on_inputs=True)
    found = verdict.reason or verdict.worst.description if verdict.worst is not None else verdict.reason
    comparisons = verdict.comparisons if verdict.status == "passed" else segments.comparisons
    reason = f"{_BY_SEGMENTS}{found}"
    return replace(verdict, status="passed", reason=reason, comparisons=comparisons, depends_on_inputs=True)


def _compare_optimised(
    original: Runnable, emitted: Runnable, request: Request, candidates: CutCandidates, known: Sequence[ObservedValue]
) -> Verification:
    """The verdict on all segments of a quantised model as onnxruntime optimises it, with channels where the model has them.

    It may change a model by whole quantisation steps, so a value that differs has to agree with the optimised original's.
    """
    with scratch_folder() as folder:

        def optimised(model: Runnable, name: str) -> tuple[Runnable, set[str]]:
            model.save_optimised(folder / name, {}, threads=1, disabled=("NhwcTransformer",))
            result = Runnable.of(folder / name)
            return result, computed_names(result.message())

        final, computed = optimised(emitted, "rewritten.onnx")
        cuts = candidates.cuts([each for each in known if each.rewritten in computed])
        verdict = PairOfModels(
            original, final, request, replace(cuts, counts_roundings=False), is_optimised=False
        ).verdict()
        if verdict.status != "failed":
            return verdict
        reference, computed = optimised(original, "original.onnx")
        cuts = candidates.cuts([each for each in cuts.values if each.original in computed])
        steps = replace(cuts, relative_margins={})  # integers are computed from integers
        other = PairOfModels(reference, final, request, steps, is_optimised=False).verdict()
    wrong = _differing(verdict) & _differing(other)
    if other.status == "failed":  # onnxruntime renames integers of the original, which other values depend on
        wrong |= _differing(verdict) - {each.name for each in other.comparisons}
    return verdict if wrong or other.status == "not verified" else replace(verdict, status="passed")


def _differing(verdict: Verification) -> set[str]:
    return {each.name for each in verdict.comparisons if not each.passed}


def _is_baking_equivalent(emitted: Runnable, final: Runnable, request: Request, candidates: CutCandidates) -> bool:
    """Whether the final model is equivalent to the emitted one, which onnxruntime has optimised to it."""
    unpinned = replace(request, pins={}, observed=(), defers_spread=True)
    optimised = replace(candidates, is_quantised=False)
    return compare_as_a_whole(emitted, final, unpinned, optimised).status == "passed"


def compare_as_a_whole(
    original: Runnable, rewritten: Runnable, request: Request, candidates: CutCandidates
) -> Verification:
    """Compare two models; a second time if they use narrow types or integers and the first comparison is inconclusive."""
    verdict = PairOfModels(original, rewritten, request).verdict()
    if verdict.is_conclusive:
        return verdict
    if candidates.is_narrow and not candidates.is_quantised:
        return _compare_upcast(original, rewritten, request, verdict)
    if verdict.status != "failed" or not candidates.is_quantised or _differs_before_quantisation(verdict, candidates):
        return verdict
    unoptimised = PairOfModels(original, rewritten, request, is_optimised=False).verdict()
    if unoptimised.status == "passed":
        return replace(unoptimised, reason=f"without onnxruntime's optimisations; with them {verdict.reason}")
    return verdict if unoptimised.status == "not verified" else unoptimised


def _differs_before_quantisation(verdict: Verification, candidates: CutCandidates) -> bool:
    """Whether an output of a quantised model differs that no quantised op precedes."""
    return any(not each.passed and each.name in candidates.unquantised_outputs for each in verdict.comparisons)


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
    upcast = PairOfModels(Runnable.of(reference), Runnable.of(other), request)
    wide = upcast.verdict()
    if wide.status == "failed":
        wide = replace(upcast, narrow=original).verdict()
    if wide.status == "not verified" or (verdict.status == "passed" and wide.status == "passed"):
        return verdict
    is_as_exact = all(
        each.error <= max(_FLOAT16_ERROR, FLOAT16_ERROR_RATIO * each.spread.largest) for each in verdict.comparisons
    )
    if wide.status == "passed" and is_as_exact:
        return replace(wide, reason=f"with float32 instead of 16-bit types; with 16-bit types {verdict.reason}")
    if verdict.status == "passed":
        return replace(wide, reason=f"with float32 instead of 16-bit types {wide.reason}")
    return verdict


def verify_portable(
    model: Runnable, native: Runnable, standard: Runnable, request: Request, *, is_narrow: bool
) -> Verification:
    """Compare a portable model, as every kind of machine runs it, with the references of its branches.

    It runs unchanged, and in variants that make this machine run it as another kind of machine does: with exchanged branches as
    where blocks have another size, without blocked operators, so that the functions of their names are used, and with
    definitions of the native operators, if this machine has blocks of another size.

    Args:
        model: the portable model, whose branches were verified one by one before.
        native: the reference for the native branch.
        standard: the reference for the standard branch.
        request: the conditions of the comparisons.
        is_narrow: whether a value has a 16-bit floating-point type.

    Returns:
        The first verdict that is not "passed", with the variant in its reason; "passed" if all variants pass.
    """
    block = portable_block(node.name for node in model.message().graph.node)
    assert block is not None, "the model is not portable"
    has_native_blocks = block == blocked_channels()
    variants = [("on this machine", model, has_native_blocks)]
    message = model.message()
    if has_native_blocks:
        for attr in message.graph.node[-1].attribute:
            attr.name = _OTHER_BRANCH[attr.name]
        variants.append(("where blocks have another size", model.edited(message), False))
    else:
        define(message, block)
        variants.append((f"where blocks have {block} channels", model.edited(message), True))
    variants.append(("where there are no blocks", model.edited(without_native_schemas(model.message())), False))
    verdict = Verification("passed")
    for name, edited, is_native in variants:
        reference = native if is_native else standard
        verdict = compare_as_a_whole(reference, edited, request, CutCandidates(is_narrow=is_narrow))
        if verdict.status != "passed":
            return Verification(verdict.status, f"as a portable model {name}: {verdict.reason}")
    return verdict


def without_native_schemas(message: onnx.ModelProto) -> onnx.ModelProto:
    """The message with blocked operators renamed, in place, so that onnxruntime uses the functions of these names in it."""
    for part in (*nodes(message), *message.functions, *message.opset_import):
        if part.domain == BLOCKED_DOMAIN:
            part.domain = DEFINITION_DOMAIN
    return message


def interface_mismatch(original: Graph, rewritten: Graph) -> str:
    """The difference of two models' inputs and outputs as text; empty if both take the same inputs."""
    ours, theirs = (
        {f"{value.name} ({value.dtype.label})" if value.dtype else value.name for value in graph.inputs}
        for graph in (original, rewritten)
    )
    if ours != theirs:
        only = (", ".join(sorted(one - other)) or "none" for one, other in ((ours, theirs), (theirs, ours)))
        return "the models take different inputs: only the first has {}, only the second {}".format(*only)
    lacking = {value.name for value in original.outputs} - {value.name for value in rewritten.outputs}
    return f"the second model lacks the outputs {', '.join(sorted(lacking))}" if lacking else ""


def matching_values(
    original: Runnable, rewritten: Runnable, request: Request, names: Sequence[str]
) -> list[ObservedValue]:
    """The values that both models compute, with their names and formats in the rewritten model."""
    if not names:
        return []
    messages = original.message(), rewritten.message()
    ours, theirs = (computed_names(message) for message in messages)
    renamed = {name.rpartition(FORMAT_SEPARATOR)[0]: name for name in sorted(theirs) if FORMAT_SEPARATOR in name}
    pairs = {name: name if name in theirs else renamed.get(name, "") for name in names if name in ours}
    chosen = evenly_spaced([(one, other) for one, other in pairs.items() if other], MAX_MATCHES)
    for side, message in enumerate(messages):
        add_outputs(message, [pair[side] for pair in chosen])
    try:
        session = original.edited(messages[0]).session(is_optimised=False)
        (run, *_), _ = run_original(session, request)
        session = rewritten.edited(messages[1]).session(is_optimised=False)
        pinned = request.counterparts()
        feed = {name: pinned[name].packed(x) if name in pinned else x for name, x in run.feed.items()}
        outputs = session.run(None, feed, RUN_SECONDS)
        actual_values = dict(zip([each.name for each in session.get_outputs()], outputs, strict=True))
    except RUN_ERRORS as error:  # the comparison as a whole reports the model that does not run
        raise_if_out_of_memory(error)
        return []
    found = (_match(pair, run.values[pair[0]], actual_values[pair[1]]) for pair in chosen)
    return [each for each in found if each is not None]


def _match(names: tuple[str, str], expected: Any, actual: Any) -> ObservedValue | None:
    """The observed value, if an array of the rewritten model contains the original's tensor in a known format."""
    if not isinstance(expected, np.ndarray) or not isinstance(actual, np.ndarray) or expected.dtype != actual.dtype:
        return None
    found = [ObservedValue(*names, format, actual.shape) for format in _formats(expected, actual)]
    differences = [difference(expected, each.unpacked(actual, expected)).largest for each in found]
    least = min(differences, default=MATCH_TOLERANCE + 1)
    return found[differences.index(least)] if least <= MATCH_TOLERANCE else None


def _formats(expected: Array, actual: Array) -> Iterator[Format]:
    """The formats in which an array may contain a tensor: any order of its axes, or one blocked axis.

    An array with one axis fewer than its blocked format comes from a blocked kernel of onnxruntime, NCHW8c or NCHW16c.
    """
    rank = expected.ndim
    orders = permutations(range(rank)) if rank <= 5 else [range(rank)]
    plain = (Format.plain(tuple(order)) for order in orders)
    yield from (format for format in plain if format.physical_shape(expected.shape) == actual.shape)
    for axis, block in product(range(1, rank) if 2 < rank <= 5 else (), _BLOCKS):
        rest = "".join(_LETTERS[other] for other in range(1, rank) if other != axis)
        letter = _LETTERS[axis]
        for order in (f"{letter}{rest}", f"{rest}{letter}"):
            format = Format.parse(f"{_LETTERS[0]}{order}{block}{letter.lower()}", _LETTERS[:rank])
            physical = static_shape(format.physical_shape(expected.shape))
            if physical == actual.shape or (prod(physical) == actual.size and order.startswith(letter)):
                yield format
