"""Module names of ops, which exporters leave in node names or in node metadata.

/layer1/layer1.0/conv1/Conv                       node name              layer1, layer1.0, conv1
pkg.torch.onnx.name_scopes: ['', 'encoder.0', x]  metadata of the node   encoder, 0
"""

import ast
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from layoutopt.ir.types import Op
from layoutopt.report.builder import LocatedOp

Scope: TypeAlias = tuple[str, ...]

_NAME_SCOPES = "pkg.torch.onnx.name_scopes"
_MIN_PATH, _MAX_PATH = 2, 24  # names of a path
_MIN_SHARE = 0.2  # of the ops: with fewer, the names do not determine the structure


def op_scopes(ops: Sequence[LocatedOp], known: Mapping[Op, Scope] | None = None) -> list[Scope]:
    """The path of module names of each op; an op without one has that of the op before it. All are empty if few ops have one.

    Args:
        ops: the ops in topological order.
        known: the paths of ops as they were in the original.
    """
    found = [(known or {}).get(located.op) or op_scope(located.op) for located in ops]
    if sum(map(bool, found)) < _MIN_SHARE * len(found):
        return [()] * len(found)
    scopes: list[Scope] = []
    for scope in found:
        scopes.append(scope or (scopes[-1] if scopes else ()))
    return scopes


def op_scope(op: Op) -> Scope:
    """The path of module names of an op; empty if the model does not have it."""
    parts = _parts(op.name, "/")
    if len(parts) >= _MIN_PATH:
        return parts[:-1]
    properties = getattr(op.origin, "metadata_props", None) or {}
    try:
        scopes = ast.literal_eval(properties.get(_NAME_SCOPES, "[]"))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ()
    names = [each for each in scopes if isinstance(each, str)] if isinstance(scopes, list) else []
    return _parts(names[-2], ".") if len(names) >= _MIN_PATH else ()


def _parts(name: str, separator: str) -> Scope:
    return tuple(part for part in name.split(separator) if part)[:_MAX_PATH]
