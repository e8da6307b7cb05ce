"""Damage to the bytes of a message: at random positions, and along the fields of the wire format."""

from collections.abc import Callable
from dataclasses import dataclass

from .choices import Choices, chance, pick

_EXTREMES = (
    0,
    1,
    2,
    3,
    7,
    127,
    128,
    255,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    1 << 40,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
)
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MAX_DEPTH = 12

Damage = Callable[[Choices, bytes, bytes], bytes]
"""An edit of a file; the second argument is another file as a source of parts."""


@dataclass(frozen=True)
class Field:
    """One field of a message with its position.

    Attributes:
        start: its first byte, that of its tag.
        value: the first byte of its content.
        end: the byte behind it.
        kind: the wire type.
        lengths: the positions of the lengths of the enclosing messages, the outermost first.
    """

    start: int
    value: int
    end: int
    kind: int
    lengths: tuple[tuple[int, int], ...]


def fields(content: bytes) -> list[Field]:
    """All fields; contents that parse as a message are treated as one."""
    found: list[Field] = []
    pending: list[tuple[int, int, tuple[tuple[int, int], ...]]] = [(0, len(content), ())]
    while pending:
        start, end, lengths = pending.pop()
        inside = _scan(content, start, end, lengths)
        if inside is None:
            continue
        found += inside
        if len(lengths) < _MAX_DEPTH:
            pending += [
                (each.value, each.end, (*lengths, _length_of(content, each))) for each in inside if each.kind == _LENGTH
            ]
    return found


def _scan(content: bytes, start: int, end: int, lengths: tuple[tuple[int, int], ...]) -> list[Field] | None:
    found = []
    at = start
    while at < end:
        tag = _read(content, at, end)
        if tag is None or tag[0] >> 3 == 0 or tag[0] >> 3 > 600:
            return None
        kind, value = tag[0] & 7, tag[1]
        if kind == _LENGTH:
            length = _read(content, value, end)
            if length is None or length[1] + length[0] > end:
                return None
            stop, value = length[1] + length[0], length[1]
        elif kind == _VARINT:
            number = _read(content, value, end)
            if number is None:
                return None
            stop = number[1]
        elif kind in (_FIXED32, _FIXED64):
            stop = value + (4 if kind == _FIXED32 else 8)
            if stop > end:
                return None
        else:
            return None
        found.append(Field(at, value, stop, kind, lengths))
        at = stop
    return found


def _length_of(content: bytes, field: Field) -> tuple[int, int]:
    """The position of the length of a field."""
    tag = _read(content, field.start, field.end)
    assert tag is not None
    return tag[1], field.value


