"""Roles of the symbolic dimensions of the inputs, inferred from the ops that read them, with default sizes.

    batch      samples; also boxes or rows                                                        1
    image      height or width of the input of a 2-D convolution                                  224
    signal     length of the input of a 1-D convolution                                           128
    audio      the same, if a window or the whole model reduces it by a factor of 64 or more      16000
    tokens     indices of rows of a constant table                                                128
    past       length of a key-value cache before new tokens are appended                         128
    sequence   all other dimensions                                                               128

Names (batch, height, seq) and positions are used only if no op determines the role.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from layoutopt.formats import Dim, Extent
from layoutopt.ir.graph import Graph
from layoutopt.ir.sizes import Symbol, size_by_name
from layoutopt.ir.types import Op, Value


class Role(Enum):
    """The role of a dimension: a description, its default size, and a small and a large size at which plans are checked."""

    PAST = ("length of a cache", 128, 16, 512)
    TOKENS = ("number of tokens", 128, 1, 512)
    AUDIO = ("number of samples", 16000, 4000, 64000)
    IMAGE = ("height or width of an image", 224, 64, 448)
    SIGNAL = ("length of a signal", 128, 16, 512)
    SEQUENCE = ("length of a sequence", 128, 1, 512)
    BATCH = ("batch", 1, 1, 8)

    def __init__(self, meaning: str, default_size: int, small: int, large: int) -> None:
        self.meaning = meaning
        self.default_size = default_size
        self.small = small
        self.large = large


@dataclass(frozen=True, slots=True)
class InferredRole:
    """The inferred role of a dimension.

    Attributes:
        role: the role.
        default_size: the default size.
        reason: the reason for the role, as text.
        is_weak: whether the role follows only from the position of the axis.
    """

    role: Role
    default_size: int
    reason: str
    is_weak: bool = False


_CONVOLUTIONS = frozenset(
    {"Conv", "ConvInteger", "QLinearConv", "FusedConv", "ConvTranspose", "MaxPool", "AveragePool"}
)
_SPECTRA = frozenset({"STFT", "DFT"})
_RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
_VIEWS = frozenset({"Transpose", "Reshape", "Identity", "Cast", "Squeeze", "Unsqueeze", "Slice", "Gather"})
_PAST_KEYS = {"Attention": 4, "com.microsoft::MultiHeadAttention": 6, "com.microsoft::GroupQueryAttention": 3}
_AUDIO_STEP = 64  # least reduction factor of a dimension that counts audio samples
_LARGE_SIZE = 1 << 20  # a size at which the ratio of a dimension and a computed extent is measured
_PRIORITY = tuple(Role)


def inferred_roles(graph: Graph, symbols: list[Symbol]) -> dict[str, InferredRole]:
    """The inferred role of every symbolic dimension, by its text in shapes."""
    found: dict[str, InferredRole] = {}
    names = {each.dim for each in symbols}
    for each in graph.regions():
        for op in each.ops:
            for name, role in _implied_roles(each, op):
                old = found.get(name)
                if name in names and (old is None or _PRIORITY.index(role) < _PRIORITY.index(old.role)):
                    reason = f"{op.name or op.kind} reads it as the {role.meaning}"
                    found[name] = InferredRole(role, role.default_size, reason)
    for symbol in symbols:
        known = found.get(symbol.dim)
        if known is None or known.role is Role.BATCH:
            found[symbol.dim] = known = _by_name_or_position(symbol, known)
        if known.role in (Role.SIGNAL, Role.SEQUENCE) and (step := _largest_step(graph, symbol.dim)) >= _AUDIO_STEP:
            reason = f"{known.reason}, and the model divides it by {step}"
            found[symbol.dim] = InferredRole(Role.AUDIO, Role.AUDIO.default_size, reason)
    return found


def _implied_roles(graph: Graph, op: Op) -> Iterator[tuple[str, Role]]:
    """The dimensions of an op's first operand, with the roles that the op implies."""
    x = op.inputs[0] if op.inputs else None
    shape = x.shape if x is not None else None
    if not shape:
        return
    if op.op_type in _CONVOLUTIONS and len(shape) > 2:
        spatial = [dim for dim in shape[2:] if dim != 1]
        role = Role.IMAGE if len(spatial) > 1 else Role.SIGNAL
        yield from ((name, role) for dim in spatial for name in _single_name(dim))
        yield from ((name, Role.BATCH) for name in _single_name(shape[0]))
    elif op.op_type in _SPECTRA and len(shape) > 1:
        yield from ((name, Role.AUDIO) for name in _single_name(shape[1]))
    elif op.op_type in _RECURRENT:
        time, batch = (1, 0) if op.integer("layout") else (0, 1)
        yield from ((name, Role.SEQUENCE) for name in _single_name(shape[time]))
        yield from ((name, Role.BATCH) for name in _single_name(shape[batch]))
    elif op.op_type == "Gather":
        yield from _roles_of_lookup(graph, op)
    elif op.op_type == "Concat":
        yield from _roles_of_cache(graph, op)
    elif op.kind in _PAST_KEYS and len(op.inputs) > _PAST_KEYS[op.kind]:
        past = op.inputs[_PAST_KEYS[op.kind]]
        if past is not None and len(past.shape or ()) == 4 and _is_given(graph, past):
            yield from ((name, Role.PAST) for name in _single_name((past.shape or ())[2]))


