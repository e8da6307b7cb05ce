"""CastData: the op that copies one logical tensor from one storage into another."""

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Padding, Signature, Storage, Value

DOMAIN = "layoutopt"
CAST = "CastData"


def is_cast(op: Op | None) -> bool:
    """Whether an op is a CastData."""
    return op is not None and op.op_type == CAST and op.domain == DOMAIN


def storage_name(tensor: str, storage: Storage) -> str:
    """The name of a copy of a logical tensor in a storage."""
    return tensor if storage.format.is_canonical else f"{tensor}__{storage.format}"


def moves(value: Value, wanted: Storage) -> bool:
    """Whether the conversion of a value to a storage changes bytes: their order, or the padding elements."""
    if value.storage is None or value.shape is None:
        return False
    return not value.storage.satisfies(wanted, value.shape)


def insert_cast(graph: Graph, value: Value, wanted: Storage) -> Value:
    """Add a CastData of `value` right behind its producer; the result is the same tensor, to be read as `wanted`.

    Its padding is zero, or that of the source if the bytes need not move.
    """
    assert value.storage is not None
    storage = Storage(wanted.format, Padding.ZERO if moves(value, wanted) else value.storage.padding)
    result = graph.new_value(
        storage_name(value.tensor, storage), value.type, storage=storage, tensor=value.tensor, origin=value.origin
    )
    op = Op(CAST, (value,), (result,), domain=DOMAIN, version=1, name=f"{CAST}_{result.name}")
    op.signature = Signature((value.storage,), (storage,))
    producer = graph.producer(value)
    graph.add_op(op, near=producer, first=producer is None)
    return result
