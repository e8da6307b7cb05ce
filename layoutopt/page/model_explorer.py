"""Node data for Model Explorer, Google's viewer of model graphs: the estimated time of every node of a file.

The format is that of `GraphNodeData` in Model Explorer's `node_data_builder.py`: `results` maps the id of a node, for ONNX
its name, to a value with an optional colour. Nodes without an entry stay as they are.
"""

from collections.abc import Iterable
from typing import Any

from layoutopt.report.output_formats import output_format
from layoutopt.report.schema import Report

_MICROSECOND = 1e-6
_GRADIENT = [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#f2a33a"}]
_CONVERSION = {"bgColor": "#d6455d", "textColor": "#ffffff"}


def model_explorer_data(report: Report, names: Iterable[str]) -> dict[str, Any]:
    """The node data of a report: estimated microseconds per node, with layout conversions in red.

    Args:
        report: the report.
        names: the names of the nodes of the file.
    """
    present = set(names)
    results: dict[str, dict[str, Any]] = {}
    for op in report.ops:
        if op.name in present:
            colour = _CONVERSION if op.moves_data else {}
            results[op.name] = {"value": _microseconds(op.seconds), "format": output_format(op), **colour}
    for cast in report.casts:
        if cast.name in present:
            change = f"{cast.src} -> {cast.dst}"
            results[cast.name] = {"value": _microseconds(cast.seconds), "format": change, **_CONVERSION}
    return {
        "name": f"layoutopt: estimated µs on {report.target}",
        "layoutopt_version": report.layoutopt_version,
        "results": results,
        "gradient": _GRADIENT,
    }


def _microseconds(seconds: float) -> float:
    return float(f"{seconds / _MICROSECOND:.4g}")


__all__ = ["model_explorer_data"]
