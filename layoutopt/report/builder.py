"""Builder of the report of a planned graph: the formats and costs of ops and casts, and the reason for each cast."""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf
from typing import TypeAlias

from layoutopt.cost import CostModel, Platform
from layoutopt.cost.size_growth import Growth
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph, cast_storages, is_cast, moves
from layoutopt.ir.sizes import NO_SIZES, Sizes
from layoutopt.ir.types import Op, Operands, Storage, TensorType, Value
from layoutopt.ops import QdqGroups, View, canonical_signature, physical_type, rule_of, storage_bytes
from layoutopt.ops.ops_without_rule import reason_without_signature
from layoutopt.ops.region_ops import boundary, expected_runs
from layoutopt.planner import Plan, planned_qdq_groups
from layoutopt.record import Record
from layoutopt.report.schema import (
    CastReport,
    Counts,
    DeviceReport,
    DimReport,
    GrowthReport,
    GrowthRequestReport,
    OpReport,
    PlatformReport,
)

Storages: TypeAlias = Sequence[Storage | None]


class LocatedOp(Record):
    """An op with its graph and the path of that graph.

    Attributes:
        op: the op.
        graph: the graph that contains it.
        body: the path of that graph: names of the enclosing ops and of their attributes; empty for the main graph.
        runs: the expected number of executions.
    """

    op: Op
    graph: Graph
    body: str
    runs: float


def located_ops(graph: Graph) -> list[LocatedOp]:
    """All ops of a graph and of the bodies of its control-flow ops, those of a body behind the op that has it."""
    runs = expected_runs(graph)
    found = []
    pending = [LocatedOp(op, graph, "", 1.0) for op in reversed(graph.ops)]
    while pending:
        located = pending.pop()
        found.append(located)
        bodies = located.op.bodies if boundary(located.op) is not None else {}
        for name, body in reversed(bodies.items()):
            path = f"{located.body}{'/' if located.body else ''}{located.op.name or first_output(located.op)}/{name}"
            pending += [LocatedOp(op, body, path, runs[body]) for op in reversed(body.ops)]
    return found


def planned_ops(graph: Graph) -> list[Op]:
    """All ops of a graph and its bodies but casts, in order."""
    return [located.op for located in located_ops(graph) if not is_cast(located.op)]


def graph_report(
    graph: Graph, cost_model: CostModel, sizes: Sizes, *, keeps_qdq_groups: bool = False
) -> tuple[list[OpReport], list[CastReport]]:
    """The reports of all `planned_ops` of a graph, and of all its CastData ops, in order.

    Args:
        graph: the graph; ops without a signature count as canonical.
        cost_model: prices ops and conversions, at the given sizes.
        sizes: of symbolic dimensions.
        keeps_qdq_groups: whether QDQ groups stay as they are.
    """
    found = located_ops(graph)
    runs = {located.graph: located.runs for located in found}
    groups = planned_qdq_groups(runs, cost_model, keeps_them=keeps_qdq_groups)
    ops = [_op_report(located, groups, cost_model) for located in found if not is_cast(located.op)]
    return ops, list(_cast_reports(found, cost_model, sizes))


def _op_report(located: LocatedOp, groups: QdqGroups, cost_model: CostModel) -> OpReport:
    op, graph = located.op, located.graph
    signature, rule, moves = op.signature or canonical_signature(op), rule_of(op), moves_data(op)
    is_free = op in groups.fused_into_kernels or boundary(op) is not None
    seconds = 0.0 if is_free else cost_model.kernel_seconds(groups.kernel_op(op), signature)
    reason = reason_without_signature(op)
    if moves and isinstance(rule, View):
        source, target = signature.inputs[0], signature.outputs[0]
        assert source is not None and target is not None
        same, left = rule.output_format(op, source.format), "no format has its input's bytes under the new axes"
        if same is not None:
            seconds += cost_model.conversion_seconds(op.y, Storage(same), target)
            left = f"its input has the format {op.y.format_text(same)}"
        reason = f"{left}, {_readers(graph, op.y)} requires {target.text(_letters(op.y))}"
    return OpReport(
        name=op.name or first_output(op),
        kind=op.kind,
        inputs=_texts(op.inputs, signature.inputs),
        outputs=_texts(op.outputs, signature.outputs),
        input_axes=_axes(op.inputs, signature.inputs),
        output_axes=_axes(op.outputs, signature.outputs),
        seconds=seconds * located.runs,
        moves_data=moves,
        body=located.body,
        device=op.device,
        reason=reason,
    )


def growth_report(growth: Growth, size: int) -> GrowthReport:
    """The growth requests, the largest first; `size` is that of all constants of the result, in bytes."""
    rows = sorted(growth.requests, key=lambda each: each.nbytes, reverse=True)
    requests = [GrowthRequestReport.model_validate(each, from_attributes=True) for each in rows]
    return GrowthReport(
        max_growth=growth.max_growth, bytes_before=growth.source_bytes, bytes_after=size, requests=requests
    )


def _texts(values: Operands, storages: Storages) -> list[str | None]:
    """The storages of operands, with the letters of their axes."""
    operands = zip(values, storages, strict=True)
    return [None if storage is None else storage.text(_letters(value)) for value, storage in operands]


def _axes(values: Operands, storages: Storages) -> list[str | None]:
    """The logical axes of operands, as `_texts` names them."""
    canonical = [storage and Storage.canonical(storage.format.rank) for storage in storages]
    return _texts(values, canonical)


def _letters(value: Value | None) -> str:
    return (value.axis_letters if value is not None else None) or ""


