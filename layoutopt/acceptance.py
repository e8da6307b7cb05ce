"""May a rewritten model get out? What is looked at is noted before anything is rewritten, and compared when all is written.

Compared are the outputs; what a final Softmax would hide; and where the outputs do not depend on random inputs, values inside.
Models that differ only because they round or decide are compared piece by piece.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import onnx_ir

from layoutopt import onnx_io
from layoutopt.errors import VerificationError
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Array, DType
from layoutopt.piecewise import margin, step_by_step
from layoutopt.probes import Probe, cut_off, deciders, found_again, inner, rounded, spread, squashed, unrounded
from layoutopt.sizes import Dims
from layoutopt.verify import Verification, verify_models

INNER_PROBES = 16  # inner values that are compared where the outputs do not depend on the inputs
IN_MEMORY = 1_900_000_000  # bytes of weights; a larger model is no single message, so it is verified as files


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What is known of a model before it is rewritten, to judge what becomes of it.

    Attributes:
        name: what errors call it.
        path: the file that it came from, if it came from one.
        pins: formats of its inputs and outputs in the rewritten model.
        dims: sizes of symbolic dimensions to try.
        is_native: whether the result is for onnxruntime as anybody runs it.
        hidden: values that something at the end makes small differences of.
        inside: all values inside.
        between: values at which it can be taken to pieces, and their types.
        margins: of integers among them, by which part of the largest of them fractions may differ before they are rounded.
        computes_float16: whether there is something in float16 in it.
    """

    name: str
    path: str | None
    pins: Mapping[str, Format]
    dims: Dims
    is_native: bool
    hidden: Sequence[str]
    inside: Sequence[str]
    between: Mapping[str, DType]
    margins: Mapping[str, Array]
    computes_float16: bool

    @classmethod
    def of(
        cls, graph: Graph, name: str, path: str | None, pins: Mapping[str, Format], dims: Dims, *, is_native: bool
    ) -> Self:
        """Look at a graph that nothing has been done to."""
        integers = rounded(graph)
        margins = {each: margin(dtype) for each, dtype in unrounded(graph, {*integers, *cut_off(graph)}).items()}
        between = {**integers, **deciders(graph)}
        float16 = any(value.dtype is DType.FLOAT16 for each in graph.nest() for value in each.values)
        return cls(name, path, pins, dims, is_native, squashed(graph), inner(graph), between, margins, float16)

    def judge(
        self,
        planned: Graph,
        lowered: Graph,
        original: onnx_ir.Model,
        emitted: onnx_ir.Model,
        final: onnx_ir.Model,
    ) -> Verification:
        """Compare the final model with the original; it may be the emitted one, or what that was settled to.

        Args:
            planned: the graph with formats and casts.
            lowered: what that was lowered to.
            original: the model that came in.
            emitted: the lowered graph as a model.
            final: what is to be handed out.

        Raises:
            VerificationError: they compute something else.
        """
        written = _Written(original, emitted, final, found_again(planned, lowered, list(self.between)))
        verdict = self._compare(written, found_again(planned, lowered, list(self.hidden)))
        if verdict.comparisons and not verdict.sensitive:
            verdict = self._compare(written, spread(found_again(planned, lowered, list(self.inside)), INNER_PROBES))
        return verdict

    def _compare(self, written: "_Written", probes: Sequence[Probe]) -> Verification:
        """Inner values that settling has swallowed are compared as they were before."""
        names = {value.name for node in written.final.graph for value in node.outputs}
        kept = [probe for probe in probes if probe.rewritten in names]
        inside = self._run(replace(written, final=written.emitted), probes) if len(kept) < len(probes) else None
        verdict = self._run(written, kept)
        return inside if inside is not None and inside.sensitive and not verdict.sensitive else verdict

    def _run(self, written: "_Written", probes: Sequence[Probe]) -> Verification:
        """Run the original and the final model, or fail."""
        original, final = written.original, written.final
        is_small = sum(_bytes(model) for model in (original, final)) <= IN_MEMORY
        if is_small:
            verdict = verify_models(
                onnx_io.to_bytes_exposing(original, [probe.original for probe in probes])
                if probes or self.path is None
                else self.path,
                onnx_io.to_bytes_exposing(final, [probe.rewritten for probe in probes]),
                pins=self.pins,
                dims=self.dims,
                probes=probes,
                only_optimised=self.is_native,
                computes_float16=self.computes_float16,
            )
        else:
            verdict = self._run_files(original, final)
        has_pieces = is_small and bool(written.steps or self.margins)
        if verdict.status == "failed" and has_pieces and _is_settled_right(written):
            verdict = self._run_apart(written, probes, verdict)
        if verdict.status == "failed":
            raise VerificationError(
                f"the rewritten model computes something else: {verdict.reason}",
                where=self.name,
                hint="nothing was written; please report it with the model",
            )
        return verdict

    def _run_files(self, original: onnx_ir.Model, final: onnx_ir.Model) -> Verification:
        """Run models that are too large for a message."""
        with tempfile.TemporaryDirectory(prefix="layoutopt-") as folder:
            first, second = Path(folder) / "original.onnx", Path(folder) / "rewritten.onnx"
            if self.path is None:
                onnx_io.write(original, first)
            onnx_io.write(final, second)
            return verify_models(
                self.path or first,
                second,
                pins=self.pins,
                dims=self.dims,
                only_optimised=self.is_native,
                computes_float16=self.computes_float16,
            )

    def _run_apart(self, written: "_Written", probes: Sequence[Probe], verdict: Verification) -> Verification:
        """Run two models that round or decide, and differ, piece by piece; what comes out then, if it passes."""
        names = [probe.original for probe in (*probes, *written.steps)]
        cut = {probe.rewritten: self.between[probe.original] for probe in written.steps}
        apart = step_by_step(
            onnx_io.to_bytes_nudged(written.original, names, self.margins),
            onnx_io.to_bytes_cut(written.emitted, cut, [probe.rewritten for probe in probes]),
            written.steps,
            probes,
            pins=self.pins,
            dims=self.dims,
        )
        if apart.status != "passed":
            return verdict
        reason = f"piece by piece; as a whole {verdict.reason}"
        return replace(verdict, status="passed", reason=reason, comparisons=apart.comparisons)


@dataclass(frozen=True, slots=True)
class _Written:
    """The model that came in, what was emitted for it, and what is to be handed out; and where the second can be cut."""

    original: onnx_ir.Model
    emitted: onnx_ir.Model
    final: onnx_ir.Model
    steps: Sequence[Probe]


def _bytes(model: onnx_ir.Model) -> int:
    return sum(tensor.nbytes for _, tensor in onnx_io.weights(model))


def _is_settled_right(written: _Written) -> bool:
    """Whether a settled model computes what it was settled from does; both run the same kernels."""
    if written.final is written.emitted:
        return True
    emitted, final = onnx_io.to_bytes(written.emitted), onnx_io.to_bytes(written.final)
    return verify_models(emitted, final, only_optimised=True).status == "passed"


__all__ = ["Acceptance"]
