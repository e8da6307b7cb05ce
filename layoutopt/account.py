"""What a planned graph amounts to: formats, casts and moved bytes per op, and why each cast is there."""

from collections.abc import Iterator

from layoutopt.cost import CostModel
from layoutopt.ir.cast import is_cast, moves
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Signature, Storage, TensorType, Value
from layoutopt.ops import Rename, canonical_signature, elements, physical_type, rule_of
from layoutopt.report import CastReport, Counts, OpReport


def op_reports(graph: Graph, cost_model: CostModel) -> list[OpReport]:
    """Every op but the casts, in order."""
    return [_op_report(graph, op, cost_model) for op in graph.ops if not is_cast(op)]


def _op_report(graph: Graph, op: Op, cost_model: CostModel) -> OpReport:
    signature = op.signature if op.signature is not None else canonical_signature(op)
    moves = moves_data(op)
    seconds = cost_model.kernel_seconds(op, signature)
    if moves:
        seconds += _move_seconds(op, signature, cost_model)
    return OpReport(
        name=op.name or _first_output(op),
        kind=op.kind,
        inputs=[None if storage is None else str(storage) for storage in signature.inputs],
        outputs=[None if storage is None else str(storage) for storage in signature.outputs],
        seconds=seconds,
        moves_data=moves,
        reason=_why_moved(graph, op, signature) if moves else "",
    )


def moves_data(op: Op) -> bool:
    """Whether a rename moves bytes after all. An op without a signature is as the model has it: canonical on both sides."""
    rule = rule_of(op)
    if not isinstance(rule, Rename):
        return False
    if op.signature is not None:
        return rule.moves(op)
    op.signature = canonical_signature(op)
    try:
        return rule.moves(op)
    finally:
        op.signature = None


def _why_moved(graph: Graph, op: Op, signature: Signature) -> str:
    rule, y, source, target = rule_of(op), op.outputs[0], signature.inputs[0], signature.outputs[0]
    assert isinstance(rule, Rename) and y is not None and source is not None and target is not None
    same = rule.forward(op, source.format)
    left = f"its input lies as {same}" if same is not None else "no format has its input's bytes under the new axes"
    return f"{left}, {_readers(graph, y)} wants {target}"


def _move_seconds(op: Op, signature: Signature, cost_model: CostModel) -> float:
    rule, y = rule_of(op), op.outputs[0]
    assert isinstance(rule, Rename) and y is not None
    source, target = signature.inputs[0], signature.outputs[0]
    same = rule.forward(op, source.format) if source is not None else None
    return cost_model.conversion_seconds(y, Storage(same), target) if same is not None and target is not None else 0.0


def cast_reports(graph: Graph, cost_model: CostModel) -> list[CastReport]:
    """Every CastData, in order."""
    return list(_cast_reports(graph, cost_model))


def _cast_reports(graph: Graph, cost_model: CostModel) -> Iterator[CastReport]:
    for op in graph.ops:
        if not is_cast(op):
            continue
        source, copy = op.inputs[0], op.outputs[0]
        assert source is not None and copy is not None and source.storage is not None and copy.storage is not None
        yield CastReport(
            name=op.name,
            tensor=source.tensor,
            src=str(source.storage),
            dst=str(copy.storage),
            bytes=_bytes(source) + _bytes(copy),
            seconds=cost_model.conversion_seconds(source, source.storage, copy.storage),
            moves_data=moves(source, copy.storage),
            is_weight=source.is_constant,
            reason=_reason(graph, source, copy),
        )


def _reason(graph: Graph, source: Value, copy: Value) -> str:
    producer = graph.producer(source)
    if producer is None:
        writer = "a constant" if source.is_constant else "the graph input"
    else:
        writer = f"{producer.kind} {producer.name or source.name}"
    return f"{writer} leaves {source.storage}, {_readers(graph, copy)} wants {copy.storage}"


def _readers(graph: Graph, value: Value) -> str:
    readers = [f"{use.op.kind} {use.op.name or ''}".strip() for use in graph.uses(value)[:3]]
    if graph.is_output(value):
        readers.append("the graph output")
    return ", ".join(readers) or "nobody"


def counts(graph: Graph) -> Counts:
    """How many casts and renames move bytes."""
    casts = [(op.inputs[0], op.outputs[0]) for op in graph.ops if is_cast(op)]
    weights = [source for source, _ in casts if source is not None and source.is_constant]
    moving = [
        source
        for source, copy in casts
        if source is not None
        and copy is not None
        and copy.storage is not None
        and not source.is_constant
        and moves(source, copy.storage)
    ]
    renames = [op for op in graph.ops if moves_data(op) and not all(v is None or v.is_constant for v in op.inputs)]
    return Counts(casts=len(moving), transposes=len(renames), weight_casts=len(weights))


def _bytes(value: Value) -> int:
    if not isinstance(value.type, TensorType) or value.shape is None:
        return 0
    shape = physical_type(value, value.storage).shape
    return elements(shape or ()) * value.type.dtype.bits // 8


def _first_output(op: Op) -> str:
    return next((value.name for value in op.outputs if value is not None), "")
