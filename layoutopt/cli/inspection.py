"""The data of `inspect`: a model before and after planning, or the stamp and the formats of a model that layoutopt wrote."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layoutopt import api, inference, onnx_io
from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.files.pages import page_text
from layoutopt.cli.rendering.progress import ProgressLine
from layoutopt.cost import CostModel, priced_with
from layoutopt.cost_models import RuntimeSpec, find_target
from layoutopt.driver.arguments import runtime_and_dialect
from layoutopt.files import FileKind, Overwrite, path_text, write_text
from layoutopt.ir.graph import DOMAIN, Graph
from layoutopt.ir.sizes import NO_SIZES, Dims, Sizes
from layoutopt.ir.types import Attribute, Op
from layoutopt.passes.base import Pass
from layoutopt.report.builder import graph_report, planned_ops
from layoutopt.report.schema import OpReport, Report
from layoutopt.report.stamp import KEY
from layoutopt.runtime.custom_ops import Libraries

if TYPE_CHECKING:  # jinja2 may be missing
    from layoutopt.page import OriginalGraph


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
        original: the graph before planning, for a page.
    """

    report: Report
    changes: list[OpChange]
    graph: Graph
    report_with_all_kernels: Report | None
    original: "OriginalGraph | None" = None


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


@dataclass(slots=True)
class _OpsBeforePlanning:
    """A pass callback that records the ops before the first pass.

    Attributes:
        target_model: the cost model with all kernels of the target.
        runtime: the runtime.
        cost_model: the cost model without the kernels that the runtime lacks.
        sizes: the sizes that the model is planned for.
        ops: the ops before the first pass.
        reports: their reports.
    """

    target_model: CostModel
    runtime: RuntimeSpec
    cost_model: CostModel
    sizes: Sizes = NO_SIZES
    ops: list[Op] = field(default_factory=list)
    reports: list[OpReport] = field(default_factory=list)

    def set_sizes(self, sizes: Sizes) -> None:
        """Store the sizes that the model is planned for."""
        self.sizes = sizes

    def __call__(self, moment: str, current: Pass, graph: Graph) -> None:
        if not self.ops:
            self.ops = planned_ops(graph)
            sizes = inference.evaluate_extents(graph, self.sizes)
            prices = priced_with(self.cost_model, sizes=sizes, epilogues=self.runtime.epilogues(graph))
            self.reports = graph_report(graph, prices, target_model=priced_with(self.target_model, sizes=sizes)).ops


def inspect_model(
    model: Path,
    target: str | None,
    runtime: str | None,
    dims: Dims,
    *,
    strict: bool = False,
    custom_ops: Libraries = (),
    records: bool = False,
) -> PlannedModel | StampedModel:
    """Plan a model for a target; without a target, read the stamp and the formats of a model that layoutopt wrote.

    Args:
        model: the file.
        target: the target's name.
        runtime: the runtime's name; None for that of the target.
        dims: sizes of symbolic dimensions.
        strict: refuse a model with a fault that onnxruntime tolerates.
        custom_ops: libraries with kernels of custom operators for onnxruntime.
        records: record the graph before planning, for a page.

    Raises:
        ExtensionError: a library of kernels cannot be loaded.
        ModelError, TargetError: the model or the target cannot be read.
        DimensionError: the model has no such symbolic dimension.
    """
    with ProgressLine() as progress:
        cost_model = find_target(target or "cpu")
        if target is None and (stamped := _read_stamped(model)) is not None:
            return stamped
        spec, _ = runtime_and_dialect(runtime, None, cost_model)
        before = _OpsBeforePlanning(cost_model, spec, spec.restricted(cost_model))
        plan = partial(
            api.optimize,
            model,
            cost_model,
            dims=dims,
            verify=False,
            strict=strict,
            custom_ops=custom_ops,
            progress=progress,
        )
        original = _recorder(cost_model, spec) if records else None
        watchers: Sequence[_OpsBeforePlanning | OriginalGraph] = [before] if original is None else [before, original]
        result = plan(
            runtime=runtime,
            watch=lambda *arguments: _call_each(watchers, *arguments),
            sizes_found=lambda sizes: _set_sizes(watchers, sizes),
        )
        if result.plan is None and (stamped := _read_stamped(model)) is not None:
            return stamped
        report_with_all_kernels = None if spec.kernels == "target" else plan(runtime="compiler").report
    changes = _paired(before, planned_ops(result.graph), result.report.ops)
    return PlannedModel(result.report, changes, result.graph, report_with_all_kernels, original)


def _recorder(cost_model: CostModel, runtime: RuntimeSpec) -> "OriginalGraph":
    from layoutopt.page import OriginalGraph

    return OriginalGraph(cost_model, runtime)


def _call_each(
    watchers: "Sequence[_OpsBeforePlanning | OriginalGraph]", moment: str, current: Pass, graph: Graph
) -> None:
    for each in watchers:
        each(moment, current, graph)


def _set_sizes(watchers: "Sequence[_OpsBeforePlanning | OriginalGraph]", sizes: Sizes) -> None:
    for each in watchers:
        each.set_sizes(sizes)


def write_inspected_page(found: PlannedModel | StampedModel, path: Path, overwrite: Overwrite) -> None:
    """Write the page of a plan.

    Raises:
        UsageError: the model is already optimised, so there is no plan.
        OutputError: the page cannot be written, or must not replace an existing file.
    """
    if isinstance(found, StampedModel) or found.original is None:
        where = f"--html {path_text(path)}"
        raise UsageError("the model is already optimised", where=where, hint="name a --target to plan it again")
    content = page_text(found.original, found.graph, found.report, is_plan=True)
    write_text(path, content, FileKind.PAGE, overwrite)


def _paired(before: _OpsBeforePlanning, ops: list[Op], reports: list[OpReport]) -> list[OpChange]:
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