def _roles_of_lookup(graph: Graph, op: Op) -> Iterator[tuple[str, Role]]:
    """The roles of indices into a constant table: [batch, tokens]; [tokens] if an input has that shape, else [batch]."""
    table, indices = op.inputs[0], op.inputs[1]
    if table is None or indices is None or not table.is_constant or not indices.shape or len(table.shape or ()) != 2:
        return
    if table.dtype is not None and table.dtype.is_float:
        *outer, last = indices.shape
        is_sequence = bool(outer) or any(value.shape == (last,) for value in graph.root.inputs)
        yield from ((name, Role.TOKENS if is_sequence else Role.BATCH) for name in _single_name(last))
        yield from ((name, Role.BATCH) for dim in outer for name in _single_name(dim))


def _roles_of_cache(graph: Graph, op: Op) -> Iterator[tuple[str, Role]]:
    """The roles of a floating-point input of three or more axes that a Concat extends by a computed value along one axis."""
    values = [value for value in op.inputs if value is not None]
    rank = values[0].rank or 0
    given = [value for value in values if _is_given(graph, value)]
    if rank < 3 or len(given) != 1 or len(values) != 2 or given[0].dtype is None or not given[0].dtype.is_float:
        return
    axis = op.integer("axis") % rank
    yield from ((name, Role.PAST) for name in _single_name((given[0].shape or ())[axis]))
    if axis > 0:
        yield from ((name, Role.BATCH) for name in _single_name((given[0].shape or ())[0]))


def _is_given(graph: Graph, value: Value) -> bool:
    """Whether a value is a graph input, possibly behind view ops."""
    while value not in graph.inputs:
        producer = graph.producer(value)
        source = producer.inputs[0] if producer is not None and producer.op_type in _VIEWS else None
        if source is None:
            return False
        value = source
    return True


def _single_name(dim: Dim) -> frozenset[str]:
    """The name in an extent with exactly one name; otherwise empty."""
    return dim.names if isinstance(dim, Extent) and len(dim.names) == 1 else frozenset()


def _largest_step(graph: Graph, dim: str) -> int:
    """The largest factor by which an extent of a tensor is smaller than the dimension it is computed from."""
    step = 1
    for value in graph.values:
        for each in (*(value.shape or ()), *(value.elements or ())):
            if isinstance(each, Extent) and not each.is_name and each.names == {dim}:
                extent = each.at({dim: _LARGE_SIZE}) or 0
                step = max(step, round(_LARGE_SIZE / extent) if extent > _AUDIO_STEP else 1)
    return step


def _by_name_or_position(symbol: Symbol, known: InferredRole | None) -> InferredRole:
    """The role by name, otherwise by position: the first axis is the batch, two of four axes are those of an image."""
    hint = size_by_name(symbol.name)
    if known is not None and hint is None:
        return known
    if hint is not None:
        role = next(role for role in (Role.BATCH, Role.IMAGE, Role.AUDIO, Role.SEQUENCE) if role.default_size == hint)
        return InferredRole(role, hint, "its name")
    role = next(role for role in (Role.BATCH, Role.IMAGE, Role.SEQUENCE) if role.default_size == symbol.default)
    return InferredRole(role, symbol.default, "its position", is_weak=True)


__all__ = ["InferredRole", "Role", "inferred_roles"]
