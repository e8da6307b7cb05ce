"""`inspect`: a model before and after planning, or the stamp and the formats of a model that layoutopt wrote."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from layoutopt import inference, onnx_io
from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.options import Given, Settings
from layoutopt.cli.output_files import JsonRecord, TextFiles
from layoutopt.cli.rendering.stderr import ProgressLine, warn_of_repairs
from layoutopt.driver.arguments import cost_model_of, runtime_and_dialect
from layoutopt.driver.job import pipeline_for
from layoutopt.files import FileKind, Overwrite, create_folder, output_errors, path_text, write_text
from layoutopt.ir.graph import DOMAIN, Graph, to_text
from layoutopt.ir.types import Attribute, Op
from layoutopt.passes.base import Pass, Pipeline, Watch
from layoutopt.report.builder import OriginalOps, planned_ops
from layoutopt.report.facts import repairs_of
from layoutopt.report.printable import printable
from layoutopt.report.schema import OpReport, Report
from layoutopt.report.stamp import KEY

if TYPE_CHECKING:
    from layoutopt.page import OriginalGraph

_FIELDS = ("model", "target", "runtime", "dialect", "reason", "dims", "plan", "gain", "facts", "casts", "notes")


@dataclass(frozen=True, slots=True)
class OpChange:
    """One op before and after planning; None on the side where the op does not exist."""

    before: OpReport | None
    after: OpReport | None

    @property
    def op(self) -> OpReport:
        """The op before planning, or after planning if the op is new."""
        op = self.before or self.after
        assert op is not None
        return op


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """A model and its plan for a target.

    Attributes:
        report: the report of the plan.
        changes: its ops before and after planning.
        graph: the planned graph.
        report_with_all_kernels: the report of the plan with all kernels of the target; None if the runtime has them all.
    """

    report: Report
    changes: list[OpChange]
    graph: Graph
    report_with_all_kernels: Report | None


@dataclass(frozen=True, slots=True)
class StampedOp:
    """An op of a model that layoutopt wrote; `formats` is empty for a standard ONNX op."""

    name: str
    kind: str
    formats: str
    is_cast: bool = False


@dataclass(frozen=True, slots=True)
class StampedModel:
    """A model that layoutopt wrote, described by its own metadata.

    Attributes:
        model: the file.
        stamp: the metadata that `optimize` wrote: version, target, dialect, mode, pins.
        is_intact: whether the model is unchanged since it was written.
        ops: the ops of the model and of the bodies of its ops.
    """

    model: str
    stamp: dict[str, Any]
    is_intact: bool
    ops: list[StampedOp]


def original_graph(settings: Settings) -> "OriginalGraph":
    """The pass callback that records the graph before planning, for the page of `--html`.

    Raises:
        ArgumentError, TargetError: there is no such target, runtime or dialect.
    """
    from layoutopt.page import OriginalGraph

    hardware = cost_model_of(settings.target)
    return OriginalGraph(hardware, runtime_and_dialect(settings.runtime, settings.dialect, hardware)[0])


def run_inspect(model: Path, given: Given) -> None:
    """Plan a model for a target; without a target, read the stamp and the formats of a model that layoutopt wrote.

    Args:
        model: the file.
        given: the options.

    Raises:
        LayoutoptError: the model, the target or an option is wrong, or a file cannot be written.
    """
    from layoutopt.cli.rendering.results import planned_document, stamped_document  # which imports this module

    settings = given.settings(model)
    texts = TextFiles(Overwrite((model,), None, given.force, settings.reads, "inspect"))
    texts.add("--html", given.html, FileKind.PAGE)
    texts.check()
    page = original_graph(settings) if given.html is not None else None
    pages = [] if given.html is None else [given.html]
    record = JsonRecord("inspect", given, model, others=pages, reads=settings.reads)
    is_requested = given.is_set("target", model)
    pipeline = pipeline_for(settings.mode, settings.target, settings.runtime, settings.dialect)
    dumps = [Dump(each, pipeline, texts.overwrite) for each in given.dump_ir]
    with ProgressLine() as progress:
        found: PlannedModel | StampedModel | None = None if is_requested else _read_stamped(model)
        if found is None:
            found = _planned(model, settings, page, dumps, progress)
    if isinstance(found, PlannedModel):
        warn_of_repairs(repairs_of(found.report.notes))
    if page is not None:
        if isinstance(found, StampedModel):
            where = f"--html {path_text(given.html)}"
            raise UsageError("the model is already optimised", where=where, hint="name a --target to plan it again")
        from layoutopt.page import page_html

        planned = page.planned(found.graph, found.report)
        with texts.staged(lambda option: page_html(found.report, page.graph, planned, is_plan=True)):
            pass
    if isinstance(found, StampedModel):
        record.show(asdict(found), stamped_document(found, given.show_all), written=texts.files)
    else:
        record.show(_record(found), planned_document(found, given.show_all), written=texts.files)


def _record(found: PlannedModel) -> dict[str, Any]:
    report, with_all_kernels = found.report, found.report_with_all_kernels
    fields = _fields(report)
    return {key: fields[key] for key in _FIELDS} | {
        "improves": report.changed,
        "unlimited_plan": _fields(with_all_kernels.plan) if with_all_kernels is not None else None,
        "counts": {"before": fields["before"], "after": fields["after"]},
        "ops": [{"before": _fields(each.before), "after": _fields(each.after)} for each in found.changes],
    }


def _fields(record: BaseModel | None) -> Any:
    return record.model_dump(mode="json") if record is not None else None


def _planned(
    model: Path, settings: Settings, page: "OriginalGraph | None", dumps: "Sequence[Dump]", progress: ProgressLine
) -> PlannedModel | StampedModel:
    """The plan of a model; its stamp if it was optimised like this before."""
    cost_model = cost_model_of(settings.target)
    runtime, _ = runtime_and_dialect(settings.runtime, settings.dialect, cost_model)
    before = OriginalOps(cost_model, runtime) if page is None else page
    callbacks: list[Watch] = [before, *dumps]
    settings = settings.updated(verify=False, measure=False, calibrate=False, portable=False, inputs=())

    def watch(*arguments: Any) -> None:
        for each in callbacks:
            each(*arguments)

    result = settings.run(model, progress=progress, watch=watch, sizes_found=before.set_sizes)
    if result.plan is None and (stamped := _read_stamped(model)) is not None:
        return stamped
    with_all_kernels = None
    if runtime.kernels != "target":
        with_all_kernels = settings.updated(runtime="compiler", dialect=None).run(model, progress=progress).report
    changes = _paired(before, planned_ops(result.graph), result.report.ops)
    return PlannedModel(result.report, changes, result.graph, with_all_kernels)


def _paired(before: OriginalOps, ops: list[Op], reports: list[OpReport]) -> list[OpChange]:
    """The changes of all ops before planning, in their order; then the ops that planning adds."""
    remaining = dict(zip(ops, reports, strict=True))
    changes = [OpChange(old, remaining.pop(op, None)) for op, old in zip(before.ops, before.reports, strict=True)]
    return changes + [OpChange(None, new) for new in remaining.values()]


def _read_stamped(path: Path) -> StampedModel | None:
    model = onnx_io.read(path)
    if KEY not in model.metadata_props:
        return None
    try:
        stamp = json.loads(model.metadata_props[KEY])
    except ValueError:
        return None
    if not isinstance(stamp, dict) or not {"version", "target", "dialect", "mode", "pins"} <= stamp.keys():
        return None
    is_intact = stamp.get("fingerprint") == onnx_io.fingerprint(model)
    return StampedModel(
        path_text(path),
        stamp,
        is_intact,
        [_stamped_op(op) for each in inference.lift(model).regions() for op in each.ops],
    )


def _stamped_op(op: Op) -> StampedOp:
    if not f"{op.domain}.".startswith(f"{DOMAIN}."):
        return StampedOp(op.name, op.kind, "")
    if "src_format" in op.attributes:
        formats = f"{op.attributes['src_format']} -> {op.attributes.get('dst_format', '?')}"
    elif "input_formats" in op.attributes:
        formats = " -> ".join(_format_list(op.attributes.get(side)) for side in ("input_formats", "output_formats"))
    else:
        formats = str(op.attributes.get("formats", ""))
    return StampedOp(op.name, op.op_type, formats.replace("->", "→"), "src_format" in op.attributes)


def _format_list(formats: Attribute | None) -> str:
    names = formats if isinstance(formats, tuple) else ()
    return f"({', '.join(str(each) or '-' for each in names)})"


class Dump:
    """A pass callback that writes the graph as text, as one value of `--dump-ir` requests it.

    before:PASS, after:PASS      the graph before or after one pass
    all                          the graph before the first pass and after every pass
    ...=FOLDER                   written to files in FOLDER instead of stderr

    Args:
        request: the value.
        pipeline: the passes.
        overwrite: the rule for existing files.

    Raises:
        UsageError: the value is none of the forms above, or there is no such pass.
    """

    def __init__(self, request: str, pipeline: Pipeline, overwrite: Overwrite) -> None:
        position, _, folder = request.partition("=")
        self._moment, _, self._pass = position.partition(":")
        self._folder = Path(folder) if folder else None
        self._overwrite, self._number = overwrite, 0
        where = f"--dump-ir {request}"
        if position != "all" and self._moment not in ("before", "after"):
            hint = "write before:PASS, after:PASS or all[=FOLDER]"
            raise UsageError("not a position in the pipeline", where=where, hint=hint)
        names = [each.name for each in pipeline.passes]
        if position != "all" and self._pass not in names:
            hint = f"there are {', '.join(dict.fromkeys(names))}"
            raise UsageError(f"no pass '{self._pass}'", where=where, hint=hint)

    def __call__(self, moment: str, current: Pass, graph: Graph) -> None:
        """Write the graph, if this moment of a pass is requested."""
        self._number += moment == "before"
        if self._moment == "all":
            is_requested = moment == "after" or self._number == 1
        else:
            is_requested = (moment, current.name) == (self._moment, self._pass)
        if is_requested:
            number = self._number if moment == "after" else self._number - 1
            self._write(f"{number:02}-{moment}-{current.name}", to_text(graph))

    def _write(self, title: str, content: str) -> None:
        if self._folder is None:
            with output_errors(Path("stderr")):
                print(f"# {title}", *map(printable, content.splitlines()), "", sep="\n", file=sys.stderr, flush=True)
            return
        path = self._folder / f"{title}.txt"
        create_folder(self._folder)
        write_text(path, content, FileKind.GRAPH_TEXT, self._overwrite)
