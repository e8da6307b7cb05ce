"""Two models side by side, as `verify` shows them."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from layoutopt import onnx_io
from layoutopt.cli.exit_codes import NotVerifiedError
from layoutopt.cli.rendering.progress import Steps
from layoutopt.cli.rendering.terminal import facts, line, section, show, show_json, table, text
from layoutopt.errors import VerificationError
from layoutopt.formats import Format, lookup
from layoutopt.ir.sizes import Dims
from layoutopt.report.stamp import KEY
from layoutopt.sample_inputs import InputSet, prepare_inputs, sizes_text
from layoutopt.verification import Comparison, Verification
from layoutopt.verification.difference import Difference
from layoutopt.verification.file_comparison import verify_files
from layoutopt.verification.request import Request


@dataclass(frozen=True, slots=True)
class Rounds:
    """Several verifications of the same two models.

    Attributes:
        original: the model to go by.
        rewritten: the model to judge.
        verdicts: one per round.
    """

    original: Path
    rewritten: Path
    verdicts: tuple[Verification, ...]
    repairs: Mapping[Path, Sequence[tuple[str, str]]]

    @property
    def outputs(self) -> list[Comparison]:
        """The worst comparison of every output."""
        worst: dict[str, Comparison] = {}
        for each in (comparison for verdict in self.verdicts for comparison in verdict.comparisons):
            if each.name not in worst or each.error > worst[each.name].error:
                worst[each.name] = each
        return list(worst.values())

    @property
    def verdict(self) -> Verification:
        """The first that is not good, or the first."""
        return next((each for each in self.verdicts if each.status != "passed"), self.verdicts[0])

    @property
    def is_sensitive(self) -> bool:
        """Whether the outputs depended on the inputs."""
        return any(verdict.sensitive for verdict in self.verdicts)

    def raise_for_status(self) -> None:
        """Raise unless all is well.

        Raises:
            VerificationError: the models differ.
            NotVerifiedError: the original cannot be run.
        """
        verdict = self.verdict
        if verdict.status == "failed":
            hint = f"compare with {self.original}, or accept more with --tolerance" if self.outputs else "mend it"
            raise VerificationError(verdict.reason, where=str(self.rewritten), hint=hint)
        if verdict.status == "not verified":
            hint = "give models that onnxruntime can run on this machine"
            raise NotVerifiedError(f"not verified: {verdict.reason}", where=str(self.original), hint=hint)


def compare(
    original: Path,
    rewritten: Path,
    tolerance: float | None,
    rounds: int,
    dims: Dims,
    inputs: Sequence[InputSet] = (),
    *,
    strict: bool = False,
) -> Rounds:
    """Run both, on given inputs if there are some.

    Raises:
        ModelError: one of the files cannot be read.
        DimensionError: the original has no such symbolic dimension.
        InputError: the original does not take the inputs.
    """
    with Steps() as steps:
        steps("reading")
        models = [onnx_io.read(path, strict=strict) for path in (original, rewritten)]
        graphs = [onnx_io.lift(model, strict=strict) for model in models]  # ONNX Runtime may not survive an invalid one
        repairs = {path: graph.repairs for path, graph in zip((original, rewritten), graphs, strict=True)}
        samples, _ = prepare_inputs(original, graphs[0], dims, inputs)
        pins = pinned(models[1].metadata_props)
        verdicts = []
        for number in range(rounds):
            steps(f"verifying, {number + 1} of {rounds}")
            verdict = verify_files(original, rewritten, Request(pins, (), samples, 2 * number), graphs)
            verdicts.append(verdict if tolerance is None else judged(verdict, tolerance))
    return Rounds(original, rewritten, tuple(verdicts), repairs)


def pinned(metadata: Mapping[str, str]) -> dict[str, Format]:
    """The formats that a model of ours says it was pinned to."""
    try:
        pins = json.loads(metadata.get(KEY, "{}")).get("pins", {})
        return {str(name): lookup(str(format)) for name, format in pins.items()}
    except (ValueError, AttributeError):  # the note is not one of ours, or somebody has edited it
        return {}


def judged(verdict: Verification, tolerance: float) -> Verification:
    """The same comparisons by another measure."""
    if not verdict.comparisons:
        return verdict
    limit = Difference(tolerance, tolerance)
    comparisons = (replace(each, limit=limit) for each in verdict.comparisons)
    return Verification.of(comparisons, verdict.sensitive, verdict.sizes)


def print_comparison(rounds: Rounds, as_json: bool) -> None:
    """The verdict, and every output."""
    verdict = rounds.verdict
    if as_json:
        show_json(
            {
                "status": verdict.status,
                "reason": verdict.reason,
                "outputs_depend_on_inputs": rounds.is_sensitive,
                "sizes": [dict(each) for each in verdict.sizes],
                "outputs": [_record(each) for each in rounds.outputs],
            }
        )
        return
    if not rounds.outputs:
        return  # there is nothing to say but the error
    outputs = table("output", "=dtype", ">error", ">rounding", ">tolerance", "=")
    for each in rounds.outputs:
        mark = text("same", "green") if each.passed else text("differs", "bold red")
        numbers = (f"{each.error:.1e}", f"{each.spread.largest:.1e}", f"{each.tolerance:.1e}")
        outputs.add_row(text(each.name), text(each.dtype), *numbers, mark)
    style = "green" if verdict.status == "passed" else "bold red"
    count = sum(max(len(each.sizes), 1) + 1 for each in rounds.verdicts)
    rows = [("verdict", line((verdict.status, style), f", on {count} random inputs"))]
    if verdict.sizes:
        rows.append(("sizes", text("; ".join(sizes_text(dict(each)) for each in verdict.sizes))))
    if not rounds.is_sensitive:
        says = "the outputs do not depend on the inputs, so this says little"
        rows.append(("but", text(says, "yellow")))
    show(line((str(rounds.original), "bold"), " and ", (str(rounds.rewritten), "bold")), facts(*rows))
    section("outputs", "the largest error of each, and by how much rounding alone moves it", outputs)


def _record(each: Comparison) -> dict[str, object]:
    return {
        "name": each.name,
        "dtype": each.dtype,
        "error": each.error if math.isfinite(each.error) else None,
        "rounding": each.spread.largest,
        "tolerance": each.tolerance,
        "passed": each.passed,
    }
