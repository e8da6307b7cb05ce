"""Edits of repeated fields of protobuf messages."""

from collections.abc import Sequence
from typing import Any


def keep_messages(field: Any, kept: Sequence[Any]) -> None:
    """Set a repeated field to a part of its messages, in the given order."""
    if len(kept) < len(field):
        copies = [type(each).FromString(each.SerializeToString()) for each in kept]
        del field[:]
        field.extend(copies)


__all__ = ["keep_messages"]
