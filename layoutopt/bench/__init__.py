"""How much faster is one model than another, and is that more than noise?

    from layoutopt.bench import bench
    report = bench(["model.onnx", "out.onnx"], threads=1)
    report.models[1].speed_up      # median of the rounds, quartiles, confidence interval, verdict

All models run in one process, in turns, on the same random inputs. A ratio is taken within each round, where whatever else the
machine does meets both; what is reported is the median of the ratios, never without its spread.

Names are loaded when they are first used: the process that measures memory needs one runtime and nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layoutopt.bench.report import BenchReport
    from layoutopt.bench.run import bench

_HOMES = {"BenchReport": "layoutopt.bench.report", "bench": "layoutopt.bench.run"}

__all__ = ["BenchReport", "bench"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
