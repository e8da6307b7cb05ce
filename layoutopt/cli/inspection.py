"""`inspect`: a model before and after planning, or the stamp and the formats of a model that layoutopt wrote."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layoutopt import inference, onnx_io
from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.options import Given, Settings
from layoutopt.cli.output_files import JsonRecord
from layoutopt.cli.rendering.results import OpChange, planned_document, price_lines, stamped_document
from layoutopt.cli.rendering.stderr import ProgressLine, warn_of_repairs
from layoutopt.driver.arguments import cost_model_of, runtime_and_dialect
from layoutopt.driver.job import pipeline_for
from layoutopt.driver.options import PlanOptions
from layoutopt.driver.result import Result
from layoutopt.files import FileKind, Overwrite, create_folder, output_errors, path_text, write_text
from layoutopt.ir.graph import DOMAIN, Graph, to_text
from layoutopt.ir.types import Attribute, Op
from layoutopt.passes.base import Pass, Pipeline
from layoutopt.report.builder import planned_ops
from layoutopt.report.facts import repairs_of
from layoutopt.report.printable import printable
from layoutopt.report.schema import OpReport
from layoutopt.report.stamp import KEY

if TYPE_CHECKING:
    from layoutopt.page import OriginalGraph

_FIELDS = ("model", "target", "runtime", "dialect", "reason", "dims", "plan", "gain", "facts", "casts", "notes")
_STAMPED = {"version", "target", "dialect", "mode", "pins"}


def original_graph(settings: Settings) -> "OriginalGraph":
    """The pass callback that records the graph before planning.

    Raises:
        ArgumentError, TargetError: there is no such target, runtime or dialect.
    """
    from layoutopt.page import OriginalGraph

    hardware = cost_model_of(settings.target)
    return OriginalGraph(hardware, runtime_and_dialect(settings.runtime, settings.dialect, hardware)[0])


def page_text(
    result: Result, before: "OriginalGraph | None", model: Path | bytes, settings: Settings, *, is_plan: bool = False
) -> str:
    """The page of a result, with the prices of its conversions; without these for several targets.

    Args:
        result: the result.
        before: the graph before planning.
        model: the original.
        settings: its options.
        is_plan: whether the run only planned.

    Raises:
        LayoutoptError: as for `layoutopt.explain`.
    """
    from layoutopt.explanation import explain
    from layoutopt.page import page_html

    assert before is not None
    planned, prices = before.planned(result.graph, result.report), {}
    if "," not in settings.target:
        arguments = settings.arguments(PlanOptions)
        prices = price_lines(explain(model, None, settings.target, calibrate=settings.calibrate, **arguments))
    return page_html(result.report, before.graph, planned, is_plan=is_plan, prices=prices)


def run_inspect(model: Path, given: Given) -> None:
    """Plan a model for a target; without a target, read the stamp and the formats of a model that layoutopt wrote.

    Args:
        model: the file.
        given: the options.

    Raises:
        LayoutoptError: the model, the target or an option is wrong, or a file cannot be written.
    """
    settings = given.settings(model)
    record = JsonRecord("inspect", given, model, reads=settings.reads)
    record.add("--html", given.html, FileKind.PAGE, lambda: page_text(result, before, model, settings, is_plan=True))
    pipeline = pipeline_for(settings.mode, settings.target, settings.runtime, settings.dialect)
    dumps = [Dump(each, pipeline, record.overwrite) for each in given.dump_ir]
    stamped = None if given.is_set("target", model) else _stamped(model)
    if stamped is None:
        before = original_graph(settings)
        settings = settings.updated(verify=False, measure=False, calibrate=False, portable=False, inputs=())

        def watch(*arguments: Any) -> None:
            before(*arguments)
            for each in dumps:
                each(*arguments)

        with ProgressLine() as progress:
            result = settings.run(model, progress=progress, watch=watch, sizes_found=before.set_sizes)
        stamped = _stamped(model) if result.plan is None else None  # it was optimised like this before
    if stamped is not None:
        if given.html is not None:
            where = f"--html {path_text(given.html)}"
            raise UsageError("the model is already optimised", where=where, hint="name a --target to plan it again")
        record.show(stamped, stamped_document(stamped, given.show_all))
        return
    report = result.report
    warn_of_repairs(repairs_of(report.notes))

    changes = _paired(before, planned_ops(result.graph), report.ops)
    fields = report.model_dump(mode="json")
    data = {key: fields[key] for key in _FIELDS} | {
        "improves": report.changed,
        "counts": {"before": fields["before"], "after": fields["after"]},
        "ops": [{side: each and each.model_dump(mode="json") for side, each in change.items()} for change in changes],
    }
    record.show(data, planned_document(report, changes, given.show_all))


def _paired(before: "OriginalGraph", ops: list[Op], reports: list[OpReport]) -> list[OpChange]:
    """The reports of all ops before planning, in their order, and after it; then the ops that planning adds."""
    remaining = dict(zip(ops, reports, strict=True))
    changes: list[OpChange] = [
        {"before": old, "after": remaining.pop(op, None)} for op, old in zip(before.ops, before.reports, strict=True)
    ]
    return changes + [{"before": None, "after": new} for new in remaining.values()]


def _stamped(path: Path) -> dict[str, Any] | None:
    """A model that layoutopt wrote, described by its own metadata; None for any other."""
    model = onnx_io.read(path)
    try:
        stamp = json.loads(model.metadata_props.get(KEY, ""))
    except ValueError:
        return None
    if not isinstance(stamp, dict) or not stamp.keys() >= _STAMPED:
        return None
    is_intact = stamp.get("fingerprint") == onnx_io.fingerprint(model)
    ops = [_stamped_op(op) for each in inference.lift(model).regions() for op in each.ops]
    return {"model": path_text(path), "stamp": stamp, "is_intact": is_intact, "ops": ops}


def _stamped_op(op: Op) -> dict[str, Any]:
    """An op with its formats, which are empty for a standard ONNX op."""
    attributes, formats = op.attributes, ""
    if f"{op.domain}.".startswith(f"{DOMAIN}."):
        sides = (attributes.get(side) for side in ("input_formats", "output_formats"))
        formats = str(attributes.get("formats", " -> ".join(map(_format_list, sides))))
        if "src_format" in attributes:
            formats = f"{attributes['src_format']} -> {attributes.get('dst_format', '?')}"
    kind = op.op_type if formats else op.kind
    return {"name": op.name, "kind": kind, "formats": formats.replace("->", "→"), "is_cast": "src_format" in attributes}


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
