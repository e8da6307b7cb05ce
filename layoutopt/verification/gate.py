"""Equivalence check that gates the output: the values to compare are chosen before a rewrite, and compared after it.

1. Both models as a whole, with the values in front of a final Softmax or Sigmoid, which would hide a difference.
2. Segment by segment (`segments`) where the whole says too little: the difference is larger than the rounding spread, the
   spread is so large that faults could hide in it, or the outputs hardly depend on the inputs.

A model whose weights do not fit into a message is compared through files: sessions map their weights, and no two models are
loaded at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import onnx_ir

from layoutopt import onnx_io
from layoutopt.errors import VerificationError
from layoutopt.files import scratch_folder
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import DType
from layoutopt.sample_inputs import SampleInputs
from layoutopt.verification.exposed import computed_names, expose
from layoutopt.verification.observed import (
    Observed,
    cut_off,
    decision_values,
    evenly_spaced,
    inner,
    locate_values,
    rounded,
    saturated_values,
    unrounded,
)
from layoutopt.verification.runnable import Runnable
from layoutopt.verification.segments import Cuts, compare_segments, margin_of
from layoutopt.verification.verdict import Verification, described
from layoutopt.verification.verify import Request, verify_models

CUTS = 32
"""At how many floating-point values a model is cut at most, besides those by which it decides or which it rounds."""

IN_MEMORY = 64_000_000
"""Bytes of weights above which a model is written to temporary files, so that sessions can map its weights."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What verification uses of a graph to which nothing has been done.

    Attributes:
        hidden: values in front of a saturating op at an output.
        inside: the floating-point values that a model can be cut at.
        between: values that are rounded, or by which the model decides: it is cut at all of them.
        rounded: those of the integers that floating-point values are rounded to, with the type of these.
        has_float16: whether something has the type float16.
    """

    hidden: Sequence[str]
    inside: Mapping[str, DType]
    between: Mapping[str, DType]
    rounded: Mapping[str, DType]
    has_float16: bool

    @classmethod
    def of(cls, graph: Graph) -> Self:
        """Look at a graph."""
        integers = rounded(graph)
        fractions = unrounded(graph, {*integers, *cut_off(graph)})
        half = any(value.dtype is DType.FLOAT16 for each in graph.nest() for value in each.values)
        return cls(saturated_values(graph), inner(graph), {**integers, **decision_values(graph)}, fractions, half)

    def cuts(self, present: Sequence[Observed]) -> Cuts:
        """The cuts at the values that both models have."""
        needed = [each for each in present if each.original in self.between]
        others = [each for each in present if each.original not in self.between and each.original not in self.hidden]
        hidden = [each for each in present if each.original in self.hidden and each.original not in self.between]
        chosen = [*needed, *hidden, *evenly_spaced(others, CUTS)]
        known = {**self.inside, **self.between}
        dtypes = {each.original: known[each.original] for each in chosen if each.original in known}
        values = [each for each in chosen if each.original in dtypes]
        margins = {name: margin_of(dtype) for name, dtype in self.rounded.items()}
        return Cuts(values, dtypes, frozenset(self.between), margins)

    @property
    def names(self) -> list[str]:
        """All values that two models may be cut at."""
        return list(dict.fromkeys([*self.between, *self.hidden, *self.inside]))


@dataclass(frozen=True, slots=True)
class Gate:
    """The equivalence check of one run of `optimize`.

    Attributes:
        name: what errors call the model.
        path: the file that it came from, if it came from one.
        pins: formats of its inputs and outputs in the rewritten model.
        inputs: how inputs are made to compare on.
        is_native: whether the result is written for onnxruntime with its optimisations.
        facts: about the graph before anything is done to it.
    """

    name: str
    path: str | None
    pins: Mapping[str, Format]
    inputs: SampleInputs
    is_native: bool
    facts: Facts = field(repr=False)

    def judge(
        self, planned: Graph, lowered: Graph, original: onnx_ir.Model, emitted: onnx_ir.Model, final: onnx_ir.Model
    ) -> Verification:
        """Compare the final model with the original.

        Args:
            planned: the graph with formats and casts.
            lowered: the graph that it was lowered to.
            original: the model that was read.
            emitted: the lowered graph as a model.
            final: the model to be handed out: `emitted`, or what onnxruntime's optimiser makes of it.

        Raises:
            VerificationError: they compute something else.
        """
        request = Request(self.pins, (), self.inputs)
        with scratch_folder() as folder:
            half = self.facts.has_float16
            is_file = self.path is not None and Path(self.path).stat().st_size <= IN_MEMORY
            path = (
                self.path if is_file else None
            )  # the weights of a larger file cannot be mapped, so they are written anew
            first = Runnable.of(path, half) if path else runnable(original, folder / "original.onnx", half)
            second = runnable(emitted, folder / "emitted.onnx", half)
            third = second if final is emitted else runnable(final, folder / "final.onnx", half)
            hidden = locate_values(planned, lowered, list(self.facts.hidden))
            models = Models(first, second, third, hidden, lambda: locate_values(planned, lowered, self.facts.names))
            verdict = compare(models, self.facts, request, only_optimised=self.is_native)
        if verdict.status == "failed":
            raise VerificationError(
                f"the rewritten model computes something else: {verdict.reason}",
                where=self.name,
                hint="nothing was written; please report it with the model",
            )
        return verdict


@dataclass(frozen=True, slots=True)
class Models:
    """The models of one comparison.

    Attributes:
        original: the model to go by.
        cuttable: the rewritten model with as many of the original's values as it has.
        final: the rewritten model as it is handed out.
        hidden: the values in front of saturating ops that the original and `cuttable` have in common.
        find: finds all values that they have in common.
    """

    original: Runnable
    cuttable: Runnable
    final: Runnable
    hidden: Sequence[Observed]
    find: Callable[[], Sequence[Observed]]

    def computed(self, values: Sequence[Observed]) -> list[Observed]:
        """Those values that nodes of the original's main graph compute; the others are inside of functions that it calls."""
        names = computed_names(self.original.message()) if values else set()
        return [each for each in values if each.original in names]


