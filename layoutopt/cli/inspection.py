"""What `inspect` finds: a model before and after, or what a model of ours says of itself."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layoutopt import api, onnx_io
from layoutopt.cli.exit_codes import UsageError
from layoutopt.cli.files.pictures import write_picture
from layoutopt.cli.rendering.progress import Steps
from layoutopt.cost import CostModel, sized
from layoutopt.cost_models import find_target
from layoutopt.files import Overwrite, path_text
from layoutopt.ir.cast import DOMAIN
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import NO_SIZES, Dims, Sizes
from layoutopt.ir.types import Attribute, Op
from layoutopt.passes.base import Pass
from layoutopt.report.builder import op_reports, planned_ops
from layoutopt.report.schema import OpReport, Report
from layoutopt.report.stamp import KEY
from layoutopt.runtime.custom_ops import Libraries


@dataclass(frozen=True, slots=True)
class Change:
    """One op, before and after; None where it is not there."""

    before: OpReport | None
    after: OpReport | None

    @property
    def op(self) -> OpReport:
        """The op as it was, or as it is if it is new."""
        op = self.before or self.after
        assert op is not None
        return op


@dataclass(frozen=True, slots=True)
class Planned:
    """A model with a plan for a target."""

    report: Report
    changes: list[Change]
    graph: Graph


@dataclass(frozen=True, slots=True)
class Call:
    """One op of a model of ours, and what it says of its formats; empty where it says nothing."""

    name: str
    kind: str
    formats: str
    is_cast: bool = False


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a model of ours says of itself.

    Attributes:
        model: the file.
        stamp: what it was made for.
        is_intact: whether it is as it was written.
        calls: its ops.
    """

    model: str
    stamp: dict[str, Any]
    is_intact: bool
    calls: list[Call]


@dataclass(slots=True)
class _Before:
    """The ops before the first pass, which is called around every pass."""

    cost_model: CostModel
    sizes: Sizes = NO_SIZES
    ops: list[Op] = field(default_factory=list)
    reports: list[OpReport] = field(default_factory=list)

    def take_sizes(self, sizes: Sizes) -> None:
        """Keep the sizes that the model is planned for."""
        self.sizes = sizes

    def __call__(self, moment: str, step: Pass, graph: Graph) -> None:
        if not self.ops:
            self.ops = planned_ops(graph)
            self.reports = op_reports(graph, sized(self.cost_model, onnx_io.measure(graph, self.sizes)))


def survey(
    model: Path, target: str | None, dims: Dims, *, strict: bool = False, custom_ops: Libraries = ()
) -> Planned | Recorded:
    """Plan a model for a target; without one, let a model of ours speak for itself.

    Args:
        model: the file.
        target: the target's name.
        dims: sizes of symbolic dimensions.
        strict: refuse a model with a fault that onnxruntime tolerates.
        custom_ops: libraries with kernels of custom operators for onnxruntime.

    Raises:
        ExtensionError: a library of kernels cannot be loaded.
        ModelError, TargetError: the model or the target cannot be read.
        DimensionError: the model has no such symbolic dimension.
    """
    with Steps() as steps:
        cost_model = find_target(target or "cpu")
        if target is None and (recorded := _recorded(model)) is not None:
            return recorded
        before = _Before(cost_model)
        result = api.optimize(
            model,
            cost_model,
            dims=dims,
            verify=False,
            strict=strict,
            custom_ops=custom_ops,
            watch=before,
            progress=steps,
            sizes_found=before.take_sizes,
        )
        if result.plan is None and (recorded := _recorded(model)) is not None:
            return recorded
    return Planned(result.report, _paired(before, planned_ops(result.graph), result.report.ops), result.graph)


def draw_survey(found: Planned | Recorded, path: Path, rule: Overwrite) -> None:
    """Draw a plan.

    Raises:
        UsageError: nothing was planned.
        OutputError: the picture cannot be written, or must not replace what is there.
    """
    from layoutopt.plot import draw_plan

    if isinstance(found, Recorded):
        raise UsageError("has been optimised already", where=f"--plot {path}", hint="name a --target to plan it again")
    title = f"{Path(found.report.model).name}, {found.report.target}"
    write_picture(draw_plan(found.graph, title), path, rule)


def _paired(before: _Before, ops: list[Op], reports: list[OpReport]) -> list[Change]:
    """Every op before with itself after, then those that are new."""
    left = dict(zip(ops, reports, strict=True))
    changes = [Change(old, left.pop(op, None)) for op, old in zip(before.ops, before.reports, strict=True)]
    return changes + [Change(None, new) for new in left.values()]


def _recorded(path: Path) -> Recorded | None:
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
    return Recorded(
        path_text(path), stamp, is_intact, [_call(op) for each in onnx_io.lift(model).nest() for op in each.ops]
    )


def _call(op: Op) -> Call:
    if not f"{op.domain}.".startswith(f"{DOMAIN}."):
        return Call(op.name, op.kind, "")
    if "src_format" in op.attributes:
        formats = f"{op.attributes['src_format']} -> {op.attributes.get('dst_format', '?')}"
    elif "input_formats" in op.attributes:
        formats = " -> ".join(_listed(op.attributes.get(side)) for side in ("input_formats", "output_formats"))
    else:
        formats = str(op.attributes.get("formats", ""))
    return Call(op.name, op.op_type, formats.replace("->", "→"), "src_format" in op.attributes)


def _listed(formats: Attribute | None) -> str:
    names = formats if isinstance(formats, tuple) else ()
    return f"({', '.join(str(each) or '-' for each in names)})"
