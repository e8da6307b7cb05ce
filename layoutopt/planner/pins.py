"""Pins: the check that a pinned format fits its value, and the removal of candidates that contradict it."""

from collections.abc import Mapping

from layoutopt.errors import PinError
from layoutopt.formats import Format
from layoutopt.ir.graph import Graph
from layoutopt.ir.types import Op, Storage, Value
from layoutopt.planner.candidates import Candidates
from layoutopt.planner.region_tree import RegionTree
from layoutopt.planner.unit_signatures import storage_key


def check_pins(graph: Graph, pins: Mapping[Value, Format]) -> None:
    """Check that every pinned format fits its value.

    Raises:
        PinError: the rank of a value is unknown, or the format does not fit its shape.
    """
    for value, format in pins.items():
        if value.shape is None:
            raise PinError(
                f"cannot be pinned to {value.format_text(format)}: its rank is unknown",
                where=value.name,
                hint="pin another value",
            )
        if not format.fits(value.shape):
            raise PinError(
                f"cannot be pinned to {value.format_text(format)}: its shape is {value.type}",
                where=value.name,
                hint=f"use a format of rank {len(value.shape)} whose blocked axes have known extents",
            )


def enforce_pins(tree: RegionTree, candidates: Candidates, pins: Mapping[Value, Format]) -> None:
    """Remove the signatures that compute a pinned value in another format.

    Raises:
        PinError: no signature computes a value in its pinned format.
    """
    for value, format in pins.items():
        if value not in tree.writers or tree.is_output(value):
            continue
        key = storage_key(value, Storage(format))
        writer, index = tree.writers[value]
        signatures = candidates.signatures[writer]
        kept = [each for each in signatures if storage_key(value, each.outputs[index]) == key]
        if not kept:
            letters = value.axis_letters or ""
            offered = sorted({each.text(letters) for each in (one.outputs[index] for one in signatures) if each})
            op = writer if isinstance(writer, Op) else writer.op
            raise PinError(
                f"pinned to {value.format_text(format)}, which no signature of {op.kind} computes",
                where=value.name,
                hint=f"it can be {', '.join(offered)}; or pin a graph input or output",
            )
        candidates.signatures[writer] = kept
