"""The result of `optimize`: the model, the plan, the report and the planned graph; and the stage `finish` that makes it."""

import logging
from html import escape
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any

import onnx
import onnx_ir
from msgspec.structs import asdict

from layoutopt import inference, onnx_io
from layoutopt.driver.job import Job
from layoutopt.driver.lifting import OPTIMISED_BEFORE, Lifted
from layoutopt.driver.model_faults import is_loadable
from layoutopt.driver.prices import check_bound, within_growth
from layoutopt.driver.splitting import split
from layoutopt.driver.stages import UNVERIFIED, Outcome
from layoutopt.errors import ArgumentError, PinError, UnverifiedError
from layoutopt.files import is_same_file
from layoutopt.ir.graph import Graph
from layoutopt.onnx_io.writer import WrittenFiles
from layoutopt.passes.base import Note
from layoutopt.planner import Plan
from layoutopt.record import Record
from layoutopt.report.builder import counts, dim_reports, graph_report, growth_report, platform_report
from layoutopt.report.facts import facts_of, repairs_of, summary_text, warnings_of
from layoutopt.report.schema import NoteReport, PassReport, PlanReport, Report, TargetReport, VerificationReport
from layoutopt.verification import Verification
from layoutopt.verification.parts import is_too_large
from layoutopt.verification.runs import run_model_once
from layoutopt.version import VERSION

_LOGGER = logging.getLogger("layoutopt")


class Result(Record):
    """The result of `optimize`.

    Attributes:
        model: the optimised model; the original if it stays unchanged.
        plan: the plan; None if the model has been optimised with the same options before.
        report: the plan, its costs, the verification and the notes of passes, as data.
        graph: the planned graph, with formats and casts, before it was lowered.
        source: the file or message with the content of `model`, if the model stays unchanged.
        origin: the file that the original was read from; None if it was not a file.
        reads: the other files that the call has read, which `save` and `split` never replace.
        devices: the devices of the target, if it is a platform.
    """

    model: onnx_ir.Model
    plan: Plan | None
    report: Report
    graph: Graph
    source: str | onnx.ModelProto | None = None
    origin: str | None = None
    reads: tuple[Path, ...] = ()
    devices: tuple[str, ...] = ()

    def __repr__(self) -> str:
        report = self.report
        outcome = "rewritten" if report.changed else f"unchanged: {report.reason}"
        checked = f"verification {report.verification.status}"
        return f"Result({report.model!r} for {report.target}, {outcome}, {len(report.ops)} ops, {checked})"

    def summary(self) -> str:
        """The key numbers of the report as lines of text: data movement, estimated and measured time, verification."""
        return summary_text(self.report)

    def _repr_html_(self) -> str:
        """The summary as preformatted text, for notebooks."""
        return f"<pre>{escape(summary_text(self.report))}</pre>"

    def __reduce__(self) -> tuple[Any, ...]:
        """The state for pickle and copy: the model is one message that includes external data."""
        state = (self.plan, self.report, self.graph, self.source, self.origin, self.reads, self.devices)
        return _restored, (onnx_io.to_bytes(self.model), *state)

    @property
    def proto(self) -> onnx.ModelProto:
        """The model as an onnx message; a copy of the message that `optimize` received if the model stays unchanged."""
        message = onnx.ModelProto()
        if isinstance(self.source, onnx.ModelProto):
            message.CopyFrom(self.source)
        else:
            message.ParseFromString(onnx_io.to_bytes(self.model))
        return message

    def certificate(
        self,
        original: str | PathLike[str] | bytes | onnx.ModelProto | None = None,
        *,
        allow_tested: bool = False,
    ) -> str:
        """The proof that the model computes what the original computes, as JSON; `layoutopt certify` accepts it.

        Args:
            original: the original; by default the file that was optimised.
            allow_tested: whether values without a proof may be compared on random inputs.

        Raises:
            ArgumentError: the original was no file, and none is given.
            CertificateError: a value has no proof, or a model has a part that the checker refuses.
        """
        from layoutopt.certificate.producer import certificate_text

        if original is None and self.origin is None:
            raise ArgumentError("the original was no file", hint="give the original: result.certificate(original)")
        is_copied = not onnx_io.has_external_data(self.model)  # by `save`, byte for byte, if there is a source
        written = self.source if isinstance(self.source, str) and is_copied else self.proto
        source = str(self.origin) if original is None else original
        return certificate_text(source, written, allow_tested=allow_tested)

    def save(self, path: str | PathLike[str], *, external_data: str | None = None, force: bool = False) -> WrittenFiles:
        """Write the model atomically; an unchanged model is copied byte for byte.

        Args:
            path: the file; it may be the one that the original was read from.
            external_data: the name of a file next to it for the weights; where the existing model uses that file, other
                weights get a name with a hash.
            force: replace an existing file that is no result of the same file, and external data of other models; but no file
                that the call has read.

        Returns:
            The files that were written, and external data that no model uses any more.

        Raises:
            OutputError: the file cannot be written, or must not replace an existing file; no file is changed then.
            ModelError: the file that was read has changed in place since, and contains weights of the result.
        """
        if self.source is not None and external_data is None:
            if isinstance(self.source, str) and is_same_file(Path(self.source), Path(path)):
                return WrittenFiles(Path(path))
            if not onnx_io.has_external_data(self.model):
                return onnx_io.copy(self.source, path, source=self.origin, reads=self.reads, force=force)
        return onnx_io.write(self.model, path, external_data, source=self.origin, reads=self.reads, force=force)

    def split(self, folder: str | PathLike[str], *, force: bool = False) -> list[Path]:
        """Write one model per partition of a result for a platform, and `manifest.json` with their order and devices.

        Args:
            folder: the folder, which is created if there is none.
            force: replace existing files that are no results of the same file; but no file that the call has read.

        Returns:
            The files.

        Raises:
            ArgumentError: the target was no platform, or the folder is no path.
            OutputError: a file must not be replaced, and none is changed then; or one cannot be written, and there is no
                manifest then.
        """
        if not isinstance(folder, str | PathLike) or not str(folder) or "\0" in str(folder):
            raise ArgumentError("is no path", where=f"folder={folder!r:.80}", hint="name a folder")
        devices, origin = self.devices, self.origin
        return split(self.proto, Path(folder), devices=devices, source=origin, reads=self.reads, force=force)


