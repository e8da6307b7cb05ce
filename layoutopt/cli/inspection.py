"""`inspect` and `explain`: the plan of a model, and the reasons for its conversions."""

import json
from itertools import count
from pathlib import Path
from typing import Any

from layoutopt import explanation, onnx_io
from layoutopt.cli.options import Given, Settings
from layoutopt.cli.output_files import OutputFiles
from layoutopt.cli.rendering.results import OpChange, explanation_documents, planned_document, price_lines
from layoutopt.cli.rendering.stderr import progress_line, warn_of_repairs
from layoutopt.cli.rendering.terminal import Document
from layoutopt.driver.options import PlanOptions
from layoutopt.driver.result import Result
from layoutopt.files import FileKind, create_folder, path_text, write_text
from layoutopt.ir.graph import Graph, to_text
from layoutopt.ir.types import Op
from layoutopt.page import OriginalGraph, page_html
from layoutopt.passes.base import Pass
from layoutopt.report.builder import planned_ops
from layoutopt.report.facts import repairs_of
from layoutopt.report.schema import OpReport
from layoutopt.report.stamp import KEY


def page_text(
    result: Result, before: OriginalGraph | None, model: Path | bytes, settings: Settings, *, is_plan: bool = False
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
    assert before is not None
    planned, prices = before.planned(result.graph, result.report), {}
    if "," not in settings.target:
        arguments = settings.arguments(PlanOptions)
        prices = price_lines(
            explanation.explain(model, None, settings.target, calibrate=settings.calibrate, **arguments)
        )
    return page_html(result.report, before.graph, planned, is_plan=is_plan, prices=prices)


def inspect(given: Given, model: Path) -> None:
    """Plan a model for a target; without a target, read the options of a model that layoutopt wrote.

    Args:
        given: the options.
        model: the file.

    Raises:
        LayoutoptError: the model, the target or an option is wrong, or a file cannot be written.
    """
    settings, folder = given.settings(model), given.dump_ir
    record = OutputFiles("inspect", given, model, reads=settings.reads)
    record.add("--html", given.html, FileKind.PAGE, lambda: page_text(result, before, model, settings, is_plan=True))
    is_planned = given.html is not None or folder is not None or given.is_set("target", model)
    if not is_planned and (stamped := _stamped(model)) is not None:
        note = "Give another --target to plan the model again."
        record.show(
            stamped, Document(title=path_text(model), aside=stamped["state"], record=stamped["stamp"], note=note)
        )
        return
    before = OriginalGraph(*settings.hardware())
    settings = settings.updated(verify=False, measure=False, calibrate=False, portable=False, inputs=())
    numbers = count()

    def watch(moment: str, current: Pass, graph: Graph) -> None:
        is_first = before.graph is None
        before(moment, current, graph)
        if folder is not None and (is_first or moment == "after"):
            create_folder(folder)
            path = folder / f"{next(numbers):02}-{moment}-{current.name}.txt"
            write_text(path, to_text(graph), FileKind.GRAPH_TEXT, record.overwrite)

    with progress_line() as progress:
        result = settings.run(model, progress=progress, watch=watch, sizes_found=before.set_sizes)
    report = result.report
    warn_of_repairs(repairs_of(report.notes))
    changes = _paired(before, planned_ops(result.graph), report.ops)
    data = report.model_dump(mode="json") | {
        "ops": [{side: each and each.model_dump(mode="json") for side, each in change.items()} for change in changes],
    }
    record.show(data, planned_document(report, changes, given.show_all))


def explain(given: Given, model: Path, item: str | None, calibrate: bool) -> None:
    """Explain the conversions of a plan, or one tensor or op of it.

    Raises:
        LayoutoptError: as for `layoutopt.explain`.
    """
    settings = given.settings(model)
    record = OutputFiles("explain", given, model, reads=settings.reads)
    arguments = settings.arguments(PlanOptions)
    with progress_line() as progress:
        found = explanation.explain(
            model, item, settings.target, limit=given.limit, calibrate=calibrate, progress=progress, **arguments
        )
    warn_of_repairs(repairs_of(found.notes))
    record.show(found, *explanation_documents(found))


def _paired(before: OriginalGraph, ops: list[Op], reports: list[OpReport]) -> list[OpChange]:
    """The reports of all ops before planning, in their order, and after it; then the ops that planning adds."""
    remaining = dict(zip(ops, reports, strict=True))
    changes: list[OpChange] = [
        {"before": old, "after": remaining.pop(op, None)} for op, old in zip(before.ops, before.reports, strict=True)
    ]
    return changes + [{"before": None, "after": new} for new in remaining.values()]


def _stamped(path: Path) -> dict[str, Any] | None:
    """The options in the metadata of a model that layoutopt wrote, and whether it was edited; None for any other model."""
    model = onnx_io.read(path)
    try:
        stamp = json.loads(model.metadata_props.get(KEY, ""))
    except ValueError:
        return None
    if not isinstance(stamp, dict):
        return None
    state = "unchanged" if stamp.get("fingerprint") == onnx_io.fingerprint(model) else "edited"
    return {"model": path_text(path), "state": f"{state} since it was written", "stamp": stamp}
