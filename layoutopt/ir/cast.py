"""CastData: the op that copies one logical tensor from one storage into another."""

from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Padding, Signature, Storage, Value

DOMAIN = "layoutopt"
CAST = "CastData"


def is_cast(op: Op | None) -> bool:
    """Whether an op is a CastData."""
    return op is not None and op.op_type == CAST and op.domain == DOMAIN


def storage_name(value: Value, storage: Storage) -> str:
    """The name of the copy of a value's tensor in a storage: the tensor's name, with the format unless it is canonical."""
    return value.tensor if storage.format.is_canonical else name_with_format(value, storage)


def name_with_format(value: Value, storage: Storage) -> str:
    """The name of a value's tensor, followed by a format with the letters of the value's axes: `x__NCHW16c`."""
    letters = value.axis_letters or ""
    return f"{value.tensor}__{storage.format.name(letters if len(letters) == storage.format.rank else None)}"


def moves(value: Value, required: Storage) -> bool:
    """Whether the conversion of a value to a storage changes bytes: their order, or the padding elements."""
    if value.storage is None or value.shape is None:
        return False
    return not value.storage.satisfies(required, value.shape)


def insert_cast(graph: Graph, value: Value, required: Storage) -> Value:
    """Add a CastData of `value` right behind its producer; the result is the same tensor in the storage `required`.

    Its padding is zero, or that of the source if the bytes need not move.
    """
    assert value.storage is not None
    storage = Storage(required.format, Padding.ZERO if moves(value, required) else value.storage.padding)
    result = graph.new_value(
        storage_name(value, storage), value.type, storage=storage, tensor=value.tensor, origin=value.origin
    )
    result.axis_letters = value.axis_letters
    op = Op(CAST, (value,), (result,), domain=DOMAIN, version=1, name=f"{CAST}_{result.name}")
    op.signature = Signature((value.storage,), (storage,))
    producer = graph.producer(value)
    graph.add_op(op, near=producer, first=producer is None)
    return result