def moves_data(op: Op) -> bool:
    """Whether a view op moves bytes under its signature; an op without a signature is canonical on both sides."""
    rule = rule_of(op)
    return isinstance(rule, View) and rule.moves_bytes(op, op.signature or canonical_signature(op))


def _cast_reports(found: Sequence[LocatedOp], cost_model: CostModel, sizes: Sizes) -> Iterator[CastReport]:
    for located in found:
        op = located.op
        if not is_cast(op):
            continue
        source, copy, (src, dst) = op.x, op.y, cast_storages(op)
        producer = located.graph.producer(source)
        if producer is not None:
            writer = f"{producer.kind} {producer.name or source.name}"
        else:
            writer = "a constant" if source.is_constant else f"{_boundary(located.graph)} input"
        has, required = src.placed_text(_letters(source)), dst.placed_text(_letters(copy))
        yield CastReport(
            name=op.name,
            tensor=source.tensor,
            src=source.storage_text,
            dst=copy.storage_text,
            axes=copy.format_text(Format.canonical(dst.format.rank)),
            bytes=physical_bytes(source, sizes) + physical_bytes(copy, sizes),
            seconds=cost_model.conversion_seconds(source, src, dst) * located.runs,
            moves_data=moves(source, dst),
            device=op.device,
            transferred=_transferred(op, sizes),
            is_weight=source.is_constant,
            body=located.body,
            reason=f"{writer} produces {has}, {_readers(located.graph, copy)} requires {required}",
        )


def _transferred(cast: Op, sizes: Sizes) -> int:
    """The bytes of a cast that cross a link: before or after the change of the format, by the device that makes it."""
    source, copy = cast_storages(cast)
    if source.is_on(copy.device):
        return 0
    return physical_bytes(cast.y if cast.device == source.device else cast.x, sizes)


def platform_report(
    graph: Graph, platform: Platform, plan: Plan, ops: Sequence[OpReport], casts: Sequence[CastReport]
) -> PlatformReport:
    """The devices of a planned graph and its transfers, from the reports of its ops and casts."""
    constants, transfers = Counter[str](), [each for each in casts if each.transferred]
    others = plan.platform
    assert others is not None
    for device, value in {(op.device, value) for op in planned_ops(graph) for value in op.inputs}:
        if value is not None and value.is_constant and value.storage is not None:
            constants[device] += round(storage_bytes(value, value.storage))

    def finite(seconds: float) -> float | None:
        return seconds if seconds < inf else None

    devices = [
        DeviceReport(
            device=each.name,
            target=each.model.name,
            ops=sum(op.device == each.name for op in ops),
            seconds=sum(op.seconds for op in ops if op.device == each.name),
            constants=constants[each.name],
            seconds_alone=finite(others.alone[each.name]),
        )
        for each in platform.devices
    ]
    return PlatformReport(
        devices=devices,
        transfers=len(transfers),
        bytes=sum(each.transferred for each in transfers),
        seconds=sum(each.seconds for each in transfers),
        seconds_placed_first=finite(others.placed_first),
    )


def _readers(graph: Graph, value: Value) -> str:
    readers = [f"{use.op.kind} {use.op.name or ''}".strip() for use in graph.uses(value)[:3]]
    if graph.is_output(value):
        readers.append(f"{_boundary(graph)} output")
    return ", ".join(readers) or "no op"


def _boundary(graph: Graph) -> str:
    return "the graph" if graph.root is graph else "the body"


def counts(graph: Graph, sizes: Sizes = NO_SIZES) -> Counts:
    """The numbers and bytes of casts and view ops that move bytes; those in bodies count once, their bytes once per run.

    Args:
        graph: a planned graph, or one without signatures, whose ops count as canonical.
        sizes: sizes of symbolic dimensions, over which bytes are means.
    """
    found, nbytes = Counter[str](), 0
    for located in located_ops(graph):
        op = located.op
        source, result = (op.inputs or (None,))[0], (op.outputs or (None,))[0]
        if source is None or result is None:
            continue
        is_weight = all(value.is_constant for value in op.present_inputs)
        if is_cast(op):
            found["weight_casts"] += is_weight
            is_moving = result.storage is not None and moves(source, result.storage)
        else:
            is_moving = moves_data(op)
        if is_moving and not is_weight:
            found["casts" if is_cast(op) else "transposes"] += 1
            nbytes += round((physical_bytes(source, sizes) + physical_bytes(result, sizes)) * located.runs)
    return Counts(**found, bytes=nbytes)


def physical_bytes(value: Value, sizes: Sizes, storage: Storage | None = None) -> int:
    """The bytes of a tensor with its padding elements, the mean over the sizes; 0 if its shape is unknown.

    Args:
        value: the tensor.
        sizes: of symbolic dimensions.
        storage: the storage; that of the tensor if None.
    """
    if not isinstance(value.type, TensorType) or value.shape is None:
        return 0
    shape = physical_type(value, storage or value.storage).shape
    return round(sizes.elements(shape or ()) * value.type.dtype.bits / 8)


def first_output(op: Op) -> str:
    """The name of the first output of an op, which identifies an op without a name."""
    return next((value.name for value in op.present_outputs), "")


def dim_reports(sizes: Sizes) -> list[DimReport]:
    """The symbolic dimensions with their sizes in the plan."""
    return [
        DimReport(name=name, low=low, high=high, assumed=name in sizes.assumed, reason=sizes.reasons.get(name, ""))
        for name, (low, high) in sizes.ranges.items()
    ]