def _read(content: bytes, at: int, end: int) -> tuple[int, int] | None:
    """A variable-length number and the position behind it."""
    number = shift = 0
    while at < end and shift < 70:
        byte = content[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at
    return None


def varint(number: int) -> bytes:
    """A number in variable-length encoding."""
    found = bytearray()
    while True:
        number, low = number >> 7, number & 127
        found.append(low | (128 if number else 0))
        if not number:
            return bytes(found)


def replaced(content: bytes, field: Field, new: bytes) -> bytes:
    """The file with a field replaced and the lengths of enclosing messages adjusted."""
    return _spliced(content, field.start, field.end, new, field.lengths)


def _spliced(content: bytes, start: int, end: int, new: bytes, lengths: tuple[tuple[int, int], ...]) -> bytes:
    content, growth = content[:start] + new + content[end:], len(new) - (end - start)
    for at, behind in reversed(lengths):
        length = _read(content, at, behind)
        assert length is not None
        number = varint(max(0, length[0] + growth))
        content = content[:at] + number + content[behind:]
        growth += len(number) - (behind - at)
    return content


# --- blind ------------------------------------------------------------------------------------------------------


def _flip(choices: Choices, content: bytes, other: bytes) -> bytes:
    damaged = bytearray(content)
    for _ in range(pick(choices, (1, 1, 2, 8, 40))):
        damaged[choices.number(0, len(damaged) - 1)] ^= 1 << choices.number(0, 7)
    return bytes(damaged)


def _overwrite(choices: Choices, content: bytes, other: bytes) -> bytes:
    damaged = bytearray(content)
    for _ in range(pick(choices, (1, 1, 2, 8))):
        damaged[choices.number(0, len(damaged) - 1)] = choices.number(0, 255)
    return bytes(damaged)


def _truncate(choices: Choices, content: bytes, other: bytes) -> bytes:
    return content[: choices.number(0, len(content) - 1)]


def _cut_out(choices: Choices, content: bytes, other: bytes) -> bytes:
    start = choices.number(0, len(content) - 1)
    return content[:start] + content[start + choices.number(1, 40) :]


def _repeat(choices: Choices, content: bytes, other: bytes) -> bytes:
    start = choices.number(0, len(content) - 1)
    return content[:start] + content[start : start + choices.number(1, 40)] * 2 + content[start:]


def _put_in(choices: Choices, content: bytes, other: bytes) -> bytes:
    start = choices.number(0, len(content))
    return content[:start] + bytes(choices.number(0, 255) for _ in range(choices.number(1, 12))) + content[start:]


def _splice(choices: Choices, content: bytes, other: bytes) -> bytes:
    return content[: choices.number(0, len(content))] + other[choices.number(0, len(other)) :]


# --- along the fields -------------------------------------------------------------------------------------------


def _drop_field(choices: Choices, content: bytes, other: bytes) -> bytes:
    field = _field(choices, content)
    return replaced(content, field, b"") if field is not None else content


def _repeat_field(choices: Choices, content: bytes, other: bytes) -> bytes:
    field = _field(choices, content)
    return replaced(content, field, content[field.start : field.end] * pick(choices, (2, 2, 3))) if field else content


def _exchange_field(choices: Choices, content: bytes, other: bytes) -> bytes:
    """A field of the other file in place of one."""
    field, donor = _field(choices, content), _field(choices, other)
    if field is None or donor is None:
        return content
    return replaced(content, field, other[donor.start : donor.end])


def _change_number(choices: Choices, content: bytes, other: bytes) -> bytes:
    numbers = [each for each in fields(content) if each.kind == _VARINT]
    if not numbers:
        return content
    field = pick(choices, numbers)
    number = pick(choices, _EXTREMES) if chance(choices, 70) else choices.number(0, 40)
    return _spliced(content, field.value, field.end, varint(number), field.lengths)


def _change_bytes(choices: Choices, content: bytes, other: bytes) -> bytes:
    """Other bytes in a string or message: none, fewer, no text, far more."""
    strings = [each for each in fields(content) if each.kind == _LENGTH]
    if not strings:
        return content
    field = pick(choices, strings)
    old = content[field.value : field.end]
    new = pick(choices, (b"", old[: len(old) // 2], b"\xff\xfe" + old, old + b"\0", b"../" + old, old * 2, b"a" * 5000))
    tag = _read(content, field.start, field.end)
    assert tag is not None
    return replaced(content, field, content[field.start : tag[1]] + varint(len(new)) + new)


def _change_tag(choices: Choices, content: bytes, other: bytes) -> bytes:
    """Another field number or wire type."""
    field = _field(choices, content)
    if field is None:
        return content
    tag = _read(content, field.start, field.end)
    assert tag is not None
    number = pick(choices, (tag[0] ^ pick(choices, (1, 2, 3, 4)), choices.number(1, 30) << 3 | tag[0] & 7))
    return _spliced(content, field.start, tag[1], varint(max(8, number)), field.lengths)


def _change_length(choices: Choices, content: bytes, other: bytes) -> bytes:
    """A wrong length."""
    strings = [each for each in fields(content) if each.kind == _LENGTH]
    if not strings:
        return content
    field = pick(choices, strings)
    at, behind = _length_of(content, field)
    length = max(0, field.end - field.value + pick(choices, (-1, 1, 2, -3, 100, 1 << 32)))
    return content[:at] + varint(length) + content[behind:]


def _field(choices: Choices, content: bytes) -> Field | None:
    found = fields(content)
    return pick(choices, found) if found else None


BYTE_EDITS: tuple[Damage, ...] = (_flip, _overwrite, _truncate, _cut_out, _repeat, _put_in, _splice)
FIELD_EDITS: tuple[Damage, ...] = (
    *(_drop_field, _repeat_field, _exchange_field, _change_number, _change_number, _change_bytes, _change_tag),
    _change_length,
)