def compare(
    models: Models, facts: Facts, request: Request, *, only_optimised: bool = False, always_cuts: bool = False
) -> Verification:
    """Compare as a whole, and segment by segment where that says too little, or always."""
    names = computed_names(models.final.message()) if models.hidden else set()
    hidden = models.computed(models.hidden)
    shown = [each for each in hidden if each.rewritten in names]
    verdict = verify_models(
        _exposing(models.original, [each.original for each in shown]),
        _exposing(models.final, [each.rewritten for each in shown]),
        request=replace(request, observed=shown),
        only_optimised=only_optimised,
    )
    is_enough = verdict.is_conclusive and verdict.sensitive and len(shown) == len(models.hidden)
    cannot_run = verdict.status == "failed" and not verdict.comparisons
    if (is_enough and not always_cuts) or cannot_run or verdict.status == "not verified":
        return verdict
    cuts = facts.cuts(models.computed(models.find()))
    if not cuts:
        return verdict
    if models.final is not models.cuttable and not _is_baked_right(models, request):
        return verdict
    segments = compare_segments(models.original, models.cuttable, cuts, request)
    if segments.status == "not verified":
        return replace(verdict, reason=f"{verdict.reason or 'as a whole only'}; {segments.reason}")
    if segments.status == "failed":
        return replace(segments, reason=f"segment by segment {segments.reason}", sizes=verdict.sizes)
    if verdict.is_conclusive:
        return replace(verdict, sensitive=True)
    whole = verdict.reason or described(verdict.worst) if verdict.worst is not None else verdict.reason
    comparisons = verdict.comparisons if verdict.status == "passed" else segments.comparisons
    reason = f"segment by segment; as a whole {whole}"
    return replace(verdict, status="passed", reason=reason, comparisons=comparisons, sensitive=True)


def _exposing(model: Runnable, names: Sequence[str]) -> Runnable:
    if not names:
        return model
    message = model.message()
    expose(message, names)
    return model.edited(message)


def _is_baked_right(models: Models, request: Request) -> bool:
    """Whether onnxruntime's optimised form of the emitted model computes what the emitted one does."""
    plain = replace(request, pins={}, observed=(), lazy=True)
    return verify_models(models.cuttable, models.final, request=plain, only_optimised=True).status == "passed"


def runnable(model: onnx_ir.Model, path: Path, computes_float16: bool) -> Runnable:
    """A model as bytes if it is small, else as a file whose weights can be mapped."""
    if sum(tensor.nbytes for _, tensor in onnx_io.weights(model)) <= IN_MEMORY:
        return Runnable.of(onnx_io.to_bytes(model), computes_float16)
    onnx_io.write(model, path, external_data=f"{path.name}.data")
    return Runnable.of(str(path), computes_float16)


__all__ = ["Facts", "Gate", "Models", "compare", "runnable"]