def _restored(model: bytes, *state: Any) -> Result:
    """The result with the state that pickle and copy keep."""
    return Result(onnx_io.from_message(onnx_io.parse_message(model)), *state)


def finish(job: Job, lifted: Lifted, outcome: Outcome) -> Result:
    """The result of a call. An unchanged model is run once, if the call requests verification.

    Args:
        job: the call.
        lifted: the original; its graph is planned if the model was rewritten.
        outcome: the rewritten model, or the reason why the original stays unchanged.

    Raises:
        PinError: the original stays unchanged, without the pinned formats.
        UnverifiedError: the original stays unchanged, and ONNX Runtime refuses to run it.
    """
    reason = outcome if isinstance(outcome, str) else ""
    if reason not in ("", OPTIMISED_BEFORE) and job.stamp["pins"]:
        raise PinError("cannot be pinned: the model stays unchanged", where=min(job.stamp["pins"]), hint=reason)
    if reason and job.options.verify:
        job.verification = run_model_once(lifted.model, job.path, lifted.samples)
        if not is_too_large(lifted.model) and reason != OPTIMISED_BEFORE:
            _raise_if_refused(job, job.verification)
    model = lifted.model if isinstance(outcome, str) else outcome
    report = _report(job, model, lifted.graph, reason)
    _log(report)
    unchanged = job.source if reason else None
    origin = job.options.model
    path = str(origin) if isinstance(origin, str | PathLike) else None
    devices = tuple(each.name for each in job.context.platform.devices) if job.context.platform is not None else ()
    return Result(model, job.context.plan, report, lifted.graph, unchanged, path, _files_read(job), devices)


def _files_read(job: Job) -> tuple[Path, ...]:
    """The files that arguments name besides the model."""
    found: list[object] = []
    for given in (job.options.target, job.options.profile, job.options.custom_ops):
        found += given.split(",") if isinstance(given, str) else given if isinstance(given, list | tuple) else [given]
    return tuple(Path(each) for each in found if isinstance(each, str | PathLike) and Path(each).is_file())


def _raise_if_refused(job: Job, verdict: Verification) -> None:
    """Raise an error if ONNX Runtime refuses to run an unchanged model, unless `allow_unverified` is given.

    A model that it has no kernels, inputs or time for may be valid, and is left to the reader of the report. So is one that its
    optimisations make invalid. An earlier result, whose blocks may be those of another machine, is not checked.

    Raises:
        UnverifiedError: it refuses the model.
    """
    if not verdict.refusal or job.options.allow_unverified:
        return
    if is_loadable(job.given, is_optimised=True) or not is_loadable(job.given):
        raise UnverifiedError(f"not verified: {verdict.reason}", where=job.name, hint=UNVERIFIED)


def _log(report: Report) -> None:
    """Log the time of every pass at the level debug, and repairs and warnings at the level warning."""
    for each in report.passes:
        _LOGGER.debug("%s: pass %s took %.3f s", report.model, each.name, each.seconds)
    for where, repair in repairs_of(report.notes):
        _LOGGER.warning("%s: %s: %s", report.model, where, repair)
    for text in warnings_of(report):
        _LOGGER.warning(text)


def _report(job: Job, model: onnx_ir.Model, graph: Graph, reason: str) -> Report:
    """The report of a result, `model`, that was rewritten or, for some reason, is the original."""
    is_changed = not reason
    context, sizes, verdict = job.context, job.context.sizes, job.verification
    if context.plan is not None:
        check_bound(context.plan)
    repairs = [Note("read", where, reason) for where, reason in graph.repairs]
    context.notes[:] = [*repairs, *context.notes]
    ops, casts = graph_report(
        graph,
        context.prices_at(sizes),
        inference.evaluate_extents(graph, sizes),
        keeps_qdq_groups=context.keeps_qdq_groups,
    )
    platform = None
    if context.platform is not None and context.plan is not None:
        platform = platform_report(graph, context.platform, context.plan, ops, casts)
    nbytes = sum(tensor.nbytes for _, tensor in onnx_io.weights(model))
    report = Report(
        layoutopt_version=VERSION,
        model=job.name,
        target=context.cost_model.name,
        runtime=job.runtime.name,
        runs_in=_runs_in(job) if is_changed else "",
        dialect=job.dialect.name,
        mode=context.mode,
        sessions=context.sessions,
        changed=is_changed,
        reason=reason,
        platform=platform,
        plan=plan_report(context.plan) if context.plan is not None else None,
        before=job.counts,
        after=counts(graph, inference.evaluate_extents(graph, sizes)) if is_changed else job.counts,
        moved_before=verdict.moved_before if verdict is not None else None,
        moved_after=verdict.moved_after if verdict is not None else None,
        dims=dim_reports(sizes),
        gain=within_growth(job.gain, context.growth.requests),
        calibration=job.calibration,
        measurement=job.measurement,
        ops=ops,
        casts=casts,
        passes=[PassReport(**asdict(each)) for each in job.passes],
        notes=[NoteReport(**asdict(each)) for each in context.notes],
        portable=job.portable,
        growth=growth_report(context.growth, nbytes) if is_changed else None,
        verification=_verification_report(verdict, is_changed=is_changed),
        seconds=perf_counter() - job.start,
    )
    return report.model_copy(update={"facts": facts_of(report)})


def _runs_in(job: Job) -> str:
    """The programs that can run the result."""
    block = job.context.block
    if job.portable is not None:
        return f"{job.runtime.runs_in} with any blocks or none"
    return f"{job.runtime.runs_in}, with blocks of {block} channels" if block else job.runtime.runs_in


def plan_report(plan: Plan) -> PlanReport:
    """The numbers of a plan."""
    targets = [
        TargetReport(
            target=each.target,
            seconds_before=each.baseline,
            seconds_after=each.seconds,
            seconds_alone=each.alone,
            regret=each.regret,
        )
        for each in plan.outcomes
    ]
    return PlanReport(
        targets=targets,
        seconds_before=plan.baseline,
        seconds_after=plan.seconds,
        lower_bound=plan.lower_bound,
        gap=plan.gap,
        optimal=plan.optimal,
        stopped=plan.stopped,
        cut=plan.cut,
    )


def _verification_report(verdict: Verification | None, *, is_changed: bool) -> VerificationReport:
    if not is_changed and verdict is not None and verdict.status == "not verified":
        return VerificationReport(status=verdict.status, reason=verdict.reason.replace("the original", "the model", 1))
    if not is_changed:
        return VerificationReport(status="passed", reason="the model is the original")
    if verdict is None:
        return VerificationReport(status="off")
    worst = verdict.worst
    return VerificationReport(
        status=verdict.status,
        reason=verdict.reason,
        largest_error=None if worst is None else worst.error,
        rounding=verdict.spread,
        tolerance=None if worst is None else worst.tolerance,
        outputs_depend_on_inputs=verdict.depends_on_inputs if verdict.comparisons else None,
        block_by_definition=verdict.defined_block or None,
        sizes=[dict(each) for each in verdict.sizes],
    )
